"""What kind of thing each concept is, and which columns of the concept matrix it owns.

| type | columns | values |
|---|---|---|
| binary | its own | 0..1 |
| categorical | ``colour::red``, ``colour::blue``, …: one a value | a distribution: one-hot or soft |
| ordinal | ``severity::>=1``, …, ``severity::>=m``: one a threshold | cumulative: none is above the one before |
| continuous | its own | any finite number, in the concept's unit |

What works by column (weights of a head, removed and added columns, missing labels) works for all of them. A
concept's labels are missing together.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any

import torch
from torch import Tensor

from ecbm.errors import InputError, unknown_name
from ecbm.read.truth import truth_value

__all__ = [
    "TYPES",
    "Concept",
    "ConceptLayout",
    "check_concept_values",
    "concept_groups",
    "concept_of",
    "layout_of",
    "plain_layout",
]

TYPES = ("binary", "categorical", "ordinal", "continuous")
_THRESHOLD = re.compile(r">=\s*(-?\d+)")
# Percentages with three digits, as people type distributions, sum to 1 within this.
_SUM_TOLERANCE = 2e-3
_ORDER_TOLERANCE = 1e-6


def concept_groups(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Groups found from concept names: ``group=value`` or ``group::value``; any other name is its own group.

    Examples
    --------
    >>> concept_groups(["wing=blue", "wing=red", "crest"])
    {'wing': ('wing=blue', 'wing=red'), 'crest': ('crest',)}
    """
    groups: dict[str, list[str]] = {}
    for name in names:
        for separator in ("::", "="):
            head, found, value = name.partition(separator)
            if found and head and value:
                groups.setdefault(head, []).append(name)
                break
        else:
            groups.setdefault(name, []).append(name)
    return {group: tuple(members) for group, members in groups.items()}


def value_in(group: str, column: str) -> str:
    """The value that a column of a group stands for: ``blue`` of ``colour::blue``."""
    rest = column[len(group) :]
    return rest[2:] if rest.startswith("::") else rest[1:]


@dataclasses.dataclass(frozen=True)
class Concept:
    """One concept: its name, its type, the columns it owns, and what they stand for.

    ``values`` are the names of a categorical concept's values, in the order of its columns, or the grades of an
    ordinal one as text, lowest first (one more than it has columns); empty otherwise.
    """

    name: str
    type: str
    columns: tuple[int, ...]
    values: tuple[str, ...] = ()
    unit: str = ""

    @property
    def lowest(self) -> int:
        """The lowest grade of an ordinal concept."""
        return int(self.values[0])

    def labels_of(self, value: Any, where: str = "") -> tuple[float, ...]:
        """The labels of its columns that stand for a value: a name, a grade, a number, or ``None`` for missing.

        Yes and no, as words, are values of a binary concept.

        Examples
        --------
        >>> colour = Concept("colour", "categorical", (0, 1), ("red", "blue"))
        >>> colour.labels_of("blue")
        (0.0, 1.0)
        >>> Concept("severity", "ordinal", (0, 1, 2), ("0", "1", "2", "3")).labels_of(2)
        (1.0, 1.0, 0.0)
        >>> Concept("crest", "binary", (0,)).labels_of("yes")
        (1.0,)
        """
        place = where or f"concept {self.name!r}"
        if value is None or (isinstance(value, float) and value != value):
            return (float("nan"),) * len(self.columns)
        if self.type == "categorical":
            if not isinstance(value, str):
                raise InputError(
                    f"{place}: {self.name!r} is categorical: give one of its values by name, such as "
                    f"{self.values[0]!r}, got {value!r}"
                )
            if value not in self.values:
                raise unknown_name(f"value of {self.name!r}", value, self.values, where)
            return tuple(float(value == own) for own in self.values)
        truth = truth_value(value) if self.type == "binary" and isinstance(value, str) else None
        number = _number(value, place) if truth is None else truth
        if self.type == "ordinal":
            grade = number - self.lowest
            if grade != round(grade) or not 0 <= grade <= len(self.columns):
                raise InputError(
                    f"{place}: {value!r} is no grade of {self.name!r}; its grades are {self.values[0]} to "
                    f"{self.values[-1]}"
                )
            return tuple(float(grade >= step) for step in range(1, len(self.columns) + 1))
        if self.type == "continuous":
            if not abs(number) < float("inf"):
                raise InputError(f"{place}: {value!r} is not finite; use None for missing")
            return (number,)
        if not 0 <= number <= 1:
            raise InputError(f"{place}: {number:g} is not in [0, 1]; use None for missing")
        return (number,)

    def value_of(self, labels: Sequence[float]) -> str | float | None:
        """The value that labels of its columns say: the likeliest name, the grade, or the number."""
        if any(label != label for label in labels):
            return None
        if self.type == "categorical":
            return self.values[max(range(len(labels)), key=lambda place: labels[place])]
        if self.type == "ordinal":
            return float(self.lowest + sum(label >= 0.5 for label in labels))
        return float(labels[0])

    def said(self, value: str | float | None) -> str:
        """A value of this concept in words: ``blue``, ``grade 2``, ``12.5 mm``."""
        if value is None:
            return "missing"
        if isinstance(value, str):
            return value
        if self.type == "ordinal":
            return f"grade {value:g}"
        return f"{value:g} {self.unit}".strip() if self.type == "continuous" else f"{value:g}"


