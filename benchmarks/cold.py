"""A cold edit: one corrected label on the command line against training anew, each a process of its own.

    python benchmarks/cold.py [--data FOLDER] [--sizes 4796 20000 50000] [--rounds 5] [--json FILE]

The first size is CUB's features where ``--data`` names their folder (``samples.csv`` and ``features.npy``); the
others are drawn with the same width (1,280 features, 112 concepts, 200 classes). ``ecbm edit`` corrects another
label in every round, so that each starts from the version before it; report, certificate and the new version on
disk are part of it. *warm* is the same edit by an editor in memory, report included. One thread; medians; seconds
of the processor (user and system) beside those of the clock, since a busy machine stretches the clock alone.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

CONCEPTS, CLASSES, WIDTH = 112, 200, 1280
SHARED = Path(__file__).resolve().parent.parent.parent / "shared" / "data" / "cub"


def drawn(folder: Path, samples: int) -> None:
    """Features around class means, concepts that belong to classes and are seen through noise."""
    draw = np.random.default_rng(samples)
    validation = samples // 4
    total = samples + validation
    labels = np.concatenate([np.arange(CLASSES), draw.integers(CLASSES, size=total - CLASSES)])
    truth = draw.random((CLASSES, CONCEPTS)) < draw.uniform(0.05, 0.5, CONCEPTS)
    mixing = draw.normal(size=(CONCEPTS, WIDTH)).astype(np.float32)
    spread = np.logspace(0, -1.5, WIDTH).astype(np.float32)
    features = (truth[labels].astype(np.float32) @ mixing) * 0.15 + draw.normal(size=(total, WIDTH)) * spread
    np.save(folder / "features.npy", features.astype(np.float16))
    table = pd.DataFrame(truth[labels].astype(int), columns=[f"mark_{j}" for j in range(CONCEPTS)])
    table.insert(0, "label", [f"kind {label}" for label in labels])
    table.insert(0, "split", ["train"] * samples + ["val"] * validation)
    table.insert(0, "id", [f"s{row}" for row in range(total)])
    table.to_csv(folder / "samples.csv", index=False)


def timed(*command: str) -> tuple[float, float]:
    """Seconds of the clock and of the processor that a command takes."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    clock, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return clock, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def edits(table: pd.DataFrame, count: int) -> list[dict[str, object]]:
    """One label of another training sample each."""
    part = table[table["split"] == "train"]
    names = [name for name in table.columns if name not in ("id", "split", "label")]
    draw = np.random.default_rng(0)
    found = []
    for row in draw.choice(len(part), count, replace=False):
        name = str(draw.choice(names))
        value = 1 - int(part.iloc[row][name])
        found.append({"correct_concepts": [{"id": str(part.iloc[row]["id"]), "concept": name, "value": value}]})
    return found


def warm(workspace: Path, wanted: list[dict[str, object]]) -> float:
    """The median of the same edits in one process, where everything is at hand."""
    code = """
import json, sys, time, torch
torch.set_num_threads(1)
import ecbm
opened = ecbm.Workspace(sys.argv[1])
editor = ecbm.Editor(opened.model(), opened.data())
times = []
for text in [None, *json.loads(sys.argv[2])]:
    item = (text or json.loads(sys.argv[2])[0])["correct_concepts"][0]
    started = time.process_time()
    editor.apply(ecbm.Edit(correct_concepts=[(item["id"], item["concept"], item["value"])]))
    times += [time.process_time() - started] if text else []
print(sorted(times)[len(times) // 2])
"""
    command = [sys.executable, "-c", code, str(workspace), json.dumps(wanted)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return float(done.stdout)


def measure(source: Path, folder: Path, rounds: int) -> dict[str, float]:
    """All figures of one dataset."""
    ecbm, workspace = [sys.executable, "-m", "ecbm.show.cli"], folder / "workspace"
    table = pd.read_csv(source / "samples.csv", dtype={"id": str})
    files = ["--data", str(source / "samples.csv"), "--features", str(source / "features.npy")]
    timed(*ecbm, "init", str(workspace), *files)
    train = timed(*ecbm, "train", str(workspace))
    bare, cold = [], []
    wanted = edits(table, 2 * rounds)
    for number, content in enumerate(wanted[:rounds]):
        path = folder / f"edit{number}.json"
        path.write_text(json.dumps(content))
        bare.append(timed(sys.executable, "-c", "import torch"))
        cold.append(timed(*ecbm, "edit", str(workspace), str(path)))
    row: dict[str, float] = {"samples": int((table["split"] == "train").sum())}
    for place, kind in enumerate(("_clock", "")):
        torch, edit = (statistics.median(pair[place] for pair in pairs) for pairs in (bare, cold))
        row |= {f"train{kind}": train[place], f"edit{kind}": edit, f"import_torch{kind}": torch}
        row |= {f"above_torch{kind}": edit - torch, f"faster{kind}": train[place] / edit}
    return row | {"warm": warm(workspace, wanted[rounds:])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=SHARED if SHARED.is_dir() else None)
    parser.add_argument("--sizes", type=int, nargs="+", default=[4796, 20_000, 50_000])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    rows = []
    print("| training samples | `ecbm train` | `ecbm edit`, cold | above `import torch` | faster | warm edit |")
    print("|---:|---:|---:|---:|---:|---:|")
    for place, samples in enumerate(given.sizes):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            source = given.data if place == 0 and given.data is not None else folder
            if source == folder:
                drawn(folder, samples)
            row = measure(source, folder, given.rounds)
        rows.append(row)
        print(
            f"| {row['samples']:,} | {row['train']:.1f} s | {row['edit']:.2f} s | {row['above_torch']:.2f} s | "
            f"{row['faster']:.1f}× | {row['warm']:.2f} s |",
            flush=True,
        )
    if given.json is not None:
        given.json.write_text(json.dumps({"rows": rows}, indent=1))


if __name__ == "__main__":
    main()
