"""What was found, in sentences: why a label is suspicious, and which patterns there are."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ecbm.read.concept_types import Concept
from ecbm.verify.suggest.annotators import Habit
from ecbm.verify.suggest.checks import Check
from ecbm.verify.suggest.effects import FlipEffects
from ecbm.verify.suggest.evidence import Records
from ecbm.verify.suggest.finding import Findings
from ecbm.verify.suggest.mixture import Carelessness
from ecbm.verify.suggest.plateaus import Plateau
from ecbm.verify.suggest.swaps import Swap
from ecbm.verify.suggest.values import ValueFindings

__all__ = [
    "careless_words", "check_words", "class_reasons", "habit_words", "listed", "number_reasons", "part_words",
    "plateau_words", "reasons", "swap_words", "value_reasons",
]  # fmt: skip

_FRACTIONS = (
    (1 / 4, "a quarter"),
    (1 / 3, "a third"),
    (1 / 2, "half"),
    (2 / 3, "two thirds"),
    (3 / 4, "three quarters"),
)


def listed(names: Sequence[str]) -> str:
    """Names in a row, the last one after "and"."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def part_words(share: float) -> str:
    """A share in words.

    Examples
    --------
    >>> part_words(0.49), part_words(0.12)
    ('about half', 'about 12 %')
    """
    for value, words in _FRACTIONS:
        if abs(share - value) <= 0.03:
            return f"about {words}"
    return f"about {share:.0%}".replace("%", " %")


def _percent(share: float) -> str:
    if 0.995 <= share < 1:
        return "over 99 %"
    if 0 < share < 0.005:
        return "under 1 %"
    return f"{share:.0%}".replace("%", " %")


def careless_words(pattern: Carelessness, share: float, names: Sequence[str]) -> str:
    """A careless annotator of a ``share`` of the samples, as a sentence."""
    concepts = listed([names[j] for j in pattern.concepts.tolist()])
    rate = float(pattern.rates.mean())
    if pattern.overlooks:
        habit = "never records" if rate > 0.9 else f"leaves out, {_percent(rate)} of the time,"
        return f"{part_words(share)} of the samples were labelled by somebody who {habit} {concepts}"
    habit = "always records" if rate > 0.9 else f"records where they are absent, {_percent(rate)} of the time,"
    return f"{part_words(share)} of the samples were labelled by somebody who {habit} {concepts}"


def plateau_words(plateau: Plateau, names: Sequence[str]) -> str:
    """One concept that is often left out or invented, as a sentence."""
    has, word = ("have", "absent") if plateau.overlooks else ("lack", "present")
    part = part_words(plateau.rate)
    return f"{part} of the samples that clearly {has} {names[plateau.concept]} have it recorded as {word}"


def swap_words(swap: Swap, share: float, names: Sequence[str]) -> str:
    """Two concepts exchanged in a ``share`` of the samples, as a sentence."""
    one, other = (names[j] for j in swap.concepts.tolist())
    return f"in {part_words(share)} of the samples {one} and {other} were exchanged"


def habit_words(
    habit: Habit, names: Sequence[str], annotators: Sequence[str], records: Records, present: Tensor
) -> str:
    """A known annotator's habit, compared with the others on samples that are clear."""
    assert records.annotators is not None
    j, recorded = habit.concept, records.labels[:, habit.concept] > 0.5
    clear = (present[:, j] > 0.8) if habit.overlooks else (present[:, j] < 0.2)
    clear = clear & (records.weights[:, j] > 0)
    off = ~recorded if habit.overlooks else recorded
    mine = clear & (records.annotators == habit.annotator)
    theirs = clear & (records.annotators != habit.annotator)
    own = float(off[mine].double().mean()) if bool(mine.any()) else habit.rate
    word = "absent" if habit.overlooks else "present"
    other = float(off[theirs].double().mean()) if bool(theirs.any()) else 0.0
    start = f"{annotators[habit.annotator]} records {names[j]} as {word}"
    if other > 0.005:
        compared = f"{_percent(own)} of clear cases against {_percent(other)}"
        return f"{start} {own / other:.0f} × as often as the others ({compared})"
    return f"{start} in {_percent(own)} of the cases in which the others do not"


def check_words(check: Check, records: Records, names: Sequence[str], class_names: Sequence[str]) -> str:
    """Why one label of a cell should be looked at."""
    word = "present" if float(records.labels[check.row, check.concept]) > 0.5 else "absent"
    return (
        f"{names[check.concept]} is recorded as {word} in {check.size} samples of "
        f"{class_names[int(records.classes[check.row])]}, and nobody has looked at one; a model that never saw the "
        f"class would say otherwise in {_percent(check.doubt)} of them"
    )


