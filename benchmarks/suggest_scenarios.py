"""Ways in which concept labels go wrong: one function a scenario, over arrays, for the benchmark of suggestions.

Each takes clean labels (n, k), classes (n,) and a generator, and returns spoilt labels; what differs are the
errors. Concepts that an annotator gets wrong are drawn from those that 5 to 95 % of the samples have: one that
nobody has cannot be overlooked. They come from different groups (``wing=blue`` and ``wing=red`` are one group)
where there are enough of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from ecbm.read.dataset import concept_groups

Labels = NDArray[np.float64]
Scenario = Callable[[Labels, NDArray[np.int64], Sequence[str], np.random.Generator], Labels]


def _drawn(labels: Labels, names: Sequence[str], count: int, random: np.random.Generator) -> NDArray[np.int64]:
    share = labels.mean(0)
    usable = {names[j]: j for j in np.flatnonzero((share > 0.05) & (share < 0.95))}
    groups = [[usable[n] for n in members if n in usable] for members in concept_groups(names).values()]
    groups = [members for members in groups if members]
    first = [int(random.choice(members)) for members in groups]
    chosen = [first[g] for g in random.permutation(len(first))[:count]]
    rest = [j for j in usable.values() if j not in chosen]
    while len(chosen) < count and rest:
        chosen.append(rest.pop(int(random.integers(len(rest)))))
    return np.asarray(chosen)


def _share(n: int, share: float, random: np.random.Generator) -> NDArray[np.int64]:
    return np.sort(random.permutation(n)[: round(share * n)])


def at_random(rate: float) -> Scenario:
    """Every label is flipped with the same chance."""

    def spoil(labels: Labels, classes: object, names: Sequence[str], random: np.random.Generator) -> Labels:
        return np.where(random.random(labels.shape) < rate, 1 - labels, labels)

    return spoil


def overlook(labels: Labels, classes: object, names: Sequence[str], random: np.random.Generator) -> Labels:
    """One of two annotators records five concepts as absent."""
    spoilt = labels.copy()
    spoilt[np.ix_(_share(len(labels), 0.5, random), _drawn(labels, names, 5, random))] = 0.0
    return spoilt


def overlook_one(labels: Labels, classes: object, names: Sequence[str], random: np.random.Generator) -> Labels:
    """One of two annotators records one concept as absent."""
    spoilt = labels.copy()
    spoilt[np.ix_(_share(len(labels), 0.5, random), _drawn(labels, names, 1, random))] = 0.0
    return spoilt


def invent(labels: Labels, classes: object, names: Sequence[str], random: np.random.Generator) -> Labels:
    """One of two annotators records two concepts as present."""
    spoilt = labels.copy()
    spoilt[np.ix_(_share(len(labels), 0.5, random), _drawn(labels, names, 2, random))] = 1.0
    return spoilt


def swap(labels: Labels, classes: object, names: Sequence[str], random: np.random.Generator) -> Labels:
    """Two concepts are exchanged in 30 % of the samples."""
    rows, (one, other) = _share(len(labels), 0.3, random), _drawn(labels, names, 2, random)
    spoilt = labels.copy()
    spoilt[rows, one], spoilt[rows, other] = labels[rows, other], labels[rows, one]
    return spoilt


def mix(labels: Labels, classes: NDArray[np.int64], names: Sequence[str], random: np.random.Generator) -> Labels:
    """``overlook``, and 2 % of all labels flipped at random."""
    return at_random(0.02)(overlook(labels, classes, names, random), classes, names, random)


def one_class(share: float) -> Scenario:
    """In one class one concept is flipped, in all of its samples or in some."""

    def spoil(
        labels: Labels, classes: NDArray[np.int64], names: Sequence[str], random: np.random.Generator
    ) -> Labels:
        concept = _drawn(labels, names, 1, random)[0]
        members = np.flatnonzero(classes == random.choice(np.unique(classes)))
        rows = members[_share(len(members), share, random)]
        spoilt = labels.copy()
        spoilt[rows, concept] = 1 - labels[rows, concept]
        return spoilt

    return spoil


SCENARIOS: dict[str, Scenario] = {
    "clean": at_random(0.0),
    "1 % random": at_random(0.01),
    "5 % random": at_random(0.05),
    "20 % random": at_random(0.2),
    "overlook": overlook,
    "overlook one": overlook_one,
    "invent": invent,
    "swap": swap,
    "mix": mix,
    "one class": one_class(1.0),
    "half a class": one_class(0.5),
}
