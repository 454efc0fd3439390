"""The :class:`Edit` value: what should be different, named by sample ids, concepts and classes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ecbm import html
from ecbm.edit.changes import Changes, changes_of
from ecbm.edit.joining import append_samples, column_of
from ecbm.edit.resolve import given_value, new_columns, resolve
from ecbm.edit.tables import corrections_from, corrections_of
from ecbm.errors import InputError, unknown_name
from ecbm.read.concept_types import concept_groups, concept_of
from ecbm.read.dataset import Dataset
from ecbm.read.inputs import digest_rows
from ecbm.words import counted

if TYPE_CHECKING:
    import pandas

__all__ = ["Edit"]


def _same(a: float | str, b: float | str) -> bool:
    return a == b or (_missing(a) and _missing(b))


def _missing(value: float | str) -> bool:
    return not isinstance(value, str) and math.isnan(value)


def _said(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def _label(given: Any) -> str:
    """A class by name, or a number, as text."""
    if isinstance(given, np.generic) or (isinstance(given, Tensor) and given.ndim == 0):
        given = given.item()
    return str(given)


def _items(given: Any, what: str, expected: str) -> list[Any]:
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        raise InputError(f"{what}: expected a list of {expected}, got {given!r}")
    return list(given)


def _tuples(given: Any, what: str, expected: str, length: int) -> list[Sequence[Any]]:
    items = _items(given, what, expected)
    for item in items:
        if isinstance(item, str) or not isinstance(item, Sequence) or len(item) != length:
            raise InputError(f"{what}: expected {expected}, got {item!r}")
    return items


def _unique(names: Any, what: str) -> tuple[str, ...]:
    return tuple(sorted({str(name) for name in _items(names, what, "names")}))


@dataclasses.dataclass(frozen=True, eq=False)
class Edit:
    """Changes to a dataset, at any mix of levels. A value: it can be printed, compared, saved and inverted.

    Parameters
    ----------
    correct_concepts
        ``(id, concept, value)``; the value is in 0..1 (soft labels allowed) or ``None`` for missing. That of a
        categorical concept is given by name, of an ordinal one as a grade, of a continuous one in its unit.
    correct_labels
        ``(id, class)``; where labels are numbers, ``(id, number)``. Kept as text, which is exact.
    remove_concepts
        Names of concepts to remove.
    add_concepts
        From new concept names to ``{id: value}``; samples that are not named have it missing.
    remove_samples
        Ids of samples to remove.
    add_samples
        A dataset with new samples; its concepts are matched by name, absent ones are missing. An id that the edit
        also removes is replaced.
    concept_types, units
        Types and units of new concepts that are not binary; those whose values are words are categorical.

    Examples
    --------
    >>> edit = Edit(correct_concepts=[("id17", "wing=blue", 1)], remove_samples=["id9"])
    >>> print(edit)
    correct 1 concept label of 1 sample; remove 1 sample
    >>> edit == Edit(remove_samples=["id9"], correct_concepts=[("id17", "wing=blue", 1.0)])
    True
    """

    correct_concepts: tuple[tuple[str, str, Any], ...]
    correct_labels: tuple[tuple[str, str], ...]
    remove_concepts: tuple[str, ...]
    add_concepts: Mapping[str, Mapping[str, float]]
    remove_samples: tuple[str, ...]
    add_samples: Dataset | None
    concept_types: Mapping[str, str]
    units: Mapping[str, str]

    def __init__(
        self,
        correct_concepts: Iterable[Sequence[Any]] = (),
        correct_labels: Iterable[Sequence[Any]] = (),
        remove_concepts: Iterable[str] = (),
        add_concepts: Mapping[str, Mapping[str, Any]] | None = None,
        remove_samples: Iterable[str] = (),
        add_samples: Dataset | None = None,
        concept_types: Mapping[str, str] | None = None,
        units: Mapping[str, str] | None = None,
    ) -> None:
        def put(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        concepts: dict[tuple[str, str], float | str] = {}
        for item in _tuples(correct_concepts, "correct_concepts", "(id, concept, value)", 3):
            key = str(item[0]), str(item[1])
            value = given_value(item[2], f"correct_concepts: concept {key[1]!r} of sample {key[0]!r}", key[1])
            if key in concepts and not _same(concepts[key], value):
                raise InputError(
                    f"correct_concepts: concept {key[1]!r} of sample {key[0]!r} is corrected twice, to "
                    f"{_said(concepts[key])} and {_said(value)}; give one value"
                )
            concepts[key] = value
        labels: dict[str, str] = {}
        for pair in _tuples(correct_labels, "correct_labels", "(id, class)", 2):
            sample, label = str(pair[0]), _label(pair[1])
            if labels.setdefault(sample, label) != label:
                raise InputError(
                    f"correct_labels: sample {sample!r} is corrected twice, to {labels[sample]!r} and {label!r}; "
                    "give one class"
                )
        if add_samples is not None and not isinstance(add_samples, Dataset):
            raise InputError(f"add_samples: expected a Dataset, got {type(add_samples).__name__}")
        put("correct_concepts", tuple((*key, value) for key, value in sorted(concepts.items())))
        put("correct_labels", tuple(sorted(labels.items())))
        put("remove_concepts", _unique(remove_concepts, "remove_concepts"))
        units = {str(name): str(unit) for name, unit in (units or {}).items()}
        types = {str(name): str(kind) for name, kind in (concept_types or {}).items()}
        columns, kinds = new_columns({} if add_concepts is None else add_concepts, types, units)
        put("add_concepts", columns)
        put("concept_types", dict(sorted(kinds.items())))
        put("units", units)
        put("remove_samples", _unique(remove_samples, "remove_samples"))
        put("add_samples", add_samples if add_samples is not None and len(add_samples) else None)

    # -- as a value ----------------------------------------------------------------------------------------

    def _key(self) -> tuple[Any, ...]:
        def plain(value: float | str) -> float | str | None:
            return None if _missing(value) else value

        return (
            tuple((i, c, plain(v)) for i, c, v in self.correct_concepts),
            self.correct_labels,
            self.remove_concepts,
            tuple((n, tuple((i, plain(v)) for i, v in vs.items())) for n, vs in self.add_concepts.items()),
            self.remove_samples,
            self.add_samples.fingerprint if self.add_samples is not None else None,
            tuple(self.concept_types.items()),
            tuple(sorted(self.units.items())),
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Edit) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __bool__(self) -> bool:
        """False for the empty edit."""
        return any(bool(part) for part in self._key()[:6])

    def __str__(self) -> str:
        parts = []
        if self.correct_concepts:
            samples = len({sample for sample, _, _ in self.correct_concepts})
            labels = len(
                {(sample, concept_of(name, self.concept_types)) for sample, name, _ in self.correct_concepts}
            )
            parts.append(f"correct {counted(labels, 'concept label')} of {counted(samples, 'sample')}")
        if self.correct_labels:
            parts.append(f"correct {counted(len(self.correct_labels), 'class label')}")
        if self.remove_concepts:
            parts.append(f"remove {counted(self._count(self.remove_concepts), 'concept')}")
        if self.add_concepts:
            parts.append(f"add {counted(self._count(self.add_concepts), 'concept')}")
        if self.remove_samples:
            parts.append(f"remove {counted(len(self.remove_samples), 'sample')}")
        if self.add_samples is not None:
            parts.append(f"add {counted(len(self.add_samples), 'sample')}")
        return "; ".join(parts) or "nothing"

    def said_of(self, data: Dataset) -> str:
        """The edit in words, as one of ``data``: labels that are numbers are no class labels."""
        return str(self).replace("class label", "label") if data.predicts_number else str(self)

    def _count(self, columns: Iterable[str]) -> int:
        return len({concept_of(column, self.concept_types) for column in columns})

    def __repr__(self) -> str:
        return f"<Edit: {self}>"

    def _repr_html_(self) -> str:
        def value(given: float | str) -> str:
            return "missing" if _missing(given) else _said(given)

        rows = [(i, c, value(v)) for i, c, v in self.correct_concepts]
        rows += [(i, "class", label) for i, label in self.correct_labels]
        rows += [(i, "sample", "removed") for i in self.remove_samples]
        rows += [(i, "sample", "added") for i in (self.add_samples.ids if self.add_samples is not None else ())]
        rows += [("", name, "removed") for name in self.remove_concepts]
        rows += [("", name, f"added, {counted(len(vs), 'label')}") for name, vs in self.add_concepts.items()]
        return html.block(f"Edit: {self}", [], ("id", "what", "becomes"), rows)

    # -- against a dataset ---------------------------------------------------------------------------------

    def changes(self, data: Dataset) -> Changes:
        """What the edit really changes in ``data``: old values, and labels that already have theirs.

        Examples
        --------
        >>> import ecbm
        >>> data = ecbm.datasets.breast_cancer()
        >>> edit = Edit(correct_labels=[("tumour-000", "malignant"), ("tumour-001", "benign")])
        >>> found = edit.changes(data)
        >>> found.edit.correct_labels, found.before.correct_labels, found.unchanged
        ((('tumour-001', 'benign'),), (('tumour-001', 'malignant'),), 1)
        """
        resolved = self.resolved(data)
        resolved._check(data)
        return changes_of(resolved, data)

    def resolved(self, data: Dataset) -> Edit:
        """The same edit with values by name, grade and unit as labels of ``data``'s columns."""
        return resolve(self, data)

    def effective(self, data: Dataset) -> Edit:
        """The edit without labels that already have their value in ``data``; empty if there is nothing to do."""
        return self.changes(data).edit

    def check(self, data: Dataset) -> None:
        """Refuse an edit that does not fit ``data``: unknown names and contradictions.

        That something is left of every class, concept and split is checked by :meth:`apply_to`.
        """
        self.resolved(data)._check(data)

    def _check(self, data: Dataset) -> None:
        removed, gone = set(self.remove_samples), set(self.remove_concepts)
        for sample in self.remove_samples:
            data.row(sample)
        for name in self.remove_concepts:
            data.concept_index(name)
        for sample, name, _ in self.correct_concepts:
            data.row(sample)
            data.concept_index(name)
            if sample in removed or name in gone:
                what = f"sample {sample!r}" if sample in removed else f"concept {name!r}"
                raise InputError(f"the edit corrects concept {name!r} of sample {sample!r} and removes {what}")
        for sample, label in self.correct_labels:
            data.row(sample)
            data.label_from(label, f"correct_labels: sample {sample!r}")
            if sample in removed:
                raise InputError(f"the edit corrects the class of sample {sample!r} and removes it")
        for name, values in self.add_concepts.items():
            if name in data.concept_names:
                raise InputError(f"add_concepts: concept {name!r} exists already; correct its labels instead")
            new_ids = set(self.add_samples.ids) if self.add_samples is not None else set()
            for sample in values:
                if sample not in data.rows_by_id and sample not in new_ids:
                    raise unknown_name("sample id", sample, data.ids, f"add_concepts: {name!r}")
                if sample in removed and sample not in new_ids:
                    raise InputError(f"add_concepts: {name!r} names sample {sample!r}, which the edit removes")
        if not (set(data.concept_names) - gone) | set(self.add_concepts):
            raise InputError("the edit removes every concept; a concept bottleneck model needs at least one")
        if self.add_samples is not None:
            self._check_added(data, self.add_samples)

    def _check_added(self, data: Dataset, added: Dataset) -> None:
        removed = set(self.remove_samples)
        for sample in added.ids:
            if sample in data.rows_by_id and sample not in removed:
                raise InputError(f"add_samples: id {sample!r} exists already; remove it too, or use another id")
        if tuple(added.inputs.shape) != tuple(data.inputs.shape):
            raise InputError(
                f"add_samples: inputs have shape {tuple(added.inputs.shape)}, the data's {tuple(data.inputs.shape)}"
            )
        known = {*data.concept_names, *self.add_concepts}
        for name in added.concept_names:
            if name not in known:
                raise unknown_name("concept", name, known, "add_samples")
        for name, kind in added.layout.declared.items():
            own = data.concept_types.get(name, self.concept_types.get(name, "binary"))
            if own != kind:
                raise InputError(f"add_samples: concept {name!r} is {kind} there and {own} in the data")
        if (added.target, added.target_unit) != (data.target, data.target_unit):
            kinds = {"class": "classes", "number": "numbers"}
            what = (
                f"{kinds[added.target]} {added.target_unit}".strip(),
                f"{kinds[data.target]} {data.target_unit}".strip(),
            )
            raise InputError(f"add_samples: labels are {what[0]} there and {what[1]} in the data; give them alike")
        for label in [] if data.predicts_number else added.labels.unique().tolist():
            if added.class_names[label] not in data.class_names:
                raise unknown_name("class", added.class_names[label], data.class_names, "add_samples")

    def _check_left(self, data: Dataset, after: Dataset) -> None:
        if not len(after):
            raise InputError("the edit removes every sample; a model needs some")
        for split in ("train", "val"):
            if split in data.splits and split not in after.splits:
                raise InputError(f"the edit removes every sample of the {split} split; keep at least one")
        if "train" not in data.splits:
            return
        train, before = after.split("train"), data.split("train")
        if not data.predicts_number:
            counts = torch.bincount(train.labels, minlength=len(after.class_names))
            had = torch.bincount(before.labels, minlength=len(data.class_names))
            for name, count, earlier in zip(after.class_names, counts.tolist(), had.tolist(), strict=True):
                if count == 0 and earlier > 0:
                    raise InputError(f"the edit leaves class {name!r} without a training sample; keep at least one")
        unlabelled = train.concepts.isnan().all(0).tolist()
        already = before.concepts.isnan().all(0).tolist()
        had_none = {name for name, empty in zip(data.concept_names, already, strict=True) if empty}
        for name, empty in zip(after.concept_names, unlabelled, strict=True):
            if empty and name not in had_none:
                raise InputError(
                    f"the edit leaves concept {name!r} without a label in the train split; keep one or remove it"
                )

    def apply_to(self, data: Dataset) -> Dataset:
        """The edited dataset; ``data`` is not changed. New concepts come last, new samples too."""
        resolved = self.resolved(data)
        resolved._check(data)
        edited = resolved._apply(data)
        resolved._check_left(data, edited)
        return edited

    def _apply(self, data: Dataset) -> Dataset:
        if not self:
            return data
        concepts, labels = data.concepts, data.labels
        if self.correct_concepts:
            concepts = concepts.clone()
            column = {name: index for index, name in enumerate(data.concept_names)}
            rows = torch.tensor([data.rows_by_id[i] for i, _, _ in self.correct_concepts])
            columns = torch.tensor([column[c] for _, c, _ in self.correct_concepts])
            concepts[rows, columns] = torch.tensor([v for _, _, v in self.correct_concepts])
        if self.correct_labels:
            labels = labels.clone()
            for sample, label in self.correct_labels:
                labels[data.rows_by_id[sample]] = data.label_from(label)
        edited = data.replace(concepts=concepts, labels=labels)
        if self.remove_samples:
            removed = set(self.remove_samples)
            edited = edited.select([row for row, sample in enumerate(edited.ids) if sample not in removed])
        if self.add_concepts or self.remove_concepts:
            edited = self._with_columns(edited)
        if self.add_samples is not None:
            edited = append_samples(edited, self.add_samples, self.add_concepts)
        return edited

    def _with_columns(self, data: Dataset) -> Dataset:
        kept = [j for j, name in enumerate(data.concept_names) if name not in set(self.remove_concepts)]
        columns = [data.concepts[:, kept]]
        for values in self.add_concepts.values():
            columns.append(column_of(data, values)[:, None])
        names = [data.concept_names[j] for j in kept] + list(self.add_concepts)
        here = concept_groups(names)
        types = {n: t for n, t in {**data.layout.declared, **self.concept_types}.items() if n in here}
        types |= {n: t for n, t in data.layout.declared.items() if n in names}
        units = {n: unit for n, unit in {**data.layout.units, **self.units}.items() if types.get(n)}
        return data.replace(
            concepts=torch.cat(columns, dim=1), concept_names=names, concept_types=types, units=units
        )

    # -- from and to others --------------------------------------------------------------------------------

    @classmethod
    def from_frame(cls, frame: pandas.DataFrame, data: Dataset | None = None) -> Edit:
        """Corrections from a pandas table: columns ``id``, ``concept``, ``value``; or ``id``, ``label``; or all.

        A row corrects a concept (an empty value: the label is missing), a class, or both. With ``data`` values
        may be those of its concepts' types: names, grades, numbers in their unit.

        Examples
        --------
        >>> import pandas
        >>> frame = pandas.DataFrame({"id": ["a", "b"], "concept": ["crest", "crest"], "value": [1, 0.5]})
        >>> print(Edit.from_frame(frame))
        correct 2 concept labels of 2 samples
        """
        concepts, labels = corrections_from(frame, data)
        return cls(correct_concepts=concepts, correct_labels=labels)

    def to_frame(self) -> pandas.DataFrame:
        """The corrections as a table that :meth:`from_frame` reads; removed and added things have no row in it."""
        return corrections_of(self.correct_concepts, self.correct_labels)

    @classmethod
    def between(cls, before: Dataset, after: Dataset) -> Edit:
        """The edit that turns one dataset into another, up to the order of samples and concepts.

        An id with another input or in another split is a sample removed and one added.
        """
        return cls._between(before, after, before.ids)

    @classmethod
    def _between(cls, before: Dataset, after: Dataset, doubtful: Iterable[str]) -> Edit:
        """:meth:`between`, where only ``doubtful`` ids may have another input or split."""
        if before.target != after.target:
            raise InputError("an edit cannot turn classes into numbers; both datasets must have the same target")
        if before.class_names != after.class_names:
            raise InputError("an edit cannot change the list of classes; both datasets must have the same")
        replaced = _replaced(before, after, doubtful)
        old = {sample: row for sample, row in before.rows_by_id.items() if sample not in replaced}
        new = {sample: row for sample, row in after.rows_by_id.items() if sample not in replaced}
        shared = [sample for sample in before.ids if sample in old and sample in new]
        rows_old = torch.tensor([old[s] for s in shared], dtype=torch.long)
        rows_new = torch.tensor([new[s] for s in shared], dtype=torch.long)
        names = [name for name in before.concept_names if name in after.concept_names]
        for name, kind in before.concept_types.items():
            if after.concept_types.get(name, kind) != kind:
                raise InputError(f"an edit cannot change the type of a concept; that of {name!r} differs")
        a = before.concepts[rows_old][:, [before.concept_index(n) for n in names]]
        b = after.concepts[rows_new][:, [after.concept_index(n) for n in names]]
        differs = ~((a == b) | (a.isnan() & b.isnan()))
        corrections = [(shared[i], names[j], float(b[i, j])) for i, j in differs.nonzero().tolist()]
        relabelled = (before.labels[rows_old] != after.labels[rows_new]).nonzero().flatten().tolist()
        fresh = [name for name in after.concept_names if name not in before.concept_names]
        extra = [row for row, sample in enumerate(after.ids) if sample not in old]
        return cls(
            correct_concepts=corrections,
            correct_labels=[(shared[i], after.label_of(int(rows_new[i]))) for i in relabelled],
            remove_concepts=[name for name in before.concept_names if name not in after.concept_names],
            add_concepts={
                name: {
                    s: float(after.concepts[new[s], after.concept_index(name)])
                    for s in shared
                    if not math.isnan(float(after.concepts[new[s], after.concept_index(name)]))
                }
                for name in fresh
            },
            remove_samples=[sample for sample in before.ids if sample not in new],
            add_samples=after.select(extra) if extra else None,
            concept_types={n: t for n, t in after.layout.declared.items() if n not in before.layout.by_name},
            units={n: unit for n, unit in after.layout.units.items() if n not in before.layout.by_name},
        )

    def inverse(self, data: Dataset) -> Edit:
        """The edit that takes the edited dataset back to ``data`` (rows and columns may come in another order)."""
        return Edit._between(self.apply_to(data), data, self.remove_samples)

    def then(self, other: Edit, data: Dataset) -> Edit:
        """One edit that does to ``data`` what this edit and then ``other`` do."""
        doubtful = (*self.remove_samples, *other.remove_samples)
        return Edit._between(data, other.apply_to(self.apply_to(data)), doubtful)


def _replaced(before: Dataset, after: Dataset, candidates: Iterable[str]) -> set[str]:
    """Ids that both datasets have, with another input or in another split."""
    old, new = before.rows_by_id, after.rows_by_id
    both = [sample for sample in dict.fromkeys(candidates) if sample in old and sample in new]
    moved = {sample for sample in both if before.splits[old[sample]] != after.splits[new[sample]]}
    first, second = (_digests(data, both) for data in (before, after))
    return moved | {sample for sample, a, b in zip(both, first, second, strict=True) if a != b}


def _digests(data: Dataset, samples: Sequence[str]) -> Sequence[bytes]:
    rows = [data.rows_by_id[sample] for sample in samples]
    if "row_digests" in data.__dict__:
        return [data.row_digests[row] for row in rows]
    return digest_rows(data.inputs.subset(rows))
