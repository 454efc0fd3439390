"""Edits by name made edits by column: ``("id17", "colour", "blue")`` becomes a label for each column of ``colour``.

Without data only the form of a value can be checked; with data its concept's type says what it may be.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from ecbm.errors import InputError, unknown_name
from ecbm.read.concept_types import TYPES, Concept, concept_groups, layout_of
from ecbm.read.truth import truth_value

if TYPE_CHECKING:
    from ecbm.edit.edit import Edit
    from ecbm.read.dataset import Dataset

__all__ = ["given_value", "names_of_columns", "new_columns", "resolve"]

_SUM_TOLERANCE = 2e-3


def given_value(given: Any, where: str, name: str = "") -> float | str:
    """A concept value as it may be given: a number, a name, or NaN for missing (also written ``None``).

    A column that is named as one of a group (``colour::blue``) takes numbers in 0..1, or yes and no; what another
    concept takes only its type can tell.
    """
    strict = tuple(concept_groups([name])) != (name,)
    if given is None:
        return math.nan
    if isinstance(given, np.generic) or (isinstance(given, Tensor) and given.ndim == 0):
        given = given.item()
    if isinstance(given, str):
        truth = truth_value(given) if strict else None
        if truth is not None or not strict:
            return given if truth is None else truth
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise InputError(f"{where}: {given!r} is not a number in [0, 1]; use None for missing")
    number = float(given)
    if math.isinf(number) or (strict and not math.isnan(number) and not 0 <= number <= 1):
        raise InputError(f"{where}: {number:g} is not in [0, 1]; use None for missing")
    return number


def new_columns(
    given: Any, types: Mapping[str, str], units: Mapping[str, str]
) -> tuple[dict[str, dict[str, float]], dict[str, str]]:
    """New concepts ``{name: {id: value}}`` as columns, and the types of those that are not binary.

    Words other than yes and no make it categorical; a number outside 0..1 needs a type that allows it.
    """
    expected = "add_concepts: expected {name: {id: value}}"
    if not isinstance(given, Mapping):
        raise InputError(f"{expected}, got {given!r}")
    columns: dict[str, dict[str, float]] = {}
    kinds: dict[str, str] = {}
    for key, values in given.items():
        name = str(key)
        if not isinstance(values, Mapping):
            raise InputError(f"{expected}, got {values!r} for {key!r}")
        if not name:
            raise InputError("add_concepts: a concept needs a name, got ''")
        where = f"add_concepts: {name!r} of sample"
        read = {str(i): given_value(v, f"{where} {str(i)!r}", name) for i, v in values.items()}
        words = [value for value in read.values() if isinstance(value, str)]
        yes_or_no = all(truth_value(word) is not None for word in words)
        kind = types.get(name) or ("binary" if yes_or_no else "categorical")
        concept = _new_concept(name, kind, read)
        if kind != "binary":
            kinds[name] = kind
        labels = {i: concept.labels_of(v, f"{where} {i!r}") for i, v in sorted(read.items())}
        for place, column in enumerate(names_of_columns(concept)):
            columns[column] = {i: found[place] for i, found in labels.items()}
    for name, kind in types.items():
        if kind not in TYPES:
            raise unknown_name("type", kind, TYPES, f"concept_types: {name!r}")
        if kind != "binary":
            kinds[name] = kind
    for name in units:
        if kinds.get(name) != "continuous":
            raise InputError(f"units: {name!r} is no continuous concept; units are for those")
    return columns, kinds


def names_of_columns(concept: Concept) -> list[str]:
    """What the columns of a concept that is given by values are called."""
    if concept.type == "categorical":
        return [f"{concept.name}::{value}" for value in concept.values]
    if concept.type == "ordinal":
        return [f"{concept.name}::>={grade}" for grade in concept.values[1:]]
    return [concept.name]


def _new_concept(name: str, kind: str, values: Mapping[str, float | str]) -> Concept:
    """A concept with the values that occur; grades run from the lowest of them to the highest."""
    known = [value for value in values.values() if isinstance(value, str) or not math.isnan(value)]
    if kind == "categorical":
        words = sorted({str(value) for value in known})
        if len(words) < 2:
            raise InputError(f"add_concepts: categorical {name!r} needs two values or more, got {', '.join(words)}")
        return Concept(name, kind, tuple(range(len(words))), tuple(words))
    if kind == "ordinal":
        try:
            grades = sorted({float(value) for value in known})
        except ValueError:
            raise InputError(f"add_concepts: ordinal {name!r} needs grades that are whole numbers") from None
        if len(grades) < 2 or any(grade != round(grade) for grade in grades):
            raise InputError(f"add_concepts: ordinal {name!r} needs two or more grades that are whole numbers")
        steps = range(int(grades[0]), int(grades[-1]) + 1)
        return Concept(name, kind, tuple(range(len(steps) - 1)), tuple(map(str, steps)))
    return Concept(name, kind, (0,))


def resolve(edit: Edit, data: Dataset) -> Edit:
    """The edit by columns of ``data``; refused where a value is none that its concept can have."""
    from ecbm.edit.edit import Edit as EditValue

    layout = data.layout
    if data.predicts_number:
        edit = _with_plain_numbers(edit, data)
    if layout.plain and not edit.concept_types and all(_is_label(value) for _, _, value in edit.correct_concepts):
        return edit
    corrected, removed = _corrections(edit, data), _removed(edit, data)
    columns = {*(column for _, column, _ in corrected), *removed}
    named = {layout.owner[data.concept_index(column)] for column in columns}
    types = {layout.concepts[place].name: layout.concepts[place].type for place in named}
    types = {name: kind for name, kind in types.items() if kind != "binary"} | dict(edit.concept_types)
    _check_new(edit, data, removed)
    return EditValue(
        corrected,
        edit.correct_labels,
        removed,
        edit.add_concepts,
        edit.remove_samples,
        edit.add_samples,
        types,
        edit.units,
    )


def _with_plain_numbers(edit: Edit, data: Dataset) -> Edit:
    """The edit with labels written as numbers are stored: ``12.50`` and ``12.5`` are the same label."""
    labels = [
        (sample, str(data.label_from(label, f"correct_labels: sample {sample!r}")))
        for sample, label in edit.correct_labels
    ]
    if tuple(labels) == edit.correct_labels:
        return edit
    other = copy.copy(edit)
    object.__setattr__(other, "correct_labels", tuple(labels))
    return other


def _corrections(edit: Edit, data: Dataset) -> list[tuple[str, str, float]]:
    layout = data.layout
    found: list[tuple[str, str, float]] = []
    partly: dict[tuple[str, str], dict[str, float]] = {}
    for sample, name, value in edit.correct_concepts:
        where = f"correct_concepts: concept {name!r} of sample {sample!r}"
        concept = layout.by_name.get(name)
        if concept is not None:
            labels = concept.labels_of(value, where)
            found += [(sample, data.concept_names[c], v) for c, v in zip(concept.columns, labels, strict=True)]
            continue
        if name not in data.concept_names:
            if name in data.groups:
                raise InputError(
                    f"{where}: {name!r} is a group of separate yes/no concepts; correct one of "
                    f"{', '.join(map(repr, data.groups[name][:3]))}"
                )
            raise unknown_name("concept", name, [*data.concept_names, *layout.declared])
        owner = layout.concepts[layout.owner[data.concept_index(name)]]
        partly.setdefault((sample, owner.name), {})[name] = _label(value, where)
    for (sample, owner_name), given in partly.items():
        found += _completed(data, sample, layout.by_name[owner_name], given)
    return found


def _is_label(value: float | str) -> bool:
    return not isinstance(value, str) and (math.isnan(value) or 0 <= value <= 1)


def _label(value: float | str, where: str) -> float:
    if isinstance(value, str):
        raise InputError(f"{where}: {value!r} is not a number in [0, 1]; use None for missing")
    return value


def _completed(
    data: Dataset, sample: str, concept: Concept, given: Mapping[str, float]
) -> list[tuple[str, str, float]]:
    """Labels for all columns of a categorical or ordinal concept, from those of some of them."""
    names = [data.concept_names[column] for column in concept.columns]
    present = data.concepts[data.row(sample), list(concept.columns)].tolist()
    whole = [given.get(name, old) for name, old in zip(names, present, strict=True)]
    if all(math.isnan(value) for value in given.values()):
        whole = [math.nan] * len(names)
    elif not _possible(concept, whole):
        ones = [place for place, name in enumerate(names) if given.get(name) == 1]
        if concept.type != "categorical" or len(ones) != 1 or any(v not in (0, 1) for v in given.values()):
            example = concept.values[-1] if concept.type == "ordinal" else repr(concept.values[0])
            raise InputError(
                f"correct_concepts: {', '.join(map(repr, given))} of sample {sample!r} does not fit the rest of "
                f"{concept.type} {concept.name!r}; give its value: ({sample!r}, {concept.name!r}, {example})"
            )
        whole = [float(place == ones[0]) for place in range(len(names))]
    return [(sample, name, value) for name, value in zip(names, whole, strict=True)]


def _possible(concept: Concept, labels: list[float]) -> bool:
    if any(math.isnan(label) for label in labels):
        return False
    if concept.type == "categorical":
        return abs(sum(labels) - 1) <= _SUM_TOLERANCE
    return all(after <= before + 1e-6 for before, after in itertools.pairwise(labels))


def _removed(edit: Edit, data: Dataset) -> list[str]:
    layout, wanted = data.layout, set(edit.remove_concepts)
    found: list[str] = []
    for name in edit.remove_concepts:
        concept = layout.by_name.get(name)
        if concept is None:
            concept = layout.concepts[layout.owner[data.concept_index(name)]]
            names = {data.concept_names[column] for column in concept.columns}
            if not names <= wanted:
                raise InputError(
                    f"remove_concepts: {name!r} is one column of {concept.type} {concept.name!r}; remove "
                    f"{concept.name!r} as a whole"
                )
        found += [data.concept_names[column] for column in concept.columns]
    return list(dict.fromkeys(found))


def _check_new(edit: Edit, data: Dataset, removed: Iterable[str]) -> None:
    gone = set(removed)
    typed = {name for name, concept in data.layout.by_name.items() if concept.type != "binary"}
    new = set(concept_groups(edit.add_concepts)) | set(edit.add_concepts)
    for name in sorted(new):
        if name in typed or (name in edit.concept_types and name in data.groups):
            members = set(data.groups.get(name, (name,)))
            state = "exists already; correct its labels, or add it under another name"
            if members <= gone:
                state = "is removed by the same edit; remove it in an edit before"
            raise InputError(f"add_concepts: concept {name!r} {state}")
    layout_of(list(edit.add_concepts), {n: t for n, t in edit.concept_types.items() if n in new})
