"""CUB-200-2011 in its official layout: birds with attributes given picture by picture.

Class-level concepts follow Koh et al. (2020): the pictures of the training split vote, zeros that were marked
"not visible" do not, a tie counts as 1, and an attribute is kept if it holds in at least ten classes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ecbm.errors import InputError, unknown_name
from ecbm.read.archive_text import find_file, line_with, read_bytes, read_integers, read_numbered
from ecbm.read.dataset import Dataset
from ecbm.read.features import given_features
from ecbm.read.inputs import ImageInputs, Inputs, TensorInputs
from ecbm.read.splits import hold_out

__all__ = ["CubIndex", "cub", "read_cub_index", "vote_by_class"]

_NOT_VISIBLE = 1


@dataclasses.dataclass(frozen=True)
class CubIndex:
    """What the archive's small text files say: pictures, classes, official split and attribute names."""

    folder: Path
    ids: tuple[str, ...]
    paths: tuple[str, ...]
    labels: NDArray[np.int64]
    class_names: tuple[str, ...]
    training: NDArray[np.bool_]
    attribute_names: tuple[str, ...]


def read_cub_index(root: str | Path) -> CubIndex:
    """Read the archive without its pictures and without its attributes.

    Parameters
    ----------
    root
        The folder that holds ``CUB_200_2011/``, or that folder itself. ``attributes.txt`` may lie in either,
        or in ``CUB_200_2011/attributes/``.
    """
    root = Path(root)
    folder = root / "CUB_200_2011" if (root / "CUB_200_2011").is_dir() else root
    images = read_numbered(find_file("images.txt", folder), "picture")
    classes = read_numbered(find_file("classes.txt", folder), "class")
    labels = _matching(find_file("image_class_labels.txt", folder), images)
    training = _matching(find_file("train_test_split.txt", folder), images)
    names = read_numbered(find_file("attributes.txt", root, folder, folder.parent, folder / "attributes"), "name")
    numbers = {number: position for position, number in enumerate(classes)}
    for image, label in labels.items():
        if int(label) not in numbers:
            raise InputError(
                f"{folder / 'image_class_labels.txt'}: picture {image} has class {label}, "
                "which classes.txt does not name"
            )
        if training[image] not in ("0", "1"):
            raise InputError(
                f"{folder / 'train_test_split.txt'}: picture {image} has {training[image]!r}; "
                "1 is training, 0 is test"
            )
    return CubIndex(
        folder=folder,
        ids=tuple(str(number) for number in images),
        paths=tuple(images.values()),
        labels=np.array([numbers[int(labels[number])] for number in images], np.int64),
        class_names=tuple(classes.values()),
        training=np.array([training[number] == "1" for number in images]),
        attribute_names=tuple(names.values()),
    )


def _matching(path: Path, images: dict[int, str]) -> dict[int, str]:
    values = read_numbered(path, "value")
    lacking = next((number for number in images if number not in values), None)
    if lacking is not None:
        raise InputError(f"{path}: no line for picture {lacking} of images.txt; unpack the archive again")
    for number, value in values.items():
        if not value.isdigit():
            raise InputError(f"{path}: picture {number} has {value!r}, expected a whole number")
    return values


def cub(
    root: str | Path,
    *,
    level: Literal["class", "instance", "table"] = "class",
    features: str | Path | Tensor | NDArray[np.generic] | None = None,
    images: str | Path | None = None,
    image_size: int | tuple[int, int] = 224,
    validation: float | Collection[str] = 0.2,
    seed: int = 0,
    min_classes: int = 10,
    not_visible: Literal["missing", "zero"] = "missing",
) -> Dataset:
    """Read CUB-200-2011.

    Parameters
    ----------
    root
        The unpacked archive (see :func:`read_cub_index`).
    level
        ``"class"``: every picture has the concepts of its class, found by vote (Koh et al. 2020).
        ``"instance"``: every picture has its own; attributes are selected by the same vote.
        ``"table"``: every picture has those of ``class_attribute_labels_continuous.txt`` that are at least
        50 %. That table counts test pictures too and does not give the field's selection; it is there for
        archives without the per-picture file.
    features
        An array, or ``.npy``/``.npz`` file, used in place of pictures; row i is line i of ``images.txt``.
    images
        Folder or zip of the pictures; ``None``: ``images/`` of the archive.
    image_size
        Side, or (height, width), to which pictures are resized (their proportions are not kept).
    validation
        Share of the official training pictures held out for validation by a seeded draw, or the ids to hold
        out. Held-out pictures do not vote.
    seed
        Seed of that draw.
    min_classes
        Keep attributes that hold in at least so many classes; 0 keeps all 312.
    not_visible
        At the instance level: whether a 0 marked "not visible" is a missing label or a zero.

    Returns
    -------
    Dataset
        Ids are the archive's picture numbers.
    """
    if level not in ("class", "instance", "table"):
        raise unknown_name("level", level, ["class", "instance", "table"])
    if not_visible not in ("missing", "zero"):
        raise unknown_name("not_visible", not_visible, ["missing", "zero"])
    index = read_cub_index(root)
    splits = _splits(index, validation, seed)
    if level == "table":
        by_class = _class_table(index) >= 50
        values = by_class[index.labels].astype(np.float32)
    else:
        present, certainty = _picture_attributes(index)
        votes = np.array([name == "train" for name in splits])
        by_class = vote_by_class(present[votes], certainty[votes], index.labels[votes], len(index.class_names))
        if level == "class":
            values = by_class[index.labels].astype(np.float32)
        else:
            values = np.where(present < 0, np.nan, present).astype(np.float32)
            if not_visible == "missing":
                values[(present == 0) & (certainty == _NOT_VISIBLE)] = np.nan
    kept = np.flatnonzero(by_class.sum(0) >= min_classes)
    if not len(kept):
        raise InputError(f"{index.folder}: no attribute holds in {min_classes} classes; lower min_classes")
    inputs: Inputs
    if features is not None:
        inputs = TensorInputs(given_features(features, len(index.ids), f"{index.folder / 'images.txt'}"))
    else:
        size = (image_size, image_size) if isinstance(image_size, int) else image_size
        source = Path(images) if images is not None else index.folder / "images"
        inputs = ImageInputs(source, index.paths, size, table=f"{index.folder / 'images.txt'}, line")
    concepts = torch.from_numpy(np.ascontiguousarray(values[:, kept]))
    names = [index.attribute_names[position] for position in kept]
    return Dataset(index.ids, inputs, concepts, torch.from_numpy(index.labels), names, index.class_names, splits)


