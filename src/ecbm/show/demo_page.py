"""The demo's page: what the model sees, the repair, and a correction by hand."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ecbm.read.dataset import Dataset
from ecbm.show.demo_repair import HEADERS, OURS, OVERLOOKED, QUICK, Repair, Row, table_cells
from ecbm.show.page import Badge, Card, ConceptBar, Page
from ecbm.train.model import ConceptBottleneck
from ecbm.verify.interventions import POLICIES, intervention_curve
from ecbm.verify.leakage import concept_leakage

__all__ = ["Correction", "build_page", "find_correction", "headline", "story"]

_GALLERY = 8
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


def _repaired_cards(repair: Repair, test: Dataset, count: int) -> list[tuple[Card, Card, str]]:
    """Test pictures with marks that the unedited model overlooked and the edited one sees, clearest first."""
    before = repair.original.concept_probabilities(test.inputs)
    after = repair.result.model.concept_probabilities(test.inputs)
    columns = [test.concept_index(name) for name in OVERLOOKED]
    present = test.concepts[:, columns] >= 0.5
    repaired = present & (before[:, columns] < 0.5) & (after[:, columns] >= 0.5)
    gain = ((after - before)[:, columns] * repaired).sum(1)
    pairs = []
    for row in gain.argsort(descending=True)[:count].tolist():
        names = [OVERLOOKED[j] for j in repaired[row].nonzero().flatten().tolist()]
        if not names:
            break
        picture, title = test.inputs.raw([row])[0], test.class_names[int(test.labels[row])]
        group = tuple(OVERLOOKED)
        left = Card(picture, title, "learnt from careless labels", _bars(test, row, before[row], group))
        right = Card(
            picture,
            title,
            "after the edit",
            _bars(test, row, after[row], group),
            badges=[Badge("repaired", "good")],
        )
        pairs.append((left, right, f"{len(names)} mark{'' if len(names) == 1 else 's'} seen again"))
    return pairs


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.0%}"


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"


def _tuned(rows: Mapping[str, Row]) -> float | None:
    """What the better kind of fine-tuning recovers in the time of the larger budget."""
    found = [
        row.recovery for name, row in rows.items() if name.startswith("fine-tuning") and row.recovery is not None
    ]
    return max(found) if found else None


def headline(rows: Mapping[str, Row]) -> Row:
    """The quickest edit that recovers what the default one does: the best figure, and one of the table's own."""
    default = rows[QUICK]
    if default.recovery is None:
        return default
    alike = [
        row
        for row in (rows["heads only"], default)
        if row.recovery is not None and row.recovery >= default.recovery - 0.005
    ]
    return min(alike, key=lambda row: row.seconds)


def story(rows: Mapping[str, Row]) -> str:
    """The page in two sentences: what the quickest edit recovers, beside its controls."""
    quick, ours, again = headline(rows), rows[OURS], rows["retraining"]
    start = "One of two annotators overlooked small marks, and the model learnt it. "
    if quick.recovery is None or ours.recovery is None:
        return start + "Retraining gains too little here to say how much of it an edit brings back."
    return start + (
        f"An edit of {_time(quick.seconds)} brings back {_share(quick.recovery)} of what retraining gains in "
        f"{_time(again.seconds)}. Given {_time(ours.seconds)} it brings back {_share(ours.recovery)}; fine-tuning "
        f"for as long, {_share(_tuned(rows))}."
    )


def _tiles(rows: Mapping[str, Row], repair: Repair) -> dict[str, tuple[str, str]]:
    quick, ours, before, again = headline(rows), rows[OURS], rows["no-op"], rows["retraining"]
    samples = len({sample for sample, _, _ in repair.edit.correct_concepts})
    return {
        f"Repaired in {_time(quick.seconds)}": (
            _share(quick.recovery),
            f"of retraining's gain, {quick.speed_up or 0:.0f}× faster",
        ),
        f"Repaired in {_time(ours.seconds)}": (
            _share(ours.recovery),
            f"fine-tuning as long: {_share(_tuned(rows))}",
        ),
        "Concept accuracy": (
            f"{ours.concept_accuracy:.3f}",
            f"was {before.concept_accuracy:.3f}; retrained {again.concept_accuracy:.3f}",
        ),
        "Class accuracy": (
            f"{ours.class_accuracy:.3f}",
            f"was {before.class_accuracy:.3f}; retrained {again.class_accuracy:.3f}",
        ),
        "Labels corrected": (f"{len(repair.edit.correct_concepts):,}", f"in {samples:,} training pictures"),
    }


def build_page(repair: Repair, data: Dataset, metrics: dict[str, Any], found: Correction | None) -> Page:
    """The demo's page."""
    model, test = repair.result.model, data.split("test")
    by_name = {row.name: row for row in repair.rows}
    ours = by_name[OURS]
    page = Page("Repairing a concept bottleneck model", story(by_name))
    page.metrics(_tiles(by_name, repair))
    page.section(
        "Concepts that were repaired",
        "Test pictures: what the model saw after training on careless labels, and what it sees after the edit.",
    )
    for cards_left, cards_right, words in _repaired_cards(repair, test, 2):
        page.before_after(cards_left, cards_right, words)
    page.section(
        "Every way to repair it, side by side",
        "Accuracy of concepts and classes on the test split. Recovered: the share of retraining's gain in concept "
        "accuracy. Closure: how much of the way to the retrained predictions; "
        f"a second retraining reaches {repair.noise_floor or 0:.2f}. Times are of the edit alone; what is computed "
        f"once and kept for every later edit took {repair.kept_seconds:.1f} s.",
    )
    highlighted = [index for index, row in enumerate(repair.rows) if row is ours]
    page.table(HEADERS, table_cells(repair.rows), highlight=highlighted)
    why = repair.result.report["settings"]["why"]
    page.text(
        "Fine-tuning is given the work of the larger budget and the better of two learning rates. "
        f"What ecbm did: {why}."
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
    page.section(
        "Every concept", "On the test split; labels that are missing would be left out. ECE: calibration error."
    )
    rows = [
        [name, f"{m['accuracy']:.3f}", f"{m['f1']:.3f}", f"{m['auc']:.3f}", f"{m['ece']:.3f}"]
        for name, m in metrics["per_concept"].items()
    ]
    page.table(["concept", "accuracy", "F1", "AUC", "ECE"], rows)
    page.section("Do it yourself")
    page.code(
        "import ecbm\n\n"
        "data   = ecbm.datasets.birds(n=2400, seed=0)\n"
        "model  = ecbm.train(data)\n"
        "edit   = ecbm.Edit(correct_concepts=[(data.ids[0], 'crest=yes', 1)])\n"
        "result = ecbm.Editor(model, data).apply(edit)\n"
        "print(result)\n"
        'model.intervene(data.split("test")[:1], {"wing_color": "blue"})'
    )
    return page
