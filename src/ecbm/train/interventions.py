"""Concepts set by hand: from what a person gives by name to values of columns.

A concept is set as its type says: a binary one to a number in 0..1, a categorical one to a value by name, an
ordinal one to a grade, a continuous one to a number in its unit or to a percentile of the training labels
(``"p90"``). Columns named ``group::>=1``, ``group::>=2``, … are thresholds whatever their type: a grade reaches
every threshold below it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ecbm.errors import InputError, unknown_name
from ecbm.read.concept_types import Concept, grades_of, value_in
from ecbm.read.truth import truth_value

if TYPE_CHECKING:
    from ecbm.train.model import ConceptBottleneck

__all__ = ["InterventionValue", "resolve_intervention"]

InterventionValue = float | int | str | Tensor | Sequence[float] | Sequence[str]
_PERCENTILE = re.compile(r"p(\d{1,2})")


def resolve_intervention(model: ConceptBottleneck, concepts: Any, count: int) -> dict[int, Tensor]:
    """Names to columns and their values (count,): labels 0..1, and values of continuous concepts in their unit."""
    if not isinstance(concepts, Mapping):
        kind = type(concepts).__name__
        raise InputError(f"intervention: expected {{concept: value}}, got {kind}; for example {{'crest=yes': 1}}")
    resolved: dict[int, Tensor] = {}
    for name, value in concepts.items():
        concept = model.layout.by_name.get(name)
        if concept is not None and concept.type != "binary":
            resolved |= _typed(model, concept, value, count)
            continue
        if name in model.concept_names:
            owner = model.layout.concepts[model.layout.owner[model.concept_index(name)]]
            if owner.type in ("categorical", "ordinal"):
                resolved |= _by_column(model, owner, name, value, count)
                continue
        resolved |= _binary(model, name, value, count)
    return resolved


def _each(value: Any, count: int) -> list[Any]:
    """One value a sample, from one for all or one for each."""
    if isinstance(value, Tensor):
        value = value.tolist()
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Sequence) and not isinstance(value, str):
        if len(value) != count:
            raise InputError(f"intervention: {len(value)} values for {count} samples; give one, or one for each")
        return list(value)
    return [value] * count


def _typed(model: ConceptBottleneck, concept: Concept, value: Any, count: int) -> dict[int, Tensor]:
    where = f"intervention on {concept.name!r}"
    known: dict[Any, tuple[float, ...]] = {}
    rows = []
    for one in _each(value, count):
        if one not in known:
            known[one] = _labels(model, concept, one, where)
        rows.append(known[one])
    labels = torch.tensor(rows, dtype=torch.float64).reshape(count, len(concept.columns))
    if bool(labels.isnan().any()):
        raise InputError(f"{where}: expected a value, got {value!r}")
    return {column: labels[:, place] for place, column in enumerate(concept.columns)}


def _labels(model: ConceptBottleneck, concept: Concept, value: Any, where: str) -> tuple[float, ...]:
    if concept.type == "continuous" and isinstance(value, str):
        found = _PERCENTILE.fullmatch(value)
        if found is not None and int(found[1]) > 0:
            row = model.layout.squared.tolist().index(concept.columns[0])
            assert model.percentiles is not None
            return (float(model.percentiles[row, int(found[1]) - 1]),)
        if not _is_number(value):
            unit = f" in {concept.unit}" if concept.unit else ""
            raise InputError(f"{where}: {value!r} is no value; give a number{unit}, or a percentile from p1 to p99")
    return concept.labels_of(value, where)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _by_column(model: ConceptBottleneck, owner: Concept, name: str, value: Any, count: int) -> dict[int, Tensor]:
    """One column of a categorical or ordinal concept: what it implies about the others is set too."""
    column = model.concept_index(name)
    place = owner.columns.index(column)
    numbers = _numbers(name, value, count)
    if owner.type == "categorical":
        if not bool((numbers == 1).all()):
            raise InputError(
                f"intervention on {name!r}: a categorical concept has one value; set {owner.name!r} to another "
                f"one of {', '.join(owner.values)}"
            )
        return _typed(model, owner, owner.values[place], count)
    if bool((numbers == 1).all()):
        return dict.fromkeys(owner.columns[: place + 1], numbers)
    if bool((numbers == 0).all()):
        return dict.fromkeys(owner.columns[place:], numbers)
    raise InputError(
        f"intervention on {name!r}: a threshold is reached (1) or not (0); set {owner.name!r} to a grade"
    )


def _numbers(name: str, value: Any, count: int) -> Tensor:
    try:
        numbers = torch.as_tensor(value, dtype=torch.float64).expand(count)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(
            f"intervention on {name!r}: expected one number or one for each of {count} samples"
        ) from None
    if bool(((numbers < 0) | (numbers > 1) | numbers.isnan()).any()):
        raise InputError(f"intervention on {name!r}: values must lie in [0, 1], got {value!r}")
    return numbers


def _binary(model: ConceptBottleneck, name: str, value: Any, count: int) -> dict[int, Tensor]:
    """A binary concept, or a group of them by its name."""
    groups = model.groups
    members = groups.get(name, ())
    if members and members != (name,):
        thresholds = grades_of([value_in(name, member) for member in members])
        columns = tuple(model.concept_index(member) for member in members)
        if thresholds is not None:
            return _typed(model, Concept(name, "ordinal", columns, thresholds), value, count)
    if isinstance(value, str) and name in model.concept_names:
        truth = truth_value(value)
        value = value if truth is None else truth
    if isinstance(value, str):
        if name not in groups:
            raise unknown_name("concept group", name, groups)
        if members == (name,):
            raise InputError(
                f"intervention on {name!r}: it has no named values; give yes, no or a number in [0, 1]"
            )
        values = {member: member[len(name) :].lstrip(":=") for member in members}
        if value not in values.values():
            raise unknown_name(f"value of group {name!r}", value, values.values())
        return {
            model.concept_index(member): torch.full((count,), float(short == value)).double()
            for member, short in values.items()
        }
    if members and name not in model.concept_names:
        raise InputError(f"{name!r} is a group: set it to one of its values, or set {members[0]!r}")
    return {model.concept_index(name): _numbers(name, value, count)}
