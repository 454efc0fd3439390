"""CelebA in its official layout: faces with forty attributes; some make the class, the others are concepts.

The archive names no classes. Following Espinosa Zarlenga et al. (2022), as the ECBM paper does, the class is
the combination of the eight most balanced attributes; unlike there, none of the eight is also a concept,
because a concept that is a bit of the label would hand it over.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ecbm.errors import InputError, unknown_name
from ecbm.read.archive_text import find_file, line_with, read_bytes, read_integers
from ecbm.read.dataset import Dataset
from ecbm.read.features import given_features
from ecbm.read.inputs import ImageInputs, Inputs, TensorInputs

__all__ = ["celeba"]

_SPLITS = ("train", "val", "test")


def celeba(
    root: str | Path,
    *,
    labels: int | Sequence[str] = 8,
    concepts: Sequence[str] | None = None,
    features: str | Path | Tensor | NDArray[np.generic] | None = None,
    images: str | Path | None = None,
    image_size: int | tuple[int, int] = 64,
) -> Dataset:
    """Read CelebA.

    Classes are the combinations of the label attributes that occur in the training split, named by the
    attributes present (``"Male+Smiling"``, ``"none"``). Validation and test pictures with a combination that
    no training picture has are left out, with a warning that says how many.

    Parameters
    ----------
    root
        Folder with ``list_attr_celeba.txt``, ``list_eval_partition.txt`` and ``img_align_celeba/`` (or its
        zip); the archive's folders ``Anno``, ``Eval`` and ``Img`` are looked into as well.
    labels
        The attributes that make the class, or how many of the most balanced ones (share in the training split
        nearest to one half).
    concepts
        The attributes that are concepts; ``None``: all that are no labels.
    features
        An array, or ``.npy``/``.npz`` file, used in place of pictures; row i is picture i of the attribute
        list.
    images
        Folder or zip of the pictures, if elsewhere.
    image_size
        Side, or (height, width), to which pictures are resized (their proportions are not kept).

    Returns
    -------
    Dataset
        Ids are the file names.
    """
    root = Path(root)
    path = find_file("list_attr_celeba.txt", root, root / "Anno")
    files, names, values = _attributes(path)
    splits = _partition(find_file("list_eval_partition.txt", root, root / "Eval"), files)
    label_names = _label_attributes(path, labels, names, values[splits == 0])
    concept_names = [name for name in names if name not in label_names] if concepts is None else list(concepts)
    for name in concept_names:
        if name not in names:
            raise unknown_name("attribute", name, names, where=str(path))
        if name in label_names:
            raise InputError(
                f"attribute {name!r} is a label, so it cannot be a concept: it would give the class away"
            )
    bits = values[:, [names.index(name) for name in label_names]]
    codes = bits @ (1 << np.arange(len(label_names), dtype=np.int64))
    classes, counts = np.unique(codes[splits == 0], return_counts=True)
    if not counts.size:
        raise InputError(f"{path}: no picture is in the training split; check list_eval_partition.txt")
    kept = np.flatnonzero(np.isin(codes, classes))
    if len(kept) < len(files):
        warnings.warn(
            f"left out {len(files) - len(kept)} pictures whose combination of labels no training picture has",
            stacklevel=2,
        )
    inputs: Inputs
    if features is not None:
        inputs = TensorInputs(given_features(features, len(files), str(path))).subset(kept.tolist())
    else:
        inputs = _pictures(root, images, [files[row] for row in kept], image_size, path, kept)
    columns = [names.index(name) for name in concept_names]
    return Dataset(
        [files[row] for row in kept],
        inputs,
        torch.from_numpy(values[kept][:, columns].astype(np.float32)),
        torch.from_numpy(np.searchsorted(classes, codes[kept])),
        concept_names,
        [_class_name(int(code), label_names) for code in classes],
        [_SPLITS[split] for split in splits[kept]],
    )


def _attributes(path: Path) -> tuple[list[str], list[str], NDArray[np.int64]]:
    """File names, attribute names and a (pictures, attributes) array of 0 and 1."""
    raw = read_bytes(path)
    parts = raw.split(b"\n", 2)
    if len(parts) < 3 or not parts[0].strip().isdigit():
        raise InputError(f"{path}, line 1: {parts[0].strip()[:40]!r} is not the number of pictures")
    names = parts[1].decode("utf-8", "replace").split()
    if not names or len(set(names)) != len(names):
        raise InputError(f"{path}, line 2: attribute names are missing or stand twice")
    files, values = read_integers(path, parts[2], len(names), named=True, first_line=3)
    if len(files) != int(parts[0]):
        raise InputError(f"{path}, line 1: says {int(parts[0])} pictures but {len(files)} follow; unpack it again")
    wrong = np.abs(values) != 1
    if wrong.any():
        row, column = np.argwhere(wrong)[0].tolist()
        line = line_with(parts[2], [files[row]], first_line=3)
        raise InputError(f"{path}, line {line}, column {names[column]!r}: {values[row, column]} is not 1 or -1")
    return files, names, (values + 1) // 2


def _partition(path: Path, files: Sequence[str]) -> NDArray[np.int64]:
    raw = read_bytes(path)
    listed, values = read_integers(path, raw, 1, named=True)
    wrong = (values[:, 0] < 0) | (values[:, 0] > 2)
    if wrong.any():
        row = int(wrong.argmax())
        line = line_with(raw, [listed[row]])
        raise InputError(f"{path}, line {line}: {values[row, 0]} is not 0 (train), 1 (val) or 2 (test)")
    by_name = dict(zip(listed, values[:, 0].tolist(), strict=True))
    lacking = next((name for name in files if name not in by_name), None)
    if lacking is not None:
        raise InputError(f"{path}: no line for picture {lacking!r} of the attribute list; unpack it again")
    return np.array([by_name[name] for name in files], np.int64)


def _label_attributes(
    path: Path, labels: int | Sequence[str], names: Sequence[str], training: NDArray[np.int64]
) -> list[str]:
    if isinstance(labels, int):
        if not 0 < labels < len(names):
            raise InputError(f"labels={labels}: give 1 to {len(names) - 1} of the {len(names)} attributes")
        imbalance = np.abs(training.mean(0) - 0.5) if len(training) else np.zeros(len(names))
        chosen = sorted(np.argsort(imbalance, kind="stable")[:labels].tolist())
        return [names[position] for position in chosen]
    for name in labels:
        if name not in names:
            raise unknown_name("attribute", name, names, where=str(path))
    if not labels or len(set(labels)) != len(labels) or len(labels) > 20:
        raise InputError(f"labels={list(labels)!r}: give 1 to 20 different attributes")
    return list(labels)


def _class_name(code: int, names: Sequence[str]) -> str:
    if len(names) == 1:
        return names[0] if code else f"not {names[0]}"
    return "+".join(name for bit, name in enumerate(names) if code >> bit & 1) or "none"


def _pictures(
    root: Path,
    images: str | Path | None,
    files: Sequence[str],
    image_size: int | tuple[int, int],
    listing: Path,
    rows: NDArray[np.int64],
) -> ImageInputs:
    if images is not None:
        source = Path(images)
    else:
        folders = (root, root / "Img")
        zipped = next((f / "img_align_celeba.zip" for f in folders if (f / "img_align_celeba.zip").is_file()), None)
        has_folder = any((folder / "img_align_celeba").is_dir() for folder in folders)
        source = zipped if zipped and not has_folder else find_file("img_align_celeba", *folders)
    # The official zip keeps its folder's name in front of every file.
    inside = "img_align_celeba/" if source.is_file() else ""
    size = (image_size, image_size) if isinstance(image_size, int) else image_size
    lines = [int(row) + 3 for row in rows]
    return ImageInputs(source, [inside + name for name in files], size, lines, table=f"{listing}, line")
