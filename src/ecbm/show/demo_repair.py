"""The demo's story: one of two annotators is careless, the model learns it, and an edit repairs the model."""

from __future__ import annotations

import dataclasses
import statistics
import time

import torch
from rich.console import Console
from torch import Tensor

from ecbm.edit.alignment import align
from ecbm.edit.edit import Edit
from ecbm.edit.editor import Editor, EditResult
from ecbm.read.dataset import Dataset
from ecbm.show.tables import print_table
from ecbm.train.model import ConceptBottleneck
from ecbm.train.recipe import Recipe
from ecbm.train.train import train
from ecbm.verify.evaluate import evaluate
from ecbm.verify.fidelity import affordable_steps, closure, fine_tuned, more_training, recovery

__all__ = [
    "HEADERS", "OURS", "OVERLOOKED", "QUICK", "Repair", "Row", "careless", "print_repair", "run_repair",
    "table_cells", "under_two_seeds",
]  # fmt: skip

OVERLOOKED = ("crest=yes", "eye_ring=yes", "wing_bar=yes", "mask=yes", "breast_pattern=streaked")
_RATES = (0.1, 0.3)
_BUDGETS = (0.05, 0.1)
QUICK, OURS = (f"ecbm, {budget:.0%} budget" for budget in _BUDGETS)


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the comparison: figures on the test split and what it cost."""

    name: str
    concept_accuracy: float
    class_accuracy: float
    recovery: float | None
    closure: float | None
    seconds: float
    speed_up: float | None


@dataclasses.dataclass(frozen=True)
class Repair:
    """The model that learnt from careless labels, the edited one, and how all ways to repair it compare."""

    before: Dataset
    edit: Edit
    original: ConceptBottleneck
    result: EditResult
    rows: list[Row]
    noise_floor: float | None
    kept_seconds: float


def careless(data: Dataset, seed: int) -> Dataset:
    """Half of the training pictures labelled by someone who records five small marks as absent."""
    train_rows = [row for row, split in enumerate(data.splits) if split == "train"]
    order = torch.randperm(len(train_rows), generator=torch.Generator().manual_seed(seed)).tolist()
    rows = torch.tensor([train_rows[i] for i in order[: len(order) // 2]])
    columns = torch.tensor([data.concept_index(name) for name in OVERLOOKED])
    concepts = data.concepts.clone()
    concepts[rows[:, None], columns[None, :]] = 0.0
    return data.replace(concepts=concepts)


def under_two_seeds(recipe: Recipe) -> tuple[Recipe, Recipe]:
    """The recipe, and the same under the next seed; the first one follows the last."""
    return recipe, recipe.replace(seed=(recipe.seed + 1) % 2**63)


def run_repair(data: Dataset, recipe: Recipe, console: Console) -> Repair:
    """Train on careless labels, repair the model in every way, and compare with retraining under two seeds."""
    before = careless(data, recipe.seed)
    edit = Edit.between(before, data)
    console.print(
        f"  one of two annotators overlooks {', '.join(OVERLOOKED)}: {len(edit.correct_concepts)} wrong labels"
    )
    original = train(before, recipe)
    console.print("[bold]3[/bold] Repairing it: " + str(edit))
    test = data.split("test")
    editor = Editor(original, before)
    models: dict[str, tuple[list[ConceptBottleneck], float]] = {"no-op": ([original], 0.0)}
    # Features and curvature are fitted once and kept for later edits: "edit" is the time without that.
    result = editor.apply(edit, "exact")
    models["heads only"] = [result.model], result.report["seconds"]["edit"]
    for budget in _BUDGETS:
        result = editor.apply(edit, budget=budget)
        models[f"ecbm, {budget:.0%} budget"] = [result.model], result.report["seconds"]["edit"]
    # Before the curvature of the EK-FAC step is fitted, which only that step needs.
    kept = sum(editor.state.seconds.values())
    for name, options in (("one EK-FAC step", {}), ("the same, as written", {"damping": 0.1, "guarded": False})):
        step = editor.apply(edit, "ekfac", **options)
        models[name] = [step.model], step.report["seconds"]["edit"]
    alignment = align(original, before, edit, data)
    started = time.monotonic()
    trained_on = more_training(editor, alignment, _BUDGETS[-1])
    if trained_on is not None:
        models["old labels + heads"] = [trained_on], time.monotonic() - started
    for name, exact_heads in (("fine-tuning", False), ("fine-tuning + heads", True)):
        # As much work as ours, and never so little that its closing solves leave it no gradient step.
        steps = max(affordable_steps(alignment, _BUDGETS[-1], exact_heads=exact_heads), 1)
        started = time.monotonic()
        rates = [rate * recipe.peak_learning_rate for rate in _RATES]
        tuned = [fine_tuned(editor, alignment, steps, rate, exact_heads=exact_heads) for rate in rates]
        seconds = (time.monotonic() - started) / len(rates)
        models[name] = [model for model in tuned if model is not None], seconds
    console.print("[bold]4[/bold] Retraining twice, to compare")
    started = time.monotonic()
    retrained = [train(data, one) for one in under_two_seeds(recipe)]
    cost = (time.monotonic() - started) / 2
    models["retraining"] = retrained, cost
    return Repair(before, edit, original, result, *_compare(models, original, retrained, test, cost), kept)


def _compare(
    models: dict[str, tuple[list[ConceptBottleneck], float]],
    original: ConceptBottleneck,
    retrained: list[ConceptBottleneck],
    test: Dataset,
    cost: float,
) -> tuple[list[Row], float | None]:
    probabilities: list[Tensor] = [model.concept_probabilities(test.inputs) for model in retrained]
    target = torch.stack(probabilities).mean(0)
    start = original.concept_probabilities(test.inputs)
    floor = closure(probabilities[0], start, probabilities[1])
    accuracy = {id(m): evaluate(m, test) for found, _ in models.values() for m in found}
    reached = statistics.fmean(accuracy[id(m)]["concept_accuracy"] for m in retrained)
    base = accuracy[id(original)]["concept_accuracy"]
    rows = []
    for name, (found, seconds) in models.items():
        # Where several learning rates were tried the best counts, which is more than a user would know to do.
        best = max(found, key=lambda m: accuracy[id(m)]["concept_accuracy"]) if name != "retraining" else found[0]
        figures = [accuracy[id(m)] for m in (found if name == "retraining" else [best])]
        concept = statistics.fmean(f["concept_accuracy"] for f in figures)
        rows.append(
            Row(
                name,
                concept,
                statistics.fmean(f["class_accuracy"] for f in figures),
                recovery(concept, base, reached),
                floor if name == "retraining" else _closure(best, test, start, target),
                seconds,
                cost / seconds if seconds else None,
            )
        )
    return rows, floor


def _closure(model: ConceptBottleneck, test: Dataset, start: Tensor, target: Tensor) -> float | None:
    return closure(model.concept_probabilities(test.inputs), start, target)


def table_cells(rows: list[Row]) -> list[list[str]]:
    """The comparison as text, one list a row."""

    def text(value: float | None, form: str) -> str:
        return "–" if value is None else format(value, form)

    return [
        [
            row.name,
            f"{row.concept_accuracy:.3f}",
            text(row.recovery, ".0%"),
            text(row.closure, ".2f"),
            f"{row.class_accuracy:.3f}",
            f"{row.seconds:.2f} s" if row.seconds else "–",
            text(row.speed_up, ".0f") + ("×" if row.speed_up else ""),
        ]
        for row in rows
    ]


HEADERS = ["what is done", "concepts", "recovered", "closure", "classes", "time", "faster"]


def print_repair(repair: Repair, console: Console) -> None:
    """The comparison for a terminal."""
    drop = ("classes", "closure", "faster", "time")
    print_table(HEADERS, table_cells(repair.rows), title="On the test split", drop=drop, console=console)
