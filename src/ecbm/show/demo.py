"""``ecbm demo``: careless labels, a model that learnt them, the edit that repairs it, and a page about it."""

from __future__ import annotations

import dataclasses
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from ecbm.errors import InputError
from ecbm.read.birds import birds
from ecbm.show.demo_page import build_page, find_correction
from ecbm.show.demo_repair import print_repair, run_repair
from ecbm.show.pictures import terminal_row
from ecbm.train.recipe import Recipe
from ecbm.verify.evaluate import evaluate

__all__ = ["run_demo"]

_SAMPLES, _EPOCHS = 1800, 8


def _article(name: str) -> str:
    return "an" if name[:1].lower() in set("aeiou") else "a"


def _require_writable(folder: Path) -> None:
    """Refuse a folder that cannot take the page before a minute of work, not after it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InputError(f"{folder}: the page cannot be written there ({error.strerror})") from None


def run_demo(
    folder: Path, console: Console, seed: int = 0, *, samples: int = _SAMPLES, epochs: int = _EPOCHS
) -> dict[str, Any]:
    """Run the demo, print what happens, write ``index.html`` to ``folder``; returns the figures."""
    started = time.monotonic()
    _require_writable(folder)
    console.print(f"[bold]1[/bold] Drawing {samples} birds")
    data = birds(n=samples, seed=seed)
    console.print(f"[bold]2[/bold] Training a concept bottleneck on careless labels ({epochs} epochs)")
    repair = run_repair(data, Recipe(backbone="convnet", epochs=epochs, seed=seed), console)
    print_repair(repair, console)
    if repair.noise_floor is not None:
        console.print(f"closure of one retraining against another (the noise floor): {repair.noise_floor:.2f}")
    report = repair.result.report
    console.print(f"ecbm: {report['settings']['why']}")
    model, test = repair.result.model, data.split("test")
    metrics = evaluate(model, test)
    result: dict[str, Any] = {key: value for key, value in metrics.items() if key != "per_concept"}
    result["comparison"] = [dataclasses.asdict(row) for row in repair.rows]
    result |= {"noise_floor": repair.noise_floor, "kept_seconds": repair.kept_seconds}
    console.print("[bold]5[/bold] Correcting a concept by hand, on the repaired model")
    found = find_correction(model, test)
    if found is not None:
        names = [test.class_names[int(p.argmax())] for p in (found.before, found.after)]
        if console.is_terminal:
            rows = [found.row, *torch.arange(3).tolist()]
            console.print(terminal_row(list(test.inputs.raw(rows)), [test.ids[row] for row in rows]))
        console.print(
            f"  {test.ids[found.row]} was taken for {_article(names[0])} [red]{names[0]}[/red] "
            f"({float(found.before.max()):.0%}); with [bold]{found.group}[/bold] set to the truth it is "
            f"{_article(names[1])} [green]{names[1]}[/green] ({float(found.after.max()):.0%})"
        )
        result["intervention"] = {
            "id": test.ids[found.row],
            "group": found.group,
            "before": names[0],
            "after": names[1],
        }
    page = build_page(repair, data, metrics, found)
    path = page.write(folder / "index.html")
    result |= {"page": str(path), "seconds": time.monotonic() - started}
    console.print(f"[bold]6[/bold] The page is at [bold]{path}[/bold] ({result['seconds']:.0f} s in all)")
    return result