def vote_by_class(
    present: NDArray[np.int8], certainty: NDArray[np.int8], labels: NDArray[np.int64], classes: int
) -> NDArray[np.bool_]:
    """Which attributes hold in which class, by the votes of its pictures.

    A 1 and a 0 vote, unless the 0 is "not visible" (certainty 1); -1 (no line) does not. A tie counts as 1,
    and so does an attribute on which nobody votes.
    """
    balance = np.zeros((classes, present.shape[1]), np.int64)
    no = (present == 0) & (certainty != _NOT_VISIBLE)
    np.add.at(balance, labels, (present == 1).astype(np.int64) - no.astype(np.int64))
    result: NDArray[np.bool_] = balance >= 0
    return result


def _splits(index: CubIndex, validation: float | Collection[str], seed: int) -> list[str]:
    if isinstance(validation, (int, float)):
        held = np.zeros(len(index.ids), bool)
        official = np.flatnonzero(index.training)
        held[official] = hold_out(len(official), float(validation), seed)
    else:
        chosen = set(validation)
        unknown = sorted(chosen - set(np.array(index.ids)[index.training].tolist()))
        if unknown:
            raise InputError(f"validation id {unknown[0]!r} is not in the official training split")
        held = np.array([name in chosen for name in index.ids])
    names = np.where(index.training, np.where(held, "val", "train"), "test")
    return [str(name) for name in names]


def _picture_attributes(index: CubIndex) -> tuple[NDArray[np.int8], NDArray[np.int8]]:
    """(pictures, attributes) of 0, 1 or -1 (no line), and the certainties 1..4 (0: no line)."""
    path = index.folder / "attributes" / "image_attribute_labels.txt"
    if not path.is_file():
        raise InputError(
            f"{path}: no such file; unpack the whole archive, or pass level='table' to use its class table"
        )
    # The last field is the time an annotator took; a few lines of the archive have fields too many before it.
    raw = read_bytes(path)
    _, lines = read_integers(path, raw, 4, width=5)
    rows = np.full(max(map(int, index.ids)) + 1, -1)
    rows[[int(name) for name in index.ids]] = np.arange(len(index.ids))
    attributes = len(index.attribute_names)
    limits = ((0, len(rows) - 1), (1, attributes), (0, 1), (1, 4))
    for column, what in enumerate(("picture", "attribute", "present", "certainty")):
        low, high = limits[column]
        wrong = (lines[:, column] < low) | (lines[:, column] > high)
        if column == 0 and not wrong.any():
            wrong = rows[lines[:, 0]] < 0
        if wrong.any():
            cells = [str(value) for value in lines[int(wrong.argmax())]]
            line = line_with(raw, cells)
            raise InputError(f"{path}, line {line}: {what} {cells[column]} is unknown or out of range")
    present = np.full((len(index.ids), attributes), -1, np.int8)
    certainty = np.zeros((len(index.ids), attributes), np.int8)
    places = rows[lines[:, 0]], lines[:, 1] - 1
    present[places], certainty[places] = lines[:, 2], lines[:, 3]
    return present, certainty


def _class_table(index: CubIndex) -> NDArray[np.float64]:
    path = find_file("class_attribute_labels_continuous.txt", index.folder / "attributes", index.folder)
    shape = (len(index.class_names), len(index.attribute_names))
    try:
        table = np.array([line.split() for line in read_bytes(path).decode().splitlines() if line.strip()], float)
    except ValueError:
        table = np.empty(0)
    if table.shape != shape or not bool(((table >= 0) & (table <= 100)).all()):
        raise InputError(f"{path}: not {shape[0]} lines of {shape[1]} percentages; unpack the archive again")
    return table
