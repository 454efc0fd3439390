"""What each part of the live tail is worth: the same budgets without it.

    python benchmarks/ablation.py [--data FOLDER] [--work FOLDER] [--seeds N] [--json FILE]

Birds and WBCAtt with the convnet, the two label scenarios of ``fidelity.py`` and its trained models (``--work`` is
the same folder). Recovery / closure on test data, means over the original seeds. Every row changes one thing:

without axes         plain Adam instead of Adam in the eigenbasis of the channel covariances
frozen BatchNorm     behind the cut in evaluation mode, with the statistics of training
without averaging    the last weights instead of the mean over the last half of the steps
without warm-up      the full rate from the first step
last block only      the shortest tail, whatever the budget
everything moves     no cut: gradient steps of the whole network for the same work, heads solved
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from rich.console import Console
from rich.table import Table
from torch import nn

import ecbm
from ecbm.edit.methods.auto import cost, tail
from ecbm.progress import silence
from ecbm.show.reproduce.judging import predictions
from ecbm.show.reproduce.scenarios import SCENARIOS
from ecbm.show.reproduce.store import Store
from ecbm.verify.fidelity import closure
from fidelity import SHARED, settings
from fidelity_rows import SEED

CASES = ("labels, systematic", "labels, 10 % random")
BUDGETS = (0.1, 0.2)


def _frozen(network: nn.Module) -> None:
    network.train()
    for module in network.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.eval()


def _nothing(*_: Any, **__: Any) -> dict[str, Any]:
    return {}


def _shortest(self: tail.LiveTail, ladder: Any, work: float) -> int:
    return tail._movable(ladder)[0]


VARIANTS: dict[str, Callable[[], list[Any]]] = {
    "the live tail": list,
    "without axes": lambda: [patch.object(tail, "fit_axes", _nothing)],
    "frozen BatchNorm": lambda: [patch.object(tail, "to_training", _frozen)],
    "without averaging": lambda: [patch.object(tail._Average, "put", lambda self: None)],
    "without warm-up": lambda: [patch.object(tail, "_WARM_UP", 1e-9)],
    "last block only": lambda: [patch.object(tail.LiveTail, "_choose", _shortest)],
    "everything moves": lambda: [patch.object(cost, "cuts_of", lambda backbone: ())],
}


@contextmanager
def variant(name: str) -> Iterator[None]:
    with ExitStack() as stack:
        for change in VARIANTS[name]():
            stack.enter_context(change)
        yield


def main() -> None:
    os.environ.update(OMP_NUM_THREADS="1")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=SHARED)
    parser.add_argument("--work", type=Path, default=Path("results") / "fidelity")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    silence()
    store, rows = Store(options.work), []
    for setting, (data, recipe) in settings(options.data, False).items():
        if recipe.backbone != "convnet":
            continue
        for case in CASES:
            rows += _case(store, setting, data, recipe, case, options.seeds)
            _show(rows[-len(VARIANTS) :], f"{setting}: {case}")
    if options.json:
        options.json.write_text(json.dumps({"rows": rows}, indent=2) + "\n")


def _case(
    store: Store, setting: str, data: ecbm.Dataset, recipe: ecbm.Recipe, case: str, seeds: int
) -> list[dict[str, Any]]:
    before, after = SCENARIOS[case](data, SEED)
    edit, test, names = ecbm.Edit.between(before, after), data.split("test"), list(data.concept_names)
    retrained = [predictions(store.model(after, recipe.replace(seed=s)), test, names) for s in range(seeds)]
    target = torch.stack([r["concepts"] for r in retrained]).mean(0)
    reached = statistics.fmean(r["concept_accuracy"] for r in retrained)
    found: dict[str, dict[float, list[tuple[float, float, float]]]] = {}
    for seed in range(seeds):
        model = store.model(before, recipe.replace(seed=seed))
        start, editor = predictions(model, test, names), ecbm.Editor(model, before)
        for name in VARIANTS:
            for budget in BUDGETS:
                with variant(name):
                    edited = editor.apply(edit, budget=budget).model
                figures = predictions(edited, test, names)
                gained = figures["concept_accuracy"] - start["concept_accuracy"]
                closed = closure(figures["concepts"], start["concepts"], target) or 0.0
                entry = gained, reached - start["concept_accuracy"], closed
                found.setdefault(name, {}).setdefault(budget, []).append(entry)
    return [
        {
            "setting": setting,
            "scenario": case,
            "row": name,
            **{
                f"{kind} {budget:.0%}": value
                for budget, entries in by_budget.items()
                for kind, value in (
                    ("recovery", sum(e[0] for e in entries) / sum(e[1] for e in entries)),
                    ("closure", statistics.fmean(e[2] for e in entries)),
                )
            },
        }
        for name, by_budget in found.items()
    ]


def _show(rows: list[dict[str, Any]], title: str) -> None:
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for budget in BUDGETS:
        table.add_column(f"{budget:.0%}: recovery / closure", justify="right")
    for row in rows:
        cells = (f"{row[f'recovery {b:.0%}']:.2f} / {row[f'closure {b:.0%}']:.2f}" for b in BUDGETS)
        table.add_row(row["row"], *cells)
    Console().print(table)


if __name__ == "__main__":
    main()
