"""``ecbm demo``: train on drawn birds, evaluate, correct one concept by hand, and write a page about it."""

from __future__ import annotations

import dataclasses
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from ecbm.errors import InputError
from ecbm.read.birds import birds
from ecbm.read.dataset import Dataset
from ecbm.show.page import Badge, Card, ConceptBar, Page
from ecbm.show.pictures import terminal_row
from ecbm.train.model import ConceptBottleneck
from ecbm.train.recipe import Recipe
from ecbm.train.train import train
from ecbm.verify.evaluate import evaluate
from ecbm.verify.interventions import POLICIES, intervention_curve
from ecbm.verify.leakage import concept_leakage

__all__ = ["run_demo"]

_SAMPLES, _EPOCHS, _GALLERY = 2400, 8, 8
_POLICY_NAMES = {
    "random": "random group",
    "uncertain": "most uncertain group",
    "expected_change": "largest expected change",
}


@dataclasses.dataclass(frozen=True)
class Correction:
    """A test picture that is classified wrongly until one concept group is set to the truth."""

    row: int
    group: str
    before: Tensor
    after: Tensor


def _article(name: str) -> str:
    return "an" if name[:1].lower() in set("aeiou") else "a"


def find_correction(model: ConceptBottleneck, data: Dataset) -> Correction | None:
    """The correction of a single group that turns a wrong class into the right one most clearly."""
    logits = model.concept_logits(data.inputs)
    before = model.classify(logits)
    wrong = (before.argmax(1) != data.labels).nonzero().flatten()
    best: tuple[float, Correction] | None = None
    for group, members in model.groups.items():
        truth = {name: data.concepts[wrong, data.concept_index(name)] for name in members}
        after = model.intervene_on_logits(logits[wrong], truth)
        for position, row in enumerate(wrong.tolist()):
            label = int(data.labels[row])
            gain = float(after[position, label] - before[row, label])
            repaired = int(after[position].argmax()) == label
            if repaired and (best is None or gain > best[0]):
                best = gain, Correction(row, group, before[row], after[position])
    return best[1] if best else None


def _bars(
    data: Dataset, row: int, probabilities: Tensor, group: tuple[str, ...] = (), corrected: bool = False
) -> list[ConceptBar]:
    """The concepts that matter in a picture: present ones, mistaken ones, and all of ``group``."""
    bars = []
    for column, name in enumerate(data.concept_names):
        truth, p = float(data.concepts[row, column]), float(probabilities[column])
        if name in group and corrected:
            bars.append(ConceptBar(name, truth, truth, corrected=True))
        elif name in group or truth >= 0.5 or (p >= 0.5) != (truth >= 0.5):
            bars.append(ConceptBar(name, p, truth))
    return bars


def _classes(data: Dataset, row: int, probabilities: Tensor, count: int = 3) -> list[ConceptBar]:
    top = probabilities.argsort(descending=True)[:count].tolist()
    return [ConceptBar(data.class_names[i], float(probabilities[i]), i == int(data.labels[row])) for i in top]


def _correction_cards(model: ConceptBottleneck, data: Dataset, found: Correction) -> tuple[Card, Card]:
    picture, row = data.inputs.raw([found.row])[0], found.row
    probabilities = model.concept_probabilities(data.inputs.take([row]))[0]
    members = model.groups[found.group]
    cards = []
    for classes, caption, badges in (
        (found.before, "as predicted", [Badge("wrong", "bad")]),
        (found.after, f"after setting {found.group}", [Badge("right", "good"), Badge("corrected", "accent")]),
    ):
        bars = _bars(data, row, probabilities, members, corrected=classes is found.after)
        name = data.class_names[int(classes.argmax())]
        cards.append(Card(picture, name, caption, bars, _classes(data, row, classes), badges))
    return cards[0], cards[1]