def _number(value: Any, place: str) -> float:
    if isinstance(value, str):
        try:
            return float(value.removeprefix(">="))
        except ValueError:
            raise InputError(f"{place}: {value!r} is not a number") from None
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{place}: {value!r} is not a number; use None for missing")
    return float(value)


@dataclasses.dataclass(frozen=True)
class ConceptLayout:
    """The concepts in the order of their first columns, and the number of columns of all of them."""

    concepts: tuple[Concept, ...]
    width: int

    @cached_property
    def plain(self) -> bool:
        """Whether every concept is binary."""
        return all(concept.type == "binary" for concept in self.concepts)

    @cached_property
    def types(self) -> dict[str, str]:
        """From concepts to types."""
        return {concept.name: concept.type for concept in self.concepts}

    @cached_property
    def declared(self) -> dict[str, str]:
        """The types that are not binary."""
        return {concept.name: concept.type for concept in self.concepts if concept.type != "binary"}

    @cached_property
    def units(self) -> dict[str, str]:
        """The units that were given."""
        return {concept.name: concept.unit for concept in self.concepts if concept.unit}

    @cached_property
    def by_name(self) -> dict[str, Concept]:
        return {concept.name: concept for concept in self.concepts}

    @cached_property
    def owner(self) -> tuple[int, ...]:
        """The number of the concept that each column belongs to."""
        found = [0] * self.width
        for number, concept in enumerate(self.concepts):
            for column in concept.columns:
                found[column] = number
        return tuple(found)

    def said(self, values: Sequence[float]) -> tuple[str, ...]:
        """One sample's concepts in words, from the values of its columns; absent and missing ones are left out."""
        words = []
        for concept in self.concepts:
            own = concept.value_of([values[column] for column in concept.columns])
            if concept.type == "binary":
                words += [concept.name] if isinstance(own, float) and own >= 0.5 else []
            elif own is not None:
                short = f"{own:g}" if concept.type == "ordinal" and isinstance(own, float) else concept.said(own)
                words.append(f"{concept.name}={short}")
        return tuple(words)

    def of_type(self, *types: str) -> tuple[Concept, ...]:
        """The concepts of some types."""
        return tuple(concept for concept in self.concepts if concept.type in types)

    @cached_property
    def softmax(self) -> tuple[Tensor, ...]:
        """Columns of each categorical concept."""
        return tuple(torch.tensor(concept.columns) for concept in self.of_type("categorical"))

    @cached_property
    def tied(self) -> tuple[Tensor, ...]:
        """Columns of each ordinal concept, lowest threshold first."""
        return tuple(torch.tensor(concept.columns) for concept in self.of_type("ordinal"))

    @cached_property
    def squared(self) -> Tensor:
        """Columns of the continuous concepts."""
        columns = [concept.columns[0] for concept in self.of_type("continuous")]
        return torch.tensor(columns, dtype=torch.long)

    @cached_property
    def binary(self) -> Tensor:
        """Columns of the binary concepts."""
        columns = [concept.columns[0] for concept in self.of_type("binary")]
        return torch.tensor(columns, dtype=torch.long)

    @cached_property
    def bernoulli(self) -> Tensor:
        """Columns that are yes or no: binary concepts, and thresholds of ordinal ones."""
        columns = [column for concept in self.of_type("binary", "ordinal") for column in concept.columns]
        return torch.tensor(sorted(columns), dtype=torch.long)

    @cached_property
    def places(self) -> Tensor:
        """Where each column stands when :attr:`bernoulli`, :attr:`softmax` and :attr:`squared` stand in a row."""
        return torch.cat([self.bernoulli, *self.softmax, self.squared]).argsort()

    def closed(self, columns: Tensor) -> Tensor:
        """Some columns and every other one of the same concepts, in order."""
        if self.plain or not len(columns):
            return columns
        wanted = {self.owner[column] for column in columns.tolist()}
        return torch.tensor([column for column in range(self.width) if self.owner[column] in wanted])

    def select(self, columns: Tensor) -> ConceptLayout:
        """The layout of some columns, which must be all of their concepts', in that order."""
        places = columns.tolist()
        if self.plain and len(places) == self.width:
            return self
        place = {column: number for number, column in enumerate(places)}
        concepts = [
            dataclasses.replace(concept, columns=tuple(place[column] for column in concept.columns))
            for concept in self.concepts
            if concept.columns[0] in place
        ]
        return ConceptLayout(tuple(sorted(concepts, key=lambda concept: concept.columns[0])), len(places))


