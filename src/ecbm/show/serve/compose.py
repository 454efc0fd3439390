"""From staged items to one edit.

An edit knows corrected labels, classes, removed samples, and removed and added concepts. A renamed concept is one
that is added under the new name with all labels of the old one, which is removed. Two merged ones are one that is
present where either is; under the name of one of them, that one's labels are corrected and the other is removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ecbm.edit.edit import Edit
from ecbm.errors import InputError

if TYPE_CHECKING:
    from ecbm.keep.staged import StagedItem
    from ecbm.read.dataset import Dataset

__all__ = ["compose"]


def compose(data: Dataset, items: Sequence[StagedItem]) -> Edit:
    """The edit that staged items, all of which fit the data, make together.

    Parameters
    ----------
    data
        The current data.
    items
        What is staged.

    Returns
    -------
    Edit
        One edit, not yet checked against the data.
    """
    by_kind: dict[str, list[StagedItem]] = {}
    for item in items:
        by_kind.setdefault(item.kind, []).append(item)
    removed = {item.sample for item in by_kind.get("remove_sample", [])}
    added = {item.concept for item in by_kind.get("add_concept", [])}
    labels = [item for item in by_kind.get("label", []) if item.sample not in removed]
    work = _Columns(data, [item for item in labels if item.concept not in added])
    gone = {item.concept for item in by_kind.get("remove_concept", [])}
    new: dict[str, dict[str, Any]] = {name: {} for name in added}
    for item in labels:
        if item.concept in added and item.answer != "unsure":
            new[item.concept][item.sample] = item.value
    types: dict[str, str] = {}
    units: dict[str, str] = {}
    for item in by_kind.get("rename_concept", []):
        _refuse_twice(item.concept, gone)
        name = str(item.value)
        kind = data.layout.by_name[item.concept]
        new[name] = work.values(item.concept, removed)
        if kind.type != "binary":
            types[name] = kind.type
        if kind.unit:
            units[name] = kind.unit
        gone.add(item.concept)
    corrected: list[tuple[str, str, Any]] = []
    for item in by_kind.get("merge_concepts", []):
        other, name = str(item.value["other"]), str(item.value["name"])
        for one in (item.concept, other):
            _refuse_twice(one, gone)
        merged = work.merged(item.concept, other, removed)
        if name in (item.concept, other):
            corrected += [(sample, name, value) for sample, value in merged.items()]
            gone.add(other if name == item.concept else item.concept)
            work.settled.add(name)
        else:
            new[name] = merged
            gone |= {item.concept, other}
    for name, values in new.items():
        if name in data.layout.by_name and name not in gone:
            raise InputError(f"a concept {name!r} exists already; choose another name")
        if not any(value is not None for value in values.values()):
            raise InputError(f"the new concept {name!r} has no labels yet; label some pictures, or take it out")
    corrected += [
        (item.sample, item.concept, item.value)
        for item in labels
        if item.concept not in added | gone | work.settled and item.answer != "unsure"
    ]
    return Edit(
        correct_concepts=corrected,
        correct_labels=[(i.sample, i.value) for i in by_kind.get("class", []) if i.sample not in removed],
        remove_concepts=sorted(gone),
        add_concepts=new or None,
        remove_samples=sorted(removed),
        concept_types=types or None,
        units=units or None,
    )


def _refuse_twice(concept: str, gone: set[str]) -> None:
    if concept in gone:
        raise InputError(f"{concept!r} is removed, renamed or merged twice; take one of them out")


class _Columns:
    """Labels of the data by concept, with the staged corrections in place."""

    def __init__(self, data: Dataset, corrections: Sequence[StagedItem]) -> None:
        self._data = data
        self._corrected = {
            (item.sample, item.concept): item.value for item in corrections if item.answer != "unsure"
        }
        self.settled: set[str] = set()

    def values(self, concept: str, removed: set[str]) -> dict[str, Any]:
        """From samples to the value of a concept; missing ones are left out."""
        found = self._data.layout.by_name[concept]
        table = self._data.concepts[:, list(found.columns)].tolist()
        values = {}
        for sample, row in zip(self._data.ids, table, strict=True):
            value = self._corrected.get((sample, concept), found.value_of(row))
            if value is not None and sample not in removed:
                values[sample] = value
        return values

    def merged(self, one: str, other: str, removed: set[str]) -> dict[str, Any]:
        """Present where either is, absent where both are; missing where that is not known."""
        for name in (one, other):
            if self._data.layout.by_name[name].type != "binary":
                raise InputError(f"only yes/no concepts can be merged; {name!r} is none")
        first, second = self.values(one, removed), self.values(other, removed)
        values: dict[str, Any] = {}
        for sample in self._data.ids:
            known: NDArray[np.float64] = np.array([v[sample] for v in (first, second) if sample in v], float)
            if len(known) == 2 or (len(known) == 1 and known[0] >= 0.5):
                values[sample] = float(known.max())
            elif sample in first or sample in second:
                values[sample] = None
        return values
