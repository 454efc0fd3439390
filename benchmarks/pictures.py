"""Ways to learn from pictures: a frozen network, its last layers trained on kept maps, a network from scratch.

    python benchmarks/pictures.py [FOLDER] [--ways frozen,last,convnet] [--seeds 1] [--split test] [--json FILE]

FOLDER holds ``samples.csv`` and ``images.zip`` (WBCAtt by default). Every way starts from the files, so its
processor time has decoding and extraction in it; one thread. Settings were chosen on the validation split.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch

import ecbm
from ecbm.progress import silence

WBCATT = Path(__file__).resolve().parents[2] / "shared" / "data" / "wbcatt"
WAYS: dict[str, dict[str, Any]] = {
    "frozen": {"backbone": "pretrained"},
    "last": {"backbone": "pretrained", "frozen": "until:blocks.4", "epochs": 2},
    "convnet": {"backbone": "convnet"},
}


def measured(folder: Path, way: str, seed: int, split: str) -> dict[str, float]:
    """Accuracies of one training, and its processor seconds."""
    data = ecbm.read_dataset(folder / "samples.csv", images=folder / "images.zip")
    started = time.process_time()
    model = ecbm.train(data, ecbm.Recipe(**WAYS[way], seed=seed))
    seconds = time.process_time() - started
    metrics = ecbm.evaluate(model, data.split(split))
    return {"seconds": seconds} | {name: metrics[name] for name in ("class_accuracy", "concept_accuracy")}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("folder", nargs="?", type=Path, default=WBCATT)
    options.add_argument("--ways", default=",".join(WAYS), help="some of them, with commas")
    options.add_argument("--seeds", type=int, default=1, help="how many; figures are means")
    options.add_argument("--split", default="test")
    options.add_argument("--json", type=Path)
    given = options.parse_args()
    silence()
    torch.set_num_threads(1)
    found = {
        way: [measured(given.folder, way, seed, given.split) for seed in range(given.seeds)]
        for way in given.ways.split(",")
    }
    print(f"{'':<10}{'class accuracy':>16}{'concept accuracy':>18}{'processor time':>16}   ({given.split})")
    for way, rows in found.items():
        mean = {name: statistics.mean(row[name] for row in rows) for name in rows[0]}
        print(
            f"{way:<10}{mean['class_accuracy']:16.4f}{mean['concept_accuracy']:18.4f}{mean['seconds']:14.0f} s",
            flush=True,
        )
    if given.json is not None:
        given.json.write_text(json.dumps({"split": given.split, "ways": WAYS, "runs": found}, indent=2) + "\n")


if __name__ == "__main__":
    main()