def reasons(
    findings: Findings,
    records: Records,
    rows: Tensor,
    concept: int,
    names: Sequence[str],
    class_names: Sequence[str],
    effects: FlipEffects,
) -> list[tuple[str, ...]]:
    """Why each of these labels of one concept is suspicious, the strongest reason first."""
    recorded = records.labels[rows, concept] > 0.5
    evidence = findings.evidence

    def against(p: Tensor) -> list[float]:
        return torch.where(recorded, 1 - p, p).tolist()

    head, second = against(evidence.head.probabilities[rows, concept]), against(findings.present[rows, concept])
    near = evidence.nearest[rows]
    known = records.weights[near, concept] > 0
    differ = (((records.best[near, concept] > 0.5) != recorded[:, None]) & known).sum(1).tolist()
    count, share = known.sum(1).tolist(), against(evidence.within_class[rows, concept])
    changes = [0.0] * len(rows) if effects.changes is None else effects.changes.tolist()
    ranks, classes = effects.ranks.tolist(), records.classes[rows].tolist()
    patterns = _patterns(findings, rows, concept, names)
    found = []
    for place, present in enumerate(recorded.tolist()):
        opposite, have = ("absent", "lack it") if present else ("present", "have it")
        texts = [patterns[place]] if patterns[place] else []
        if head[place] > 0.5:
            texts.append(f"without this sample the model is {_percent(head[place])} sure that it is {opposite}")
        if second[place] > 0.5 and second[place] > head[place]:
            text = f"its class and its other labels make it {_percent(second[place])} sure that it is {opposite}"
            texts.append(text)
        if 2 * differ[place] > count[place]:
            texts.append(f"{differ[place]} of its {count[place]} nearest neighbours {have}")
        if share[place] > 0.5:
            texts.append(f"{_percent(share[place])} of {class_names[classes[place]]} {have}")
        if changes[place] < 0:
            texts.append(f"turning it round should lower the concept's validation loss (by {-changes[place]:.1e})")
        if ranks[place] > 0.99:
            texts.append("few labels of this concept pull the model so much towards themselves (top 1 %)")
        found.append(
            tuple(texts or [f"answers about labels like it say that {names[concept]} is often wrong here"])
        )
    return found


def _patterns(findings: Findings, rows: Tensor, concept: int, names: Sequence[str]) -> list[str]:
    """The pattern that explains each of these labels, if one does."""
    patterns = findings.patterns
    for pattern in patterns.careless:
        if concept in pattern.concepts.tolist():
            word = "overlooked" if pattern.overlooks else "invented"
            members = pattern.members[rows].tolist()
            return [
                f"labelled by somebody who {word} it ({_percent(m)} likely)" if m > 0.5 else "" for m in members
            ]
    for swap in patterns.swaps:
        if concept in swap.concepts.tolist():
            other = names[next(j for j in swap.concepts.tolist() if j != concept)]
            chances = swap.chances[rows].tolist()
            return [f"exchanged with {other} ({_percent(c)} likely)" if c > 0.5 else "" for c in chances]
    for plateau in patterns.plateaus:
        if concept == plateau.concept:
            word = "overlooked" if plateau.overlooks else "invented"
            likely = (findings.wrong[rows, concept] > 0.25).tolist()
            return [f"{word} in {part_words(plateau.rate)} of the clear cases" if is_so else "" for is_so in likely]
    if not patterns.habits:
        return [""] * len(rows)
    found = []
    for down, up in zip(patterns.down[rows, concept].tolist(), patterns.up[rows, concept].tolist(), strict=True):
        word, rate = ("overlooks", down) if down > 0 else ("invents", up)
        found.append(f"its annotator {word} this concept in {_percent(rate)} of the cases" if rate > 0 else "")
    return found


def class_reasons(found: ValueFindings, records: Records, row: int, class_names: Sequence[str]) -> tuple[str, ...]:
    """Why a class label is suspicious."""
    own, other = int(records.classes[row]), int(found.proposed[row])
    p = found.probabilities[row]
    return (
        f"features and concepts of this sample look like {class_names[other]} ({_percent(float(p[other]))}), not "
        f"{class_names[own]} ({_percent(float(p[own]))}), to a model that did not see it",
    )


def value_reasons(
    found: ValueFindings, concept: Concept, records: Records, nearest: Tensor, row: int, recorded: int
) -> tuple[str, ...]:
    """Why a category or a grade is suspicious."""
    other, p = int(found.proposed[row]), found.probabilities[row]
    said = [concept.said(float(v) if concept.type == "ordinal" else v) for v in concept.values]
    texts = [
        f"without this label, features, class and other labels of the sample say {said[other]} "
        f"({_percent(float(p[other]))}) and not {said[recorded]} ({_percent(float(p[recorded]))})"
    ]
    if concept.type == "categorical":
        near, column = nearest[row], concept.columns[other]
        known = records.weights[near, column] > 0
        same = int(((records.best[near, column] > 0.5) & known).sum())
        if 2 * same > int(known.sum()):
            texts.append(f"{same} of its {int(known.sum())} nearest neighbours are {said[other]}")
    return tuple(texts)


def number_reasons(value: float, expected: float, scale: float, unit: str) -> tuple[str, ...]:
    """Why a number is suspicious."""
    after = f" {unit}" if unit else ""
    return (
        f"features, class and other labels of the sample let expect {expected:.4g}{after}, and right values lie "
        f"within about {scale:.2g}{after}; {value:.4g} is {abs(value - expected) / max(scale, 1e-12):.1f} times "
        "that away",
        "the proposed value is an estimate: measure again where that is possible",
    )
