"""From a table and what the user said about it to a dataset, and to words on what was understood."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ecbm.errors import InputError, unknown_name
from ecbm.options import option
from ecbm.read.columns import Habits, Table
from ecbm.read.concept_columns import concept_columns, group_remarks
from ecbm.read.data_frames import NAME, frame_in, table_of_frame
from ecbm.read.dataset import Dataset
from ecbm.read.feature_columns import FeatureColumns, expanded, feature_columns_of
from ecbm.read.features import given_features
from ecbm.read.inputs import ImageInputs, Inputs, TensorInputs
from ecbm.read.kinds import Found
from ecbm.read.label_columns import Target, target_of
from ecbm.read.picture_names import classes_by_folder, pictures_by_id, pictures_in
from ecbm.read.said_types import Said, said_types
from ecbm.read.sidecar import Sidecar, find_table, read_sidecar
from ecbm.read.splits import SPLITS, split_by_id
from ecbm.read.table_files import FileOptions, read_table

__all__ = ["Asked", "Column", "Labels", "Reading", "read_and_tell", "read_labels"]


@dataclasses.dataclass(frozen=True)
class Asked:
    """The options of :func:`ecbm.read_dataset`."""

    features: Any = None
    images: str | Path | None = None
    image_size: int | tuple[int, int] | None = None
    splits: Sequence[float] = (0.7, 0.1, 0.2)
    id_column: str = "id"
    label_column: str = "label"
    split_column: str = "split"
    image_column: str = "image"
    ignore: Sequence[str] = ()
    types: Mapping[str, str] | None = None
    encoding: str | None = None
    delimiter: str | None = None
    decimal: str | None = None
    missing: Sequence[str] = ()
    sheet: str | None = None
    label_type: str | None = None

    @property
    def columns(self) -> dict[str, str]:
        return {
            "id": self.id_column,
            "label": self.label_column,
            "split": self.split_column,
            "image": self.image_column,
        }


@dataclasses.dataclass(frozen=True)
class Column:
    """What a column was taken for (``role`` and ``kind``), why, and how to say otherwise."""

    name: str
    role: str
    kind: str
    why: str
    otherwise: str = ""

    @property
    def taken_for(self) -> str:
        said = self.role in ("concept", "feature") or self.kind.startswith("number")
        return f"{self.role}: {self.kind}" if said else self.role

    def __str__(self) -> str:
        return f"{self.name}: {self.taken_for}, {self.why}" + (f" ({self.otherwise})" if self.otherwise else "")


@dataclasses.dataclass(frozen=True)
class Reading:
    """A dataset, what each column of its table was taken for, and what else was understood."""

    data: Dataset
    columns: tuple[Column, ...] = ()
    remarks: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join([*self.remarks, *map(str, self.columns)])


def read_and_tell(path: Any, asked: Asked, like: Dataset | None = None) -> Reading:
    """:func:`ecbm.read_dataset`, with what was understood.

    ``like`` is a dataset that the table is to be read like: its types, its values of words, its feature columns.
    """
    frame = frame_in(path, asked.split_column)
    path = NAME if frame is not None else _path_of(path)
    sidecar, features, images, columns = None, asked.features, asked.images, asked.columns
    if frame is None and path.is_dir():
        sidecar = read_sidecar(path)
        columns = columns if sidecar is None else sidecar.columns
        if features is None and images is None:
            features, images = _inputs_beside(path)
        path = find_table(path)
    if features is None and images is None and like is not None and _columns_of(like) is not None:
        features = [column.name for column in _columns_of(like).columns]  # type: ignore[union-attr]
    _check_inputs(path, frame is not None, features, images)
    named = _feature_names(features)
    habits = Habits.of(asked.missing, asked.decimal)
    if frame is not None:
        table = table_of_frame(frame, asked.ignore, habits)
    else:
        options = FileOptions(asked.encoding, asked.delimiter, asked.sheet, habits)
        table = read_table(path, text=columns.values(), ignore=asked.ignore, options=options)
    named = None if named is None else expanded(table, named)
    if like is not None and like.predicts_number and columns["label"] not in table.names:
        columns = columns | {"label": like.class_names[0]}
    return _Reader(table, asked, columns, sidecar, like).read(features, images, named)


@dataclasses.dataclass(frozen=True)
class Labels:
    """Ids, classes and splits of a table; ``known`` are the labels of those columns that were asked for, by id."""

    ids: list[str]
    labels: list[str]
    splits: list[str]
    known: dict[str, dict[str, float]]
    columns: tuple[Column, ...]
    remarks: tuple[str, ...]


def read_labels(path: Path, asked: Asked, concepts: Sequence[str]) -> Labels:
    """Samples without inputs: a table of which only ids, classes, splits and some yes/no columns are wanted."""
    options = FileOptions(asked.encoding, asked.delimiter, asked.sheet, Habits.of(asked.missing, asked.decimal))
    table = read_table(path, text=asked.columns.values(), ignore=asked.ignore, options=options)
    reader = _Reader(table, asked, asked.columns, None, None)
    ids = reader._ids()
    labels, splits = reader._labels_and_splits(ids, None)
    if reader.target.number:
        raise InputError(
            f"{path}, column {asked.label_column!r}: concepts without labels need classes, and this is a number; "
            "name another column or leave the table out"
        )
    wanted = [name for name in table.names if name in concepts]
    known: dict[str, dict[str, float]] = {}
    for one in concept_columns(table, wanted, {name: Said("binary") for name in wanted}):
        known[one.column] = dict(zip(ids, one.values[:, 0].tolist(), strict=True))
        reader.told[one.column] = Column(one.column, "concept", "binary", "true labels, in place of soft ones")
    left = [name for name in table.names if name not in asked.columns.values() and name not in wanted]
    if left:
        reader.remarks.append(f"not used: {', '.join(map(repr, left))} (no concept is called so)")
    return Labels(ids, labels, splits, known, tuple(reader.told.values()), tuple(reader.remarks))


class _Reader:
    """One table being read: the roles of its columns first, then concepts, then inputs."""

    def __init__(
        self, table: Table, asked: Asked, columns: dict[str, str], sidecar: Sidecar | None, like: Dataset | None
    ) -> None:
        self.table, self.asked, self.columns, self.sidecar, self.like = table, asked, columns, sidecar, like
        self.told: dict[str, Column] = {}
        self.remarks: list[str] = list(table.remarks)
        self.said = self._said()
        own = self.said.pop(columns["label"], None)
        self.target = target_of(table, columns["label"], own, asked.label_type, sidecar, like)

    def read(self, features: Any, images: str | Path | None, named: list[str] | None) -> Reading:
        table, columns = self.table, self.columns
        ids = self._ids()
        pictures = self._pictures(ids, Path(images)) if images is not None else None
        labels, splits = self._labels_and_splits(ids, pictures)
        said = self.said
        others = [name for name in table.names if name not in columns.values() and name not in (named or ())]
        if not others:
            raise InputError(
                f"{table.path}: no concept column; add one column a concept beside {', '.join(table.names)}"
            )
        concepts = concept_columns(
            table, others, {key: one for key, one in said.items() if key not in (named or ())}
        )
        for one in concepts:
            why = one.why if self.sidecar is None else "dataset.json says so"
            self.told[one.column] = Column(one.column, "concept", one.kind, why, one.otherwise)
        if self.sidecar is None and self.like is None:
            self.remarks += group_remarks(table, concepts)
        inputs = self._inputs(features, images, named, pictures, said)
        class_names, numbers = self._classes(labels)
        data = _dataset(ids, inputs, concepts, numbers, class_names, splits, self.sidecar, self.target)
        if columns["image"] in table.names:
            self._tell("image")
        order = {name: place for place, name in enumerate(table.names)}
        told = sorted(self.told.values(), key=lambda column: order.get(column.name, -1))
        return Reading(data, tuple(told), tuple(self.remarks))

    def _tell(self, role: str, kind: str = "text") -> None:
        name = self.columns[role]
        otherwise = f"another column: {option(f'{role}_column', 'NAME')}" if name == role else ""
        why = f"called {name!r}" if name == role else "you said so"
        self.told[name] = Column(name, role, kind, why, otherwise)

    def _ids(self) -> list[str]:
        table, name = self.table, self.columns["id"]
        alike = _like_id(table.names)
        if name not in table.names and name == "id" and alike is not None:
            raise InputError(
                f"{table.path}: no column 'id'; did you mean {alike!r}? Rename the column or pass "
                f"{option('id_column', alike)}"
            )
        if name not in table.names and name == "id":
            self.remarks.append(
                f"no column 'id': samples are called row-1 to row-{len(table)}; ids of your own: "
                f"{option('id_column')}"
            )
            return [f"row-{number}" for number in range(1, len(table) + 1)]
        table.require(name, "id_column")
        ids = table.text(name, "an id")
        _check_unique(table, name, ids)
        self._tell("id")
        return ids

    def _pictures(self, ids: Sequence[str], images: Path) -> list[str]:
        table, name = self.table, self.columns["image"]
        if name in table.names:
            return table.text(name, "a picture")
        own_ids = "id" in {column.role for column in self.told.values()}
        if name != "image" or not own_ids or not images.exists() or not pictures_in(images):
            table.require(name, "image_column")
        found = pictures_by_id(images, ids)
        self.remarks.append(
            f"no column 'image': each picture is the one that is called like its sample's id in {images}"
        )
        return found

    def _labels_and_splits(self, ids: Sequence[str], pictures: list[str] | None) -> tuple[list[str], list[str]]:
        table, label, split = self.table, self.columns["label"], self.columns["split"]
        folders = None
        if label not in table.names and label == "label" and pictures is not None and not self.target.number:
            folders = classes_by_folder(pictures)
        if folders is None:
            table.require(label, "label_column")
            labels = self.target.texts(table, label)
            self._tell("label", self.target.said(labels))
        else:
            labels = folders[0]
            self.remarks.append(
                f"no column 'label': the class is the folder a picture lies in ({len(set(labels))} classes); "
                f"another: {option('label_column')}"
            )
        if split in table.names:
            self._tell("split")
            return labels, _splits(table, split)
        if folders is not None and folders[1] is not None:
            self.remarks.append("the split is the top folder a picture lies in")
            return labels, folders[1]
        shares = ", ".join(f"{name} {share:.0%}" for name, share in zip(SPLITS, self.asked.splits, strict=False))
        self.remarks.append(
            f"no column {split!r}: splits by a hash of the id ({shares}); other shares: {option('splits')}"
        )
        return labels, split_by_id(ids, self.asked.splits)

    def _said(self) -> dict[str, Said]:
        said = said_types(self.asked.types)
        if self.sidecar is not None:
            known = dict.fromkeys(self.sidecar.concept_names, "binary")
            groups = {name: Said(kind) for name, kind in self.sidecar.concept_types.items()}
            return {name: Said(kind) for name, kind in known.items()} | groups | said
        if self.like is not None:
            return _said_like(self.like, self.table.names) | said
        return said

    def _inputs(
        self,
        features: Any,
        images: str | Path | None,
        named: list[str] | None,
        pictures: list[str] | None,
        said: Mapping[str, Said],
    ) -> Inputs:
        table = self.table
        if named is not None:
            known = _columns_of(self.like) if self.like is not None else None
            if known is not None and [column.name for column in known.columns] == named:
                return TensorInputs(known.read(table), columns=known)
            columns, why = feature_columns_of(table, named, said)
            for column in columns.columns:
                kind = "categorical" if column.values else "number"
                self.told[column.name] = Column(column.name, "feature", kind, why[column.name])
            return TensorInputs(columns.read(table), columns=columns)
        if features is not None:
            pixels = None if self.sidecar is None else self.sidecar.inputs == "pixels"
            kept = self.sidecar.feature_columns if self.sidecar is not None else None
            rows = given_features(features, len(table), str(table.path), pixels, gaps=kept is not None)
            return TensorInputs(rows, columns=kept)
        size = self.asked.image_size
        return ImageInputs(
            Path(images or ""),
            pictures or [],
            (size, size) if isinstance(size, int) else size,
            rows=table.places,
            table=f"{table.path}, {table.unit}",
        )

    def _classes(self, cells: Sequence[str]) -> tuple[list[str], Tensor]:
        if self.target.number:
            return [self.target.name], torch.tensor([float(cell) for cell in cells], dtype=torch.float64)
        names = list(self.sidecar.class_names) if self.sidecar is not None else _ordered(set(cells))
        index = {name: position for position, name in enumerate(names)}
        unknown = next((row for row, name in enumerate(cells) if name not in index), None)
        if unknown is not None:
            table = self.table
            where = f"{table.path}, {table.unit} {table.places[unknown]}, column {self.columns['label']!r}"
            raise unknown_name("class", cells[unknown], names, where=where)
        return names, torch.from_numpy(np.array([index[name] for name in cells], np.int64))


def _dataset(
    ids: list[str],
    inputs: Inputs,
    concepts: Sequence[Found],
    labels: Tensor,
    class_names: list[str],
    splits: list[str],
    sidecar: Sidecar | None,
    target: Target,
) -> Dataset:
    names = [name for one in concepts for name in one.names]
    values = torch.from_numpy(np.concatenate([one.values for one in concepts], axis=1))
    types = {one.column: one.kind for one in concepts if one.kind != "binary"}
    units = {one.column: one.unit for one in concepts if one.unit} | (sidecar.units if sidecar is not None else {})
    if sidecar is not None and set(sidecar.concept_names) == set(names):
        # Columns of one concept need not stand together in the dataset that was written.
        values = values[:, [names.index(name) for name in sidecar.concept_names]]
        names = list(sidecar.concept_names)
    kind = "number" if target.number else "class"
    return Dataset(ids, inputs, values, labels, names, class_names, splits, types, units, kind, target.unit)


def _said_like(data: Dataset, names: Sequence[str]) -> dict[str, Said]:
    """The types of a dataset's concepts, as far as a table has them as single columns or as groups."""
    said: dict[str, Said] = {}
    for concept in data.layout.concepts:
        if concept.type == "categorical" and concept.name in names:
            said[concept.name] = Said("categorical", concept.values)
        elif concept.type == "ordinal" and concept.name in names:
            said[concept.name] = Said("ordinal", concept.values)
        elif concept.type in ("categorical", "ordinal"):
            members = [data.concept_names[column] for column in concept.columns]
            if any(member in names for member in members):
                said[concept.name] = Said(concept.type)
        elif concept.name in names:
            said[concept.name] = Said(concept.type, unit=concept.unit)
    return said


