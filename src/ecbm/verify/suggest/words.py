"""What was found, in sentences: why a label is suspicious, and which patterns there are."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ecbm.verify.suggest.annotators import Habit
from ecbm.verify.suggest.checks import Check
from ecbm.verify.suggest.classes import ClassFindings
from ecbm.verify.suggest.evidence import Records
from ecbm.verify.suggest.finding import Findings
from ecbm.verify.suggest.mixture import Carelessness
from ecbm.verify.suggest.plateaus import Plateau
from ecbm.verify.suggest.swaps import Swap

__all__ = [
    "careless_words", "check_words", "class_reasons", "habit_words", "listed", "part_words", "plateau_words",
    "reasons", "swap_words",
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
    findings: Findings, records: Records, row: int, concept: int, names: Sequence[str], class_names: Sequence[str]
) -> list[str]:
    """Why this label is suspicious, the strongest reason first."""
    recorded = bool(records.labels[row, concept] > 0.5)
    opposite, share_of = ("absent", "lack it") if recorded else ("present", "have it")
    evidence = findings.evidence

    def against(p: float) -> float:
        return 1 - p if recorded else p

    found = [_pattern(findings, row, concept)]
    head = against(float(evidence.head.probabilities[row, concept]))
    second = against(float(findings.present[row, concept]))
    if head > 0.5:
        found.append(f"without this sample the model is {_percent(head)} sure that it is {opposite}")
    if second > 0.5 and second > head:
        found.append(f"its class and its other labels make it {_percent(second)} sure that it is {opposite}")
    near = evidence.nearest[row]
    known = records.weights[near, concept] > 0
    differ = int(((records.best[near, concept] > 0.5) != recorded)[known].sum())
    if 2 * differ > int(known.sum()):
        found.append(f"{differ} of its {int(known.sum())} nearest neighbours {share_of}")
    share = against(float(evidence.within_class[row, concept]))
    if share > 0.5:
        found.append(f"{_percent(share)} of {class_names[int(records.classes[row])]} {share_of}")
    found = [text for text in found if text]
    return found or [f"answers about labels like it say that {names[concept]} is often wrong here"]


def _pattern(findings: Findings, row: int, concept: int) -> str:
    for pattern in findings.patterns.careless:
        if concept in pattern.concepts.tolist():
            member = float(pattern.members[row])
            if member > 0.5:
                word = "overlooked" if pattern.overlooks else "invented"
                return f"labelled by somebody who {word} it ({_percent(member)} likely)"
    for swap in findings.patterns.swaps:
        if concept in swap.concepts.tolist() and float(swap.chances[row]) > 0.5:
            return f"exchanged with another concept ({_percent(float(swap.chances[row]))} likely)"
    for plateau in findings.patterns.plateaus:
        if concept == plateau.concept and bool(findings.wrong[row, concept] > 0.25):
            word = "overlooked" if plateau.overlooks else "invented"
            return f"{word} in {part_words(plateau.rate)} of the clear cases"
    flips = findings.patterns.down if float(findings.patterns.down[row, concept]) > 0 else findings.patterns.up
    if findings.patterns.habits and float(flips[row, concept]) > 0:
        word = "overlooks" if flips is findings.patterns.down else "invents"
        return f"its annotator {word} this concept in {_percent(float(flips[row, concept]))} of the cases"
    return ""


def class_reasons(found: ClassFindings, records: Records, row: int, class_names: Sequence[str]) -> list[str]:
    """Why a class label is suspicious."""
    own, other = int(records.classes[row]), int(found.proposed[row])
    p = found.probabilities[row]
    return [
        f"features and concepts of this sample look like {class_names[other]} ({_percent(float(p[other]))}), not "
        f"{class_names[own]} ({_percent(float(p[own]))}), to a model that did not see it"
    ]
