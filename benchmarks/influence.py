"""Predicted influence against what really happens.

    python benchmarks/influence.py [--json FILE] [--part frozen|deep|all] [--data table birds cub] [--quick]

Frozen backbones: samples left out one by one and in groups, labels flipped, concepts removed; each change is
carried out by solving both heads again, and a few by training from nothing. A set is predicted twice: by the sum
of its samples' influences, and by Newton steps on the samples that remain. Deep backbone: the linear
datamodelling score (LDS; Park et al. 2023): models are retrained on random halves of the training samples, and
the score is the rank correlation, over halves, of a test sample's loss with the sum of the predicted influences
of what was left out; kronfluence's EK-FAC sees the same model, the same queries and the same measured function.
Times are those of the process's CPU.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import spearmanr

import ecbm
from ecbm.progress import silence
from ecbm.verify.influence.asking import Influence
from ecbm.verify.influence.confirm import actual_change, measured
from ecbm.verify.influence.sets import step_without
from influence_peers import kronfluence_scores

Retrained = tuple[np.ndarray, np.ndarray]
CUB = Path(__file__).resolve().parents[2] / "shared" / "data" / "cub"


def rank_correlation(first: Any, second: Any) -> float:
    return float(spearmanr(first, second).statistic)


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    started = time.process_time()
    return work(), time.process_time() - started


# -- frozen backbones ------------------------------------------------------------------------------------------


DATA = ("table", "birds", "cub")


def frozen_data(wanted: list[str], quick: bool) -> dict[str, ecbm.Dataset]:
    found: dict[str, ecbm.Dataset] = {}
    if "table" in wanted:
        found["breast cancer (table)"] = ecbm.datasets.breast_cancer()
    if "birds" in wanted:
        pictures = ecbm.datasets.birds(n=600 if quick else 2000, seed=3, size=32)
        network = ecbm.train(pictures, ecbm.Recipe(backbone="convnet", epochs=3, patience=None, seed=3))
        features = network.features(pictures).float()
        found["birds, features of a convnet"] = ecbm.Dataset(
            pictures.ids, features, pictures.concepts, pictures.labels, pictures.concept_names,
            pictures.class_names, pictures.splits,
        )  # fmt: skip
    if "cub" in wanted and CUB.exists() and not quick:
        found["CUB, frozen features"] = ecbm.read_dataset(CUB)
    return found


def sizes_of(data: ecbm.Dataset, quick: bool) -> dict[str, int]:
    """How much is carried out: on CUB one solve takes two CPU seconds and one training seven."""
    if quick:
        return {"singles": 12, "cold": 6, "groups": 8, "flips": 12, "tried": 30}
    if data.inputs.shape[-1] > 1000:
        return {"singles": 20, "cold": 3, "groups": 30, "flips": 20, "tried": 24}
    return {"singles": 40, "cold": 6, "groups": 30, "flips": 30, "tried": 30}


def frozen_row(name: str, data: ecbm.Dataset, quick: bool) -> dict[str, Any]:
    model = ecbm.train(data, ecbm.Recipe(backbone="linear"))
    editor = ecbm.Editor(model, data)
    asked, draw = Influence(editor), np.random.default_rng(11)
    train = data.split("train")
    sizes, started = sizes_of(data, quick), time.process_time()
    row: dict[str, Any] = {"data": name, "samples": len(train), "concepts": len(data.layout.concepts), **sizes}
    target, one = asked.target("val"), asked.target(data.split("test").ids[0])
    changes, row["seconds, all samples on val"] = timed(lambda: asked.sample_changes(target))
    own, row["seconds, all samples on one prediction"] = timed(lambda: asked.sample_changes(one))
    chosen = draw.choice(len(train), sizes["singles"], replace=False)
    edits = [ecbm.Edit(remove_samples=[train.ids[i]]) for i in chosen]
    solved, spent = timed(lambda: [editor.apply(edit, "exact").model for edit in edits])
    row["seconds, one exact solve"] = spent / len(solved)
    row["leave one out, val"] = rank_correlation(changes[chosen], [measured(m, target, model) for m in solved])
    truth = [measured(m, one, model) for m in solved]
    row["leave one out, one prediction"] = rank_correlation(own[chosen], truth)
    count = sizes["cold"]
    cold = [measured(ecbm.train(edit.apply_to(data), model.recipe), one, model) for edit in edits[:count]]
    row["exact query against training from nothing"] = rank_correlation(truth[:count], cold)
    row["largest difference of the two"] = float(np.abs(np.subtract(truth[:count], cold)).max())
    row |= set_figures(asked, target, one, [draw.choice(len(train), size_of_set(train), replace=False)
                                            for _ in range(sizes["groups"])])  # fmt: skip
    labels = asked.label_changes(target)
    known = (~labels.isnan()).nonzero()
    places = known[torch.from_numpy(draw.choice(len(known), sizes["flips"], replace=False))]
    concepts, flipped = data.layout.concepts, asked._flips[0].labels
    truth = []
    for i, j in places.tolist():
        value = concepts[j].value_of(flipped[i, list(concepts[j].columns)].tolist())
        edit = ecbm.Edit(correct_concepts=[(train.ids[i], concepts[j].name, value)])
        truth.append(actual_change(editor, target, edit))
    row["label flipped, val"] = rank_correlation(labels[places[:, 0], places[:, 1]], truth)
    classes = asked.target("val", "class")
    predicted, row["seconds, all concepts"] = timed(lambda: asked.concept_changes(classes).numpy())
    tried = np.sort(draw.permutation(len(concepts))[: sizes["tried"]])
    truth, spent = timed(
        lambda: [
            actual_change(editor, classes, ecbm.Edit(remove_concepts=[concepts[place].name])) for place in tried
        ]
    )
    row["seconds, one concept removed"] = spent / len(tried)
    row["concept removed, class loss on val"] = rank_correlation(predicted[tried], truth)
    top = [set(np.argsort(-np.abs(np.asarray(values)))[:10].tolist()) for values in (predicted[tried], truth)]
    row["ten most important of those concepts found"] = len(top[0] & top[1])
    row["seconds in all"] = time.process_time() - started
    return row


def size_of_set(train: ecbm.Dataset) -> int:
    return max(5, round(0.02 * len(train)))


def set_figures(asked: Influence, target: Any, one: Any, members: list[np.ndarray]) -> dict[str, Any]:
    """Sets left out together, on two targets: both predictions against both heads solved again."""
    editor, model = asked.editor, asked.editor.model
    train = editor.state.train
    sets = [[train.ids[i] for i in rows] for rows in members]
    solved, exactly = timed(lambda: [editor.apply(ecbm.Edit(remove_samples=ids), "exact").model for ids in sets])
    stepped, newton = timed(lambda: [step_without(asked.heads, ids) for ids in sets])
    found: dict[str, Any] = {"samples of a set": len(sets[0])}
    for words, aim in (("val", target), ("one prediction", one)):
        truth = [measured(m, aim, model) for m in solved]
        (single,) = asked.sensitivities(aim)
        first = [single.of_group(torch.tensor(rows)) for rows in members]
        found[f"set left out, {words}: sum of influences"] = rank_correlation(first, truth)
        steps = [measured(m, aim, model) for m in stepped]
        found[f"set left out, {words}: Newton steps"] = rank_correlation(steps, truth)
    return found | {
        "seconds, one set by Newton steps": newton / len(sets),
        "seconds, one set solved": exactly / len(sets),
    }


# -- a deep backbone -------------------------------------------------------------------------------------------


def losses(model: ecbm.ConceptBottleneck, part: ecbm.Dataset) -> np.ndarray:
    """(m,) mean loss of a concept label plus loss of the class, of every sample."""
    logits = model.concept_logits(part)
    with torch.no_grad():
        outputs = model.label_head(model.bottleneck_from(logits))
    concepts = torch.nn.functional.binary_cross_entropy_with_logits(
        logits, part.concepts.double(), reduction="none"
    ).mean(1)
    return (concepts + torch.nn.functional.cross_entropy(outputs, part.labels, reduction="none")).numpy()


def retrained(
    data: ecbm.Dataset, recipe: ecbm.Recipe, queries: ecbm.Dataset, halves: int, seeds: int, draw: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Which samples each half has, and the queries' losses after training on it: (halves, seeds, queries)."""
    train = [row for row, split in enumerate(data.splits) if split == "train"]
    rest = [row for row, split in enumerate(data.splits) if split != "train"]
    kept = np.zeros((halves, len(train)), dtype=bool)
    found = np.zeros((halves, seeds, len(queries)))
    for half in range(halves):
        kept[half, draw.choice(len(train), len(train) // 2, replace=False)] = True
        part = data.select([train[i] for i in np.flatnonzero(kept[half])] + rest)
        for seed in range(seeds):
            model = ecbm.train(part, recipe.replace(seed=1 + seed + seeds * half))
            found[half, seed] = losses(model, queries)
    return kept, found


def kept_or_made(
    path: Path | None, make: Callable[[], tuple[np.ndarray, np.ndarray]]
) -> tuple[np.ndarray, np.ndarray]:
    """Retrainings from a file of an earlier run; they take longest by far."""
    if path is not None and path.exists():
        held = np.load(path)
        return held["kept"], held["found"]
    kept, found = make()
    if path is not None:
        np.savez(path, kept=kept, found=found)
    return kept, found


def deep_rows(quick: bool, store: Path | None) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    samples, halves, seeds, asked_for = (300, 6, 1, 10) if quick else (1000, 40, 3, 60)
    data = ecbm.datasets.birds(n=samples, seed=0, size=32)
    recipe = ecbm.Recipe(backbone="convnet", epochs=8, patience=None, seed=0)
    queries = data.split("test").select(range(asked_for))
    (kept, found), spent = timed(
        lambda: kept_or_made(
            store, lambda: retrained(data, recipe, queries, halves, seeds, np.random.default_rng(5))
        )
    )
    truth = found.mean(1)
    folder = Path(tempfile.mkdtemp())
    model = ecbm.train(data, recipe, trajectory=folder)
    rows = []

    def add(name: str, scores: np.ndarray, seconds: float) -> None:
        predicted = (~kept) @ scores.T  # a half's loss is that of all samples and what leaving the others out adds
        each = [rank_correlation(predicted[:, q], truth[:, q]) for q in range(len(queries))]
        error = float(np.std(each) / np.sqrt(len(each)))
        rows.append({"method": name, "lds": float(np.mean(each)), "standard_error": error, "seconds": seconds})

    def ours(method: str) -> np.ndarray:
        epochs = folder if method == "trajectory" else None
        asked = Influence(ecbm.Editor(model, data), method=method, trajectory=epochs)
        return np.stack([asked.sample_changes(asked.target(one)).numpy() for one in queries.ids])

    for method in ("trajectory", "heads", "ekfac"):
        add(f"ecbm, {method}", *timed(lambda method=method: ours(method)))
    add("kronfluence, ekfac", *timed(lambda: kronfluence_scores(model, data.split("train"), queries)))
    facts = {"halves": halves, "seeds": seeds, "queries": len(queries), "retraining_seconds": spent}
    if seeds > 1:
        # Two means over half of the seeds agree with each other this well: the noise of training itself.
        first, second = found[:, : seeds // 2].mean(1), found[:, seeds // 2 :].mean(1)
        agree = [rank_correlation(first[:, q], second[:, q]) for q in range(len(queries))]
        facts["agreement_of_retrainings"] = float(np.mean(agree))
    method = Influence(ecbm.Editor(model, data), trajectory=folder).method
    default, peer = next(row for row in rows if row["method"] == f"ecbm, {method}"), rows[-1]
    shutil.rmtree(folder)
    facts["default"] = default["method"]
    facts["lds_above_kronfluence"] = default["lds"] - peer["lds"]
    facts["seconds_over_kronfluence"] = default["seconds"] / peer["seconds"]
    return rows, facts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--part", choices=["frozen", "deep", "all"], default="all")
    parser.add_argument("--data", nargs="+", choices=DATA, default=list(DATA), help="of the frozen part")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--retrainings", type=Path, help="a file (.npz) that keeps retrainings for the next run")
    options = parser.parse_args()
    silence()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    result: dict[str, Any] = {}
    if options.part in ("frozen", "all"):
        result["frozen"] = []
        for name, data in frozen_data(options.data, options.quick).items():
            row = frozen_row(name, data, options.quick)
            result["frozen"].append(row)
            for key, value in row.items():
                print(f"{key}: {value:.4g}" if isinstance(value, float) else f"{key}: {value}")
            print(flush=True)
    if options.part in ("deep", "all"):
        rows, facts = deep_rows(options.quick, options.retrainings)
        result["deep"] = {"rows": rows, **facts}
        for row in rows:
            print(f"{row['method']:24} LDS {row['lds']:.3f} ± {row['standard_error']:.3f}   {row['seconds']:.1f} s")
        print(*(f"{key}: {value}" for key, value in facts.items()), sep="\n")
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