def _columns_of(data: Dataset) -> FeatureColumns | None:
    return data.inputs.columns if isinstance(data.inputs, TensorInputs) else None


def _path_of(given: Any) -> Path:
    if isinstance(given, str | os.PathLike):
        return Path(given)
    raise InputError(
        f"read_dataset: expected the path of a table or folder, or a pandas DataFrame, got {type(given).__name__}"
    )


def _inputs_beside(folder: Path) -> tuple[Path | None, Path | None]:
    """The inputs that lie in the folder of a table: (features, images)."""
    for name in ("features.npy", "features.npz"):
        if (folder / name).is_file():
            return folder / name, None
    if (folder / "images.zip").is_file():
        return None, folder / "images.zip"
    return None, folder


def _check_inputs(path: Path, in_memory: bool, features: Any, images: Any) -> None:
    if features is not None and images is not None:
        raise InputError(
            f"both {option('features')} and {option('images')} were given; a dataset has one kind of input"
        )
    if features is None and images is None:
        if not in_memory and not path.exists():
            raise InputError(f"{path}: no such file or folder; check the path of the table")
        raise InputError(
            f"{path}: no inputs; pass {option('features')} (.npy, .npz, or columns of the table) or "
            f"{option('images')} (folder or zip)"
        )


def _feature_names(features: Any) -> list[str] | None:
    """Names of feature columns, if that is what was given, and not a file or an array."""
    if isinstance(features, list | tuple) and features and all(isinstance(name, str) for name in features):
        return list(features)
    if isinstance(features, list | tuple) and not features:
        raise InputError(f"{option('features')}: an empty list; name at least one column")
    return None