@lru_cache(maxsize=8)
def plain_layout(names: tuple[str, ...]) -> ConceptLayout:
    """Every column a binary concept."""
    return ConceptLayout(tuple(Concept(name, "binary", (column,)) for column, name in enumerate(names)), len(names))


def concept_of(column: str, types: Collection[str]) -> str:
    """The concept that a column belongs to, where ``types`` names the concepts that may have several columns.

    Examples
    --------
    >>> concept_of("severity::>=2", {"severity": "ordinal"}), concept_of("wing=blue", {})
    ('severity', 'wing=blue')
    """
    (group,) = concept_groups([column])
    return group if group in types else column


def layout_of(
    names: Sequence[str], types: Mapping[str, str] | None = None, units: Mapping[str, str] | None = None
) -> ConceptLayout:
    """The layout of columns, from the types of some concepts; the others are binary.

    Parameters
    ----------
    names
        Names of the columns.
    types
        From concepts to types. A categorical or ordinal concept is named by its group.
    units
        From continuous concepts to units, for display.

    Examples
    --------
    >>> layout = layout_of(["size", "colour::red", "colour::blue"], {"colour": "categorical", "size": "continuous"})
    >>> layout.types
    {'size': 'continuous', 'colour': 'categorical'}
    """
    names = tuple(names)
    if not types and not units:
        return plain_layout(names)
    groups, place = concept_groups(names), {name: column for column, name in enumerate(names)}
    kinds = dict(types or {})
    concepts: dict[int, Concept] = {}
    taken: set[str] = set()
    for name, kind in kinds.items():
        if kind not in TYPES:
            raise unknown_name("type", kind, TYPES, f"concept_types: {name!r}")
        if kind == "binary":
            if name not in place and name not in groups:
                raise unknown_name("concept", name, [*groups, *names], "concept_types")
            continue
        if kind == "continuous":
            if name not in place:
                raise unknown_name("concept", name, names, "concept_types")
            made = Concept(name, kind, (place[name],), unit=str((units or {}).get(name, "")))
        else:
            members = groups.get(name, ())
            if members in ((), (name,)):
                raise InputError(
                    f"concept_types: {name!r} is {kind}, so its columns are called {_example(name, kind)}; "
                    + (f"there is one column {name!r}" if name in place else "there are none")
                )
            made = _grouped(name, kind, members, place)
        concepts[made.columns[0]] = made
        taken |= {names[column] for column in made.columns}
    for name in units or {}:
        if kinds.get(name) != "continuous":
            raise InputError(f"units: {name!r} is no continuous concept; units are for those")
    for column, name in enumerate(names):
        if name not in taken:
            concepts[column] = Concept(name, "binary", (column,))
    return ConceptLayout(tuple(concepts[column] for column in sorted(concepts)), len(names))