def build_page(
    model: ConceptBottleneck, data: Dataset, metrics: dict[str, Any], found: Correction | None, seconds: float
) -> Page:
    """The demo's page."""
    test = data.split("test")
    page = Page(
        "A concept bottleneck on drawn birds",
        "The model names what it sees, then decides from the names alone. A person can follow it, and correct it.",
    )
    page.metrics(
        {
            "Class accuracy": (metrics["class_accuracy"], f"{len(test)} test pictures"),
            "Concept accuracy": (metrics["concept_accuracy"], f"{len(data.concept_names)} concepts"),
            "Concept AUC": (metrics["concept_auc"], "mean over concepts"),
            "Calibration error": (metrics["ece"], "of class confidence"),
            "Training": (f"{seconds:.0f} s", f"{data.split_sizes['train']} pictures, CPU"),
        }
    )
    if found is not None:
        label = test.class_names[int(test.labels[found.row])]
        page.section(
            "One correction changes the answer",
            f"This {label} is misread. Setting {found.group} to what the picture shows is enough: the class is "
            "computed again from the corrected concepts.",
        )
        page.before_after(*_correction_cards(model, test, found), f"{found.group} set to its true value")
    page.section("What the model sees", "Test pictures with the concepts that are present or mistaken.")
    probabilities, classes = model.concept_probabilities(test.inputs), model.class_probabilities(test.inputs)
    cards = []
    for species in range(min(_GALLERY, len(test.class_names))):
        row = int((test.labels == species).nonzero()[0])
        predicted = int(classes[row].argmax())
        right = predicted == species
        badge = (
            Badge("right", "good")
            if right
            else Badge(f"is {_article(test.class_names[species])} {test.class_names[species]}", "bad")
        )
        caption = f"{float(classes[row, predicted]):.0%} sure"
        bars = _bars(test, row, probabilities[row])
        cards.append(Card(test.inputs.raw([row])[0], test.class_names[predicted], caption, bars, badges=[badge]))
    page.gallery(cards)
    page.section(
        "Correcting by hand",
        "Class accuracy on the test split when a person corrects one concept group after another.",
    )
    curves = {
        _POLICY_NAMES[policy]: list(enumerate(intervention_curve(model, test, policy))) for policy in POLICIES
    }
    page.line_chart(curves, "concept groups corrected", "class accuracy", "Intervention curve", percent=True)
    leakage = concept_leakage(model, data)
    page.text(
        f"Leakage check: a label head on the true concepts reaches {leakage.from_true_concepts:.1%}; adding the "
        f"model's bottleneck to them changes that by {leakage.leakage:+.1%} "
        f"(95 % interval {leakage.interval[0]:+.1%} to {leakage.interval[1]:+.1%})."
    )
    page.section("Every concept", "On the test split; labels that are missing would be left out.")
    rows = [
        [name, f"{m['accuracy']:.3f}", f"{m['f1']:.3f}", f"{m['auc']:.3f}", f"{m['ece']:.3f}"]
        for name, m in metrics["per_concept"].items()
    ]
    page.table(["concept", "accuracy", "F1", "AUC", "calibration error"], rows)
    page.section("Do it yourself")
    page.code(
        "import ecbm\n\n"
        "data  = ecbm.datasets.birds(n=2400, seed=0)\n"
        "model = ecbm.train(data)\n"
        'test  = data.split("test")\n'
        "ecbm.evaluate(model, test)\n"
        'model.intervene(test.x[:1], {"wing_color": "blue"})'
    )
    return page


def _metrics_table(metrics: dict[str, Any]) -> Table:
    table = Table(title="On the test split", title_justify="left")
    table.add_column("metric")
    table.add_column("value", justify="right")
    names = {
        "class_accuracy": "class accuracy", "class_f1": "class F1 (macro)", "concept_accuracy": "concept accuracy",
        "concept_f1": "concept F1", "concept_auc": "concept AUC", "ece": "calibration error",
    }  # fmt: skip
    for key, name in names.items():
        table.add_row(name, f"{metrics[key]:.3f}")
    return table


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
    console.print(f"[bold]2[/bold] Training a concept bottleneck ({epochs} epochs, then both heads exactly)")
    model = train(data, Recipe(backbone="convnet", epochs=epochs, seed=seed))
    training = model.provenance.training
    test = data.split("test")
    metrics = evaluate(model, test)
    console.print(_metrics_table(metrics))
    console.print(
        f"heads solved to gradient norms {training['concept_gradient_norm']:.0e} (concepts) and "
        f"{training['label_gradient_norm']:.0e} (classes) in {training['seconds']:.0f} s of training"
    )
    console.print("[bold]3[/bold] Correcting a concept by hand")
    found = find_correction(model, test)
    result: dict[str, Any] = {key: value for key, value in metrics.items() if key != "per_concept"}
    if found is not None:
        names = [test.class_names[int(p.argmax())] for p in (found.before, found.after)]
        if console.is_terminal:
            rows = [found.row, *torch.arange(3).tolist()]
            console.print(terminal_row(list(test.inputs.raw(rows)), [test.ids[row] for row in rows]))
        console.print(
            f"  {test.ids[found.row]} was taken for {_article(names[0])} [red]{names[0]}[/red] "
            f"({float(found.before.max()):.0%}); with [bold]{found.group}[/bold] set to the truth it is "
            f"{_article(names[1])} [green]{names[1]}[/green] "
            f"({float(found.after.max()):.0%})"
        )
        result["intervention"] = {
            "id": test.ids[found.row],
            "group": found.group,
            "before": names[0],
            "after": names[1],
        }
    page = build_page(model, data, metrics, found, training["seconds"])
    path = page.write(folder / "index.html")
    result |= {"page": str(path), "seconds": time.monotonic() - started}
    console.print(f"[bold]4[/bold] The page is at [bold]{path}[/bold] ({result['seconds']:.0f} s in all)")
    return result