def _like_id(names: Sequence[str]) -> str | None:
    """A column that is called nearly ``id``: whether it is meant is asked for."""
    pattern = re.compile(r"(?i:ids?|.*[_ .-]ids?|identifier)|.*[a-z]ID")
    return next((name for name in names if pattern.fullmatch(name.strip())), None)


def _check_unique(table: Table, column: str, ids: Sequence[str]) -> None:
    if len(set(ids)) == len(ids):
        return
    seen: dict[str, int] = {}
    for row, name in enumerate(ids):
        if name in seen:
            first = table.places[seen[name]]
            raise table.error(
                row, column, f"duplicate id {name!r}, first on {table.unit} {first}; ids must be unique"
            )
        seen[name] = row


def _ordered(names: set[str]) -> list[str]:
    try:
        return sorted(names, key=lambda name: (int(name), name))
    except ValueError:
        return sorted(names)


def _splits(table: Table, column: str) -> list[str]:
    cells = table.text(column, f"a split ({', '.join(SPLITS)})")
    if not set(cells) <= set(SPLITS):
        row = next(row for row, name in enumerate(cells) if name not in SPLITS)
        where = f"{table.path}, {table.unit} {table.places[row]}, column {column!r}"
        raise unknown_name("split", cells[row], SPLITS, where=where)
    return cells
