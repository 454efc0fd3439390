"""Edits on frozen features: how much faster than retraining, and how close to it.

    python benchmarks/frozen.py [FOLDER] [--json FILE] [--rounds 3]

Each round draws a new edit of each kind. Exact edits and retraining alternate in one run; ratios are medians of the
rounds. Seconds are those of the edit and its preparation with kept state; the report is not counted.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
from pathlib import Path

import torch

import ecbm

CUB = Path(__file__).resolve().parents[2] / "shared" / "data" / "cub"


def draw(data: ecbm.Dataset, kind: str, seed: int) -> ecbm.Edit:
    train, chosen = data.split("train"), random.Random(seed)
    if kind == "3 % of the samples removed":
        return ecbm.Edit(remove_samples=chosen.sample(train.ids, round(0.03 * len(train))))
    places = chosen.sample(range(train.concepts.numel()), 50)
    width = len(data.concept_names)
    return ecbm.Edit(
        correct_concepts=[
            (train.ids[at // width], data.concept_names[at % width], 1 - float(train.concepts.flatten()[at]))
            for at in places
            if not train.concepts.flatten()[at].isnan()
        ]
    )


def predictions(model: ecbm.ConceptBottleneck, data: ecbm.Dataset) -> tuple[torch.Tensor, torch.Tensor]:
    logits = model.concept_logits(data.split("test").inputs)
    return torch.sigmoid(logits), model.classify(logits)


def closures(
    edited: ecbm.ConceptBottleneck, retrained: ecbm.ConceptBottleneck, model: ecbm.ConceptBottleneck, data
):
    parts = zip(*(predictions(one, data) for one in (edited, retrained, model)), strict=True)
    return [1 - float((a - b).norm() / (c - b).norm()) for a, b, c in parts]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", default=CUB, help="a dataset of feature rows, such as CUB's")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    data = ecbm.read_dataset(options.folder)
    model = ecbm.train(data, ecbm.Recipe(backbone="linear"))
    editor = ecbm.Editor(model, data)
    kinds = ("50 concept labels corrected", "3 % of the samples removed")
    for kind in kinds:
        for method in ("exact", "ekfac"):
            editor.apply(draw(data, kind, 0), method)
    found: dict[tuple[str, str], list[dict[str, float]]] = {}
    for seed in range(1, options.rounds + 1):
        for kind in kinds:
            edit = draw(data, kind, seed)
            results = {method: editor.apply(edit, method) for method in ("exact", "ekfac", "retrain")}
            truth = results["retrain"]
            for method in ("exact", "ekfac"):
                result = results[method]
                seconds = result.report["seconds"]
                own = seconds["edit"] + seconds["prepare"]
                concept, label = closures(result.model, truth.model, model, data)
                found.setdefault((kind, method), []).append(
                    {
                        "seconds": own,
                        "times_faster": truth.report["seconds"]["edit"] / own,
                        "concept_closure": concept,
                        "class_closure": label,
                        "could_differ": result.report["certificate"]["class_predictions_that_could_differ"],
                    }
                )
    table = [
        {"edit": kind, "method": method} | {name: statistics.median(row[name] for row in rows) for name in rows[0]}
        for (kind, method), rows in found.items()
    ]
    print(
        f"{'edit':28} {'method':7} {'faster':>7} {'seconds':>8} {'concepts':>9} {'classes':>9} {'could differ':>13}"
    )
    for row in table:
        print(
            f"{row['edit']:28} {row['method']:7} {row['times_faster']:6.1f}x {row['seconds']:8.3f} "
            f"{row['concept_closure']:9.5f} {row['class_closure']:9.5f} {row['could_differ']:13.0f}"
        )
    if options.json:
        options.json.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
