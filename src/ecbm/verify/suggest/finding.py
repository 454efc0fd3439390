"""Which labels are probably wrong: evidence, patterns, second level and chances, over arrays.

The steps, each in a file of its own:

1. opinions about every label that do not know it (``evidence``);
2. patterns: people who overlook or invent several concepts (``mixture``) or leave whole groups empty
   (``omissions``), exchanged concepts (``swaps``), one concept on its own (``plateaus``), known annotators
   (``annotators``);
3. labels cleaned of the patterns; a second opinion that also reads the other labels of the sample (``evidence``);
4. the rate of random slips (``counting``) and the chance that each label is wrong (``rates``).

Concepts of several values and numbers are judged from the same evidence in ``values`` and ``numbers``.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from ecbm.progress import progress
from ecbm.verify.suggest import rates
from ecbm.verify.suggest.annotators import Habit, find_habits, flips_of
from ecbm.verify.suggest.counting import counted, slip_rate
from ecbm.verify.suggest.evidence import Evidence, Records, gather, second_level
from ecbm.verify.suggest.exclusive import find_lists, fit_choice
from ecbm.verify.suggest.logistic import OutOfFold
from ecbm.verify.suggest.mixture import Carelessness, find_careless, flip_chances, membership
from ecbm.verify.suggest.omissions import find_omissions, left_out, likely_values
from ecbm.verify.suggest.plateaus import Plateau, find_plateaus
from ecbm.verify.suggest.swaps import Swap, find_swaps, fit_swap, wrong_in_pair

__all__ = ["Findings", "Patterns", "find_patterns", "find_wrong"]

# Logits beyond this are sure; curves over them would be decided by a few.
_SURE = 9.0
_SURE_ALONE = 7.0


@dataclasses.dataclass(frozen=True)
class Patterns:
    """What was done wrong more than once, and what it means for every label.

    ``down`` and ``up`` (n, k): the chance that a pattern changed a label, seen without the label itself;
    ``cleaned`` (n, k): the labels as known now, moved by the chance that a pattern changed them; ``touched`` (k,):
    concepts in a pattern; ``lists``: columns of groups of which a sample has one value or none.
    """

    careless: tuple[Carelessness, ...]
    swaps: tuple[Swap, ...]
    plateaus: tuple[Plateau, ...]
    habits: tuple[Habit, ...]
    down: Tensor
    up: Tensor
    cleaned: Tensor
    touched: Tensor
    lists: tuple[Tensor, ...] = ()

    def parts(self) -> list[Tensor]:
        """The concepts of each pattern; habits and plateaus that share a concept are one."""
        single = sorted({h.concept for h in self.habits} | {p.concept for p in self.plateaus})
        return [
            *(pattern.concepts for pattern in self.careless),
            *(swap.concepts for swap in self.swaps),
            *(torch.tensor([concept]) for concept in single),
        ]


@dataclasses.dataclass(frozen=True)
class Findings:
    """For every label (n, k) the chance that it is wrong, and what that rests on.

    ``alike`` is false where labels of samples that the features were learnt from are wrong much less often, or more
    often, than those of the others; the number of errors is then a lower bound.
    """

    wrong: Tensor
    present: Tensor
    slip_rate: float
    alike: bool
    patterns: Patterns
    evidence: Evidence
    second: OutOfFold


def find_patterns(records: Records, evidence: Evidence, groups: Tensor) -> Patterns:
    """Look for patterns in the labels, given opinions that know no other label of the sample."""
    labels, weights = records.labels, records.weights
    logits = evidence.alone.logits.clamp(-_SURE_ALONE, _SURE_ALONE)
    # What a person found is no opinion: a wrong label then tells of its annotator all the more.
    looked = ~records.truth.isnan()
    logits = torch.where(looked, _SURE_ALONE * (2 * records.truth - 1), logits)
    down, up, wrong = (torch.zeros_like(labels) for _ in range(3))
    touched = torch.zeros(labels.shape[1], dtype=torch.bool)
    habits: list[Habit] = []
    if records.annotators is not None:
        habits = find_habits(logits, labels, weights * records.on_its_own, records.annotators)
        down, up = flips_of(habits, records.annotators, (len(labels), labels.shape[1]))
        some = torch.tensor(sorted({habit.concept for habit in habits}), dtype=torch.long)
        part = logits[:, some], labels[:, some], weights[:, some]
        wrong[:, some] = _wrong_by_flips(*part, down[:, some], up[:, some])
        touched[some] = True
    careless = []
    whole = [some for some in _members(records, groups) if not bool(touched[some].any())]
    for pattern in find_omissions(logits, labels, weights, whole):
        some = pattern.concepts
        careless.append(pattern)
        down[:, some] = left_out(pattern, labels[:, some])
        wrong[:, some] = pattern.members[:, None] * likely_values(logits[:, some])
        touched[some] = True
    free = (records.on_its_own & ~touched).nonzero().flatten()
    for pattern in find_careless(logits[:, free], labels[:, free], weights[:, free]):
        some = free[pattern.concepts]
        careless.append(dataclasses.replace(pattern, concepts=some))
        part = logits[:, some], labels[:, some], weights[:, some]
        down[:, some], up[:, some] = flip_chances(pattern, membership(pattern, *part))
        wrong[:, some] = rates.chance_wrong(pattern.curve(part[0]), part[1], down[:, some], up[:, some])
        touched[some] = True
    swaps = []
    own = records.on_its_own.nonzero().flatten()
    for swap in find_swaps(logits[:, own], labels[:, own], weights[:, own], groups[own]):
        pair = own[swap.concepts]
        if not bool(touched[pair].any()):
            differ = labels[:, pair[0]] != labels[:, pair[1]]
            wrong[:, pair] = (swap.chances * differ)[:, None]
            touched[pair] = True
            swaps.append(dataclasses.replace(swap, concepts=pair))
    free = (records.on_its_own & ~touched).nonzero().flatten()
    plateaus = []
    for plateau in find_plateaus(logits[:, free], labels[:, free], weights[:, free], groups[free]):
        plateaus.append(dataclasses.replace(plateau, concept=int(free[plateau.concept])))
        (down if plateau.overlooks else up)[:, plateaus[-1].concept] = plateau.rate
    some = torch.tensor([plateau.concept for plateau in plateaus], dtype=torch.long)
    wrong[:, some] = _wrong_by_flips(logits[:, some], labels[:, some], weights[:, some], down[:, some], up[:, some])
    touched[some] = True
    cleaned = torch.where(looked, records.truth, (labels - wrong).abs())
    return Patterns(tuple(careless), tuple(swaps), tuple(plateaus), tuple(habits), down, up, cleaned, touched)


def _members(records: Records, groups: Tensor) -> list[Tensor]:
    """Columns of every group of at least two yes/no concepts."""
    found = [(records.on_its_own & (groups == group)).nonzero().flatten() for group in groups.unique().tolist()]
    return [columns for columns in found if len(columns) > 1]


def _wrong_by_flips(logits: Tensor, labels: Tensor, weights: Tensor, down: Tensor, up: Tensor) -> Tensor:
    """The chance that each label is wrong where the chances of a change are known."""
    return rates.chance_wrong(rates.fit_curves(logits, labels, weights, down, up)(logits), labels, down, up)


def _lists(records: Records, evidence: Evidence, patterns: Patterns, groups: Tensor) -> tuple[Tensor, ...]:
    """Groups of yes/no concepts that are lists; exchanged concepts are left to their pattern."""
    exchanged = torch.zeros_like(patterns.touched)
    for swap in patterns.swaps:
        exchanged[swap.concepts] = True
    some = [columns for columns in _members(records, groups) if not bool(exchanged[columns].any())]
    logits = evidence.alone.logits.clamp(-_SURE_ALONE, _SURE_ALONE)
    flips = patterns.down, patterns.up
    return tuple(find_lists(logits, records.labels, records.weights, *flips, some))


def _knowing_lists(records: Records, patterns: Patterns) -> Records:
    """The records, where columns of one list are no evidence for each other: lists are judged as a whole."""
    if not patterns.lists:
        return records
    own = torch.eye(records.labels.shape[1], dtype=torch.bool)
    alike = own if records.alike is None else records.alike.clone()
    for some in patterns.lists:
        alike[some[:, None], some] = True
    return dataclasses.replace(records, alike=alike)


def _present(records: Records, patterns: Patterns, logits: Tensor, rate: float) -> Tensor:
    """P(present) (n, k) by curves over logits; in a list also by its other labels."""
    labels, weights = records.labels, records.weights
    down, up = rates.with_slips(patterns.down, rate), rates.with_slips(patterns.up, rate)
    present = rates.fit_curves(logits, labels, weights, down, up)(logits)
    for some in patterns.lists:
        part = logits[:, some], labels[:, some], weights[:, some]
        choice = fit_choice(*part, patterns.down[:, some], patterns.up[:, some], rate)
        present[:, some] = choice.present(*part, down[:, some], up[:, some])
    return present


def _cleaned_alone(records: Records, evidence: Evidence, patterns: Patterns, rate: float) -> Tensor:
    """Labels cleaned of slips too, each by an opinion that no label of another group of the sample entered.

    The second level would clean better, but it has read the very label that the cleaned ones are to judge.
    """
    logits = evidence.alone.logits.clamp(-_SURE, _SURE)
    down, up = rates.with_slips(patterns.down, rate), rates.with_slips(patterns.up, rate)
    wrong = rates.chance_wrong(_present(records, patterns, logits, rate), records.labels, down, up)
    cleaned = torch.where(records.truth.isnan(), (records.labels - wrong).abs(), records.truth)
    # Columns of several values are judged together, elsewhere; one of them alone must not be moved.
    cleaned = torch.where(records.on_its_own, cleaned, records.best)
    return torch.where(patterns.touched, patterns.cleaned, cleaned)


def _straightened(records: Records, patterns: Patterns, logits: Tensor, targets: Tensor) -> Tensor:
    """The labels to predict, where exchanged ones are put right by the second level, which knows them better than
    opinions that no other label entered. As inputs they stay as they were: they have read the labels they judge.
    """
    targets = targets.clone()
    for swap in patterns.swaps:
        labels = records.best[:, swap.concepts]
        chances = fit_swap(logits[:, swap.concepts], labels, records.weights[:, swap.concepts]).chances
        targets[:, swap.concepts] = labels + chances[:, None] * (labels.flip(1) - labels)
    return targets


def find_wrong(records: Records, groups: Tensor) -> Findings:
    """The chance that each label is wrong.

    Parameters
    ----------
    records
        Samples with labels.
    groups
        (k,) the number of each concept's group.
    """
    with progress("looking for wrong labels", 5) as bar:
        evidence = gather(records)
        bar.advance()
        patterns = find_patterns(records, evidence, groups)
        patterns = dataclasses.replace(patterns, lists=_lists(records, evidence, patterns, groups))
        records = _knowing_lists(records, patterns)
        bar.advance()
        # The rate of slips is read off labels that nothing has cleaned; then the second opinion may know it.
        targets = torch.where(patterns.touched, patterns.cleaned, records.best)
        second = second_level(records, evidence, patterns.cleaned, targets)
        bar.advance()
        free = records.on_its_own & ~patterns.touched
        rate, alike = slip_rate(records, second.logits.clamp(-_SURE, _SURE), free, patterns.lists)
        cleaned = _cleaned_alone(records, evidence, patterns, rate)
        targets = _straightened(records, patterns, second.logits.clamp(-_SURE, _SURE), targets)
        second = second_level(records, evidence, cleaned, targets, like=second)
        bar.advance()
        present, wrong = _chances(records, patterns, second.logits.clamp(-_SURE, _SURE), rate)
        if not bool(records.held.all()):
            wrong, alike = counted(records, wrong, free, patterns.parts(), rate, alike)
        bar.advance()
    return Findings(wrong, present, rate, alike, patterns, evidence, second)


def _chances(records: Records, patterns: Patterns, logits: Tensor, rate: float) -> tuple[Tensor, Tensor]:
    """P(present) and P(wrong) of every label (n, k), from the second level's logits."""
    labels, weights = records.labels, records.weights
    present = _present(records, patterns, logits, rate)
    down, up = rates.with_slips(patterns.down, rate), rates.with_slips(patterns.up, rate)
    wrong = rates.chance_wrong(present, labels, down, up)
    for swap in patterns.swaps:
        pair = swap.concepts
        part = logits[:, pair], labels[:, pair], weights[:, pair]
        better = fit_swap(*part)
        present[:, pair] = better.curve(part[0])
        wrong[:, pair] = wrong_in_pair(present[:, pair], *part[1:], better.share, rate)
    return present, wrong * (weights > 0) * records.on_its_own
