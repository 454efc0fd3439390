"""The :class:`Dataset` value: samples with concept labels, class labels, names, splits and a fingerprint."""

from __future__ import annotations

import dataclasses
import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, overload

import numpy as np
import torch
from torch import Tensor

from ecbm import html
from ecbm.errors import InputError, unknown_name
from ecbm.read.concept_types import Concept, ConceptLayout, check_concept_values, concept_groups, layout_of
from ecbm.read.digests import RowDigests
from ecbm.read.given import given_concepts, given_inputs, given_labels, given_rows, given_splits
from ecbm.read.inputs import Inputs, TensorInputs, digest_rows
from ecbm.read.samples import Sample, TorchView, frame_of, pick, sample_at
from ecbm.read.splits import SPLITS
from ecbm.read.targets import check_number_labels, given_numbers, given_target, number_in

if TYPE_CHECKING:
    import pandas

__all__ = ["Dataset", "concept_groups"]


@dataclasses.dataclass(frozen=True, eq=False)
class Dataset:
    """Samples with concepts and classes. A value: every method returns a new dataset, none changes this one.

    Parameters
    ----------
    ids
        Stable, unique string ids.
    inputs
        What the model sees: a tensor or array with one row a sample (uint8 pictures as channels, height, width), or
        :class:`TensorInputs`, :class:`ImageInputs`.
    concepts
        (n, k) float, each 0..1 (soft labels allowed; any number for a continuous concept) or NaN for missing.
    labels
        (n,) class labels: indices into ``class_names``, or the names themselves; or numbers, see ``target``.
    concept_names, class_names
        Names, unique.
    splits
        The split of every sample (``"train"``, ``"val"``, ``"test"``); ``None`` puts all in ``"train"``.
    concept_types
        From concepts to ``"binary"``, ``"categorical"``, ``"ordinal"`` or ``"continuous"``; what is not named is
        binary. Categorical ``colour`` owns the columns ``colour::red``, ``colour::blue``, …, and ordinal
        ``severity`` the cumulative columns ``severity::>=1``, ``severity::>=2``, …
    units
        From continuous concepts to their units, for display.
    target, target_unit
        ``"number"`` where labels are numbers to be predicted and not classes: ``labels`` are then float64, and
        ``class_names`` holds one name, what the number is called. Its unit is for display.

    Examples
    --------
    >>> import torch
    >>> data = Dataset(["a", "b"], torch.zeros(2, 3), torch.tensor([[1.0], [0.0]]), torch.tensor([0, 1]),
    ...                ["striped"], ["finch", "wren"])
    >>> len(data), data.groups
    (2, {'striped': ('striped',)})
    """

    ids: tuple[str, ...]
    inputs: Inputs
    concepts: Tensor
    labels: Tensor
    concept_names: tuple[str, ...]
    class_names: tuple[str, ...]
    splits: tuple[str, ...]
    layout: ConceptLayout
    target: str
    target_unit: str

    def __init__(
        self,
        ids: Sequence[str],
        inputs: Inputs | Tensor | np.ndarray,
        concepts: Tensor | np.ndarray | Sequence[Sequence[float]],
        labels: Tensor | np.ndarray | Sequence[int] | Sequence[float] | Sequence[str],
        concept_names: Sequence[str],
        class_names: Sequence[str],
        splits: Sequence[str] | None = None,
        concept_types: Mapping[str, str] | None = None,
        units: Mapping[str, str] | None = None,
        target: str = "class",
        target_unit: str = "",
    ) -> None:
        def put(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        put("ids", tuple(map(str, ids)))
        put("inputs", given_inputs(inputs))
        put("concepts", given_concepts(concepts))
        put("concept_names", tuple(str(n) for n in concept_names))
        put("class_names", tuple(str(n) for n in class_names))
        put("target", given_target(target, target_unit))
        put("target_unit", str(target_unit))
        put("labels", given_numbers(labels) if self.predicts_number else given_labels(labels, self.class_names))
        put("splits", given_splits(splits) if splits is not None else ("train",) * len(self.ids))
        self._check_names()
        put("layout", layout_of(self.concept_names, concept_types, units))
        self._check_values()

    # -- reading -------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, key: str | int) -> Sample: ...  # type: ignore[overload-overlap]  # text is a sequence
    @overload
    def __getitem__(self, key: slice | Sequence[int] | Sequence[str] | Sequence[bool] | Tensor) -> Dataset: ...
    def __getitem__(self, key: object) -> Sample | Dataset:
        """One sample by id or row, or a part by ids, rows, a slice or a mask.

        Examples
        --------
        >>> import ecbm
        >>> data = ecbm.datasets.breast_cancer()
        >>> data["tumour-003"].label, data["tumour-003"].concepts["radius=large"]
        ('malignant', 0.0)
        >>> len(data[:10]), len(data[data.labels == 0]), data[["tumour-003", "tumour-001"]].ids
        (10, 212, ('tumour-003', 'tumour-001'))
        """
        return pick(self, key)

    def __iter__(self) -> Iterator[Sample]:
        return (sample_at(self, row) for row in range(len(self)))

    def __contains__(self, sample_id: object) -> bool:
        return sample_id in self.rows_by_id

    def to_frame(self) -> pandas.DataFrame:
        """The labels as a pandas table: id, split, label and one column a concept (NaN where missing).

        Inputs are not in it; ``read_dataset(data.to_frame(), features=data.x)`` brings both together again.
        """
        return frame_of(self)

    def to_torch(self) -> TorchView:
        """A ``torch.utils.data.Dataset`` of ``(x, concepts, label)``, for a ``DataLoader``."""
        return TorchView(self)

    def _repr_html_(self) -> str:
        if self.predicts_number:
            low, high = (f"{float(end):g}" for end in self.labels.aminmax()) if len(self) else ("–", "–")
            unit = f" {self.target_unit}" if self.target_unit else ""
            return html.block(repr(self), [f"{self.class_names[0]}: {low} to {high}{unit}"])
        classes = torch.bincount(self.labels, minlength=len(self.class_names)).tolist()
        rows = sorted(zip(self.class_names, classes, strict=True), key=lambda pair: -pair[1])
        groups = ", ".join(f"{group} ({len(members)})" for group, members in self.groups.items())
        return html.block(repr(self), [f"concept groups: {groups}"], ("class", "samples"), rows)

    def __repr__(self) -> str:
        parts = ", ".join(f"{name} {count}" for name, count in self.split_sizes.items())
        labels = f"{len(self.class_names)} classes"
        return (
            f"Dataset({len(self)} samples ({parts}), inputs {tuple(self.inputs.shape)}, "
            f"{len(self.concept_names)} concepts in {len(self.groups)} groups, "
            f"{f'the number {self.class_names[0]!r}' if self.predicts_number else labels})"
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dataset) and self.fingerprint == other.fingerprint

    __hash__ = None  # type: ignore[assignment]

    @cached_property
    def x(self) -> Tensor:
        """All inputs as one float32 tensor."""
        return self.inputs.take(range(len(self)))

    @cached_property
    def groups(self) -> dict[str, tuple[str, ...]]:
        """Concept groups by name (see :func:`concept_groups`)."""
        return concept_groups(self.concept_names)

    @property
    def concept_types(self) -> dict[str, str]:
        """The type of every concept: ``binary``, ``categorical``, ``ordinal`` or ``continuous``.

        A categorical or ordinal concept is one entry under its group's name, whatever columns it owns.
        """
        return dict(self.layout.types)

    @property
    def units(self) -> dict[str, str]:
        """Units of continuous concepts, where they were given."""
        return dict(self.layout.units)

    @property
    def predicts_number(self) -> bool:
        """Whether labels are numbers and not classes."""
        return self.target == "number"

    def label_of(self, row: int) -> str | float:
        """The label of a row: its class by name, or its number."""
        return float(self.labels[row]) if self.predicts_number else self.class_names[int(self.labels[row])]

    def said_labels(self) -> list[str] | list[float]:
        """The labels of all rows: classes by name, or numbers."""
        known = self.labels.tolist()
        return known if self.predicts_number else [self.class_names[label] for label in known]

    def label_from(self, label: str, where: str = "label") -> int | float:
        """What stands in :attr:`labels` for a class by name, or for a number as text."""
        return number_in(label, where) if self.predicts_number else self.class_index(label)

    def concept(self, name: str) -> Concept:
        """A concept by name: its type, its columns and its values."""
        try:
            return self.layout.by_name[name]
        except KeyError:
            raise unknown_name("concept", name, self.layout.by_name) from None

    @property
    def split_sizes(self) -> dict[str, int]:
        """Number of samples in each split that has any: train, val, test."""
        counts = Counter(self.splits)
        return {name: counts[name] for name in SPLITS if counts[name]}

    @cached_property
    def rows_by_id(self) -> Mapping[str, int]:
        """Row number of every id."""
        return {name: row for row, name in enumerate(self.ids)}

    def row(self, sample_id: str) -> int:
        """Row of a sample, by id."""
        try:
            return self.rows_by_id[sample_id]
        except KeyError:
            raise unknown_name("sample id", sample_id, self.ids) from None

    def concept_index(self, name: str) -> int:
        """Column of a concept, by name."""
        try:
            return self.concept_names.index(name)
        except ValueError:
            raise unknown_name("concept", name, self.concept_names) from None

    def class_index(self, name: str) -> int:
        """Index of a class, by name."""
        try:
            return self.class_names.index(name)
        except ValueError:
            raise unknown_name("class", name, self.class_names) from None

    @cached_property
    def row_digests(self) -> Sequence[bytes]:
        """A digest of every input; kept so that subsets and edits need not read all inputs again."""
        return RowDigests.of(digest_rows(self.inputs))

    @cached_property
    def fingerprint(self) -> str:
        """Hexadecimal digest of everything: names, ids, splits, labels, concepts and inputs, in order."""
        total = hashlib.blake2b(digest_size=20)
        for names in (self.concept_names, self.class_names, self.ids, self.splits):
            total.update(_encoded(names))
        # Missing labels compare by being missing, not by the bit pattern of their NaN.
        concepts = torch.where(self.concepts.isnan(), torch.nan, self.concepts)
        total.update(np.ascontiguousarray(concepts.numpy()).tobytes())
        total.update(self.labels.numpy().tobytes())
        total.update(RowDigests.of(self.row_digests).joined())
        if not self.layout.plain:
            total.update(repr((sorted(self.layout.declared.items()), sorted(self.layout.units.items()))).encode())
        if self.predicts_number:
            total.update(repr((self.target, self.target_unit)).encode())
        return total.hexdigest()

    # -- making others -------------------------------------------------------------------------------------

    def split(self, name: str) -> Dataset:
        """The samples of one split."""
        known: dict[str, Dataset] = self.__dict__.setdefault("_parts", {})
        if name not in known:
            selections: dict[str, _Selection] = self.__dict__.setdefault("_selections", {})
            if name not in selections:
                if name not in self.splits:
                    raise unknown_name("split", name, self.split_sizes)
                selections[name] = self._selection([row for row, split in enumerate(self.splits) if split == name])
            known[name] = self._within(selections[name])
        return known[name]

    def select(self, rows: Sequence[int] | Sequence[bool] | Tensor) -> Dataset:
        """The samples of the given rows, in that order; or those that a mask of all rows chooses."""
        part = self._within(self._selection(given_rows(rows, len(self))))
        if len(set(part.ids)) < len(part):
            part._check_names()
        return part

    def _selection(self, rows: list[int]) -> _Selection:
        ids, splits = tuple(self.ids[row] for row in rows), tuple(self.splits[row] for row in rows)
        return _Selection(torch.tensor(rows, dtype=torch.long), ids, self.inputs.subset(rows), splits)

    def _within(self, selection: _Selection) -> Dataset:
        """The samples of a selection. What was checked in the whole holds in a part."""
        part = object.__new__(Dataset)
        part.__dict__.update(
            ids=selection.ids,
            inputs=selection.inputs,
            concepts=self.concepts[selection.rows],
            labels=self.labels[selection.rows],
            concept_names=self.concept_names,
            class_names=self.class_names,
            splits=selection.splits,
            layout=self.layout,
            target=self.target,
            target_unit=self.target_unit,
        )
        if "row_digests" in self.__dict__:
            part.__dict__["row_digests"] = selection.digests_in(self.row_digests)
        return part

    def replace(
        self,
        *,
        concepts: Tensor | None = None,
        labels: Tensor | None = None,
        concept_names: Sequence[str] | None = None,
        class_names: Sequence[str] | None = None,
        splits: Sequence[str] | None = None,
        concept_types: Mapping[str, str] | None = None,
        units: Mapping[str, str] | None = None,
    ) -> Dataset:
        """The same samples with other labels, names, splits or types of concepts.

        Under other concept names, types and units are those that are given.
        """
        if concept_names is None:
            concept_types = self.layout.declared if concept_types is None else concept_types
            units = self.layout.units if units is None else units
        other = Dataset(
            self.ids,
            self.inputs,
            self.concepts if concepts is None else concepts,
            self.labels if labels is None else labels,
            self.concept_names if concept_names is None else concept_names,
            self.class_names if class_names is None else class_names,
            self.splits if splits is None else splits,
            concept_types,
            units,
            self.target,
            self.target_unit,
        )
        if "row_digests" in self.__dict__:
            other.__dict__["row_digests"] = self.row_digests
        if splits is None:
            other.__dict__["_selections"] = self.__dict__.setdefault("_selections", {})
        return other

    # -- checks --------------------------------------------------------------------------------------------

    def _check_names(self) -> None:
        if len(set(self.ids)) < len(self.ids):
            seen: dict[str, int] = {}
            for row, name in enumerate(self.ids):
                if name in seen:
                    where = f"rows {seen[name] + 1} and {row + 1}"
                    raise InputError(f"duplicate id {name!r} ({where}); ids must be unique")
                seen[name] = row
        for kind, names in (("concept", self.concept_names), ("class", self.class_names)):
            if len(set(names)) != len(names):
                twice = next(name for name in names if names.count(name) > 1)
                raise InputError(f"duplicate {kind} name {twice!r}; names must be unique")
            if "" in names:
                raise InputError(f"{kind} {names.index('') + 1} has an empty name; every {kind} needs one")
        if "" in self.ids:
            raise InputError(f"row {self.ids.index('') + 1}: the id is empty; every sample needs one")

    def _check_values(self) -> None:
        n, k = len(self.ids), len(self.concept_names)
        if len(self.inputs) != n:
            raise InputError(f"{len(self.inputs)} inputs for {n} ids; give one input a sample")
        if tuple(self.concepts.shape) != (n, k):
            raise InputError(f"concepts have shape {tuple(self.concepts.shape)}, expected {(n, k)}")
        if tuple(self.labels.shape) != (n,):
            raise InputError(f"labels have shape {tuple(self.labels.shape)}, expected {(n,)}")
        if len(self.splits) != n:
            raise InputError(f"{len(self.splits)} splits for {n} ids; give one split a sample")
        if self.predicts_number:
            check_number_labels(self.labels, self.class_names, self.ids)
        elif n and (int(self.labels.min()) < 0 or int(self.labels.max()) >= len(self.class_names)):
            raise InputError(f"class labels must lie in 0..{len(self.class_names) - 1} (the class names)")
        check_concept_values(self.layout, self.concepts, self.concept_names, self.ids)
        if isinstance(self.inputs, TensorInputs):
            bad = self.inputs.first_not_finite()
            if bad is not None:
                raise InputError(f"row {bad + 1} (id {self.ids[bad]!r}): its features contain NaN or infinity")


@dataclasses.dataclass(frozen=True, eq=False)
class _Selection:
    """Some samples without their labels. Datasets that differ in labels alone share them."""

    rows: Tensor
    ids: tuple[str, ...]
    inputs: Inputs
    splits: tuple[str, ...]

    def digests_in(self, whole: Sequence[bytes]) -> RowDigests:
        known: RowDigests | None = self.__dict__.get("_digests")
        if known is None:
            known = self.__dict__["_digests"] = RowDigests.of(whole).take(self.rows)
        return known


@lru_cache(maxsize=16)
def _encoded(names: tuple[str, ...]) -> bytes:
    """Names as the fingerprint reads them. Edited datasets share their tuples, so this is done once for most."""
    # Splits are many times the same few words.
    marked = {name: f"{len(name)}:{name}" for name in set(names)}
    joined = "\x1f".join([marked[name] for name in names])
    return f"{len(names)}|{joined}|".encode()