def _example(name: str, kind: str) -> str:
    ends = ("red", "blue") if kind == "categorical" else (">=1", ">=2")
    return ", ".join(f"'{name}::{end}'" for end in ends)


def _grouped(name: str, kind: str, members: Sequence[str], place: Mapping[str, int]) -> Concept:
    values = tuple(value_in(name, member) for member in members)
    columns = tuple(place[member] for member in members)
    if kind == "categorical":
        if len(members) < 2:
            raise InputError(f"concept_types: categorical {name!r} has one value only; it needs two or more")
        return Concept(name, kind, columns, values)
    grades = grades_of(values)
    if grades is None:
        raise InputError(
            f"concept_types: ordinal {name!r} needs columns {_example(name, kind)}, … with one threshold after the "
            f"other, got {', '.join(map(repr, members))}"
        )
    return Concept(name, kind, columns, grades)


def grades_of(values: Sequence[str]) -> tuple[str, ...] | None:
    """The grades, lowest first, that thresholds ``>=1``, ``>=2``, … stand between; ``None`` if these are others.

    Examples
    --------
    >>> grades_of([">=1", ">=2"])
    ('0', '1', '2')
    """
    found = [_THRESHOLD.fullmatch(value) for value in values]
    numbers = [int(match[1]) for match in found if match is not None]
    if not numbers or len(numbers) < len(values):
        return None
    first, last = numbers[0], numbers[-1]
    if numbers != list(range(first, last + 1)):
        return None
    return tuple(str(grade) for grade in range(first - 1, last + 1))


def check_concept_values(layout: ConceptLayout, concepts: Tensor, names: Sequence[str], ids: Sequence[str]) -> None:
    """Refuse labels that their concept's type does not allow, with the first row where that is so."""

    def refuse(rows: Tensor, column: int, what: str) -> None:
        if bool(rows.any()):
            row = int(rows.nonzero()[0])
            value = concepts[row, column].item()
            raise InputError(
                f"row {row + 1} (id {ids[row]!r}), column {names[column]!r}: {value:g} {what}; "
                "leave missing labels empty (NaN)"
            )

    outside = (concepts < 0) | (concepts > 1)  # a missing label (NaN) is neither
    if len(layout.squared):
        outside[:, layout.squared] = False
        for column in layout.squared.tolist():
            refuse(concepts[:, column].isinf(), column, "is not finite")
    if bool(outside.any()):
        first = outside.nonzero()[0]
        refuse(outside[:, first[1]], int(first[1]), "is not in [0, 1]")
    for concept in layout.of_type("categorical", "ordinal"):
        part = concepts[:, list(concept.columns)]
        missing = part.isnan()
        torn = missing.any(1) & ~missing.all(1)
        refuse(torn, concept.columns[0], f"in part of {concept.name!r} only: its columns are missing together")
        known = torch.where(missing, 0.0, part)
        if concept.type == "categorical":
            off = ((known.double().sum(1) - 1).abs() > _SUM_TOLERANCE) & ~missing[:, 0]
            if bool(off.any()):
                row = int(off.nonzero()[0])
                raise InputError(
                    f"row {row + 1} (id {ids[row]!r}): the values of categorical {concept.name!r} sum to "
                    f"{float(known[row].sum()):g}, not to 1; leave them all empty where it is missing"
                )
        else:
            rises = (known[:, 1:] > known[:, :-1] + _ORDER_TOLERANCE) & ~missing[:, :1]
            if bool(rises.any()):
                row, step = rises.nonzero()[0].tolist()
                raise InputError(
                    f"row {row + 1} (id {ids[row]!r}): ordinal {concept.name!r} says "
                    f"{names[concept.columns[step + 1]]!r} but not {names[concept.columns[step]]!r}; a grade "
                    "reaches every threshold below it"
                )
