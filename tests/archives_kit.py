"""Miniature archives in the official layouts."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

CELEBA_ATTRIBUTES = [f"Attribute_{number:02d}" for number in range(40)]
OAI_COLUMNS = [
    "xrosfm", "xrscfm", "xrjsm", "xrostm", "xrsctm", "xrosfl", "xrscfl", "xrjsl", "xrostl", "xrsctl",
]  # fmt: skip


def write_picture(path: Path, seed: int = 0, size: tuple[int, int] = (9, 7), **options: object) -> Path:
    """A picture of noise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path, **options)
    return path


def cub_files(
    root: Path,
    lines: list[str] | None,
    *,
    classes: int = 2,
    attributes_inside: bool = False,
    pictures: bool = True,
) -> Path:
    """Two training pictures and one test picture a class, four attributes.

    ``lines`` are the lines of the per-picture attribute file.
    """
    folder = root / "CUB_200_2011"
    (folder / "attributes").mkdir(parents=True)
    labels = range(1, classes + 1)
    paths = [f"{label:03d}.Bird_{label}/Bird_{label}_{k}.jpg" for label in labels for k in (1, 2, 3)]
    numbered = lambda values: "".join(f"{i} {v}\n" for i, v in enumerate(values, 1))  # noqa: E731
    (folder / "images.txt").write_text(numbered(paths))
    (folder / "classes.txt").write_text(numbered([f"{label:03d}.Bird_{label}" for label in labels]))
    (folder / "image_class_labels.txt").write_text(numbered([label for label in labels for _ in range(3)]))
    (folder / "train_test_split.txt").write_text(numbered([1, 1, 0] * classes))
    names = ["has_bill::long", "has_bill::short", "has_wing::red", "has_wing::blue"]
    ((folder if attributes_inside else root) / "attributes.txt").write_text(numbered(names))
    (folder / "attributes" / "class_attribute_labels_continuous.txt").write_text("50 49.9 0 1\n0 80 60 2\n")
    if lines is not None:
        (folder / "attributes" / "image_attribute_labels.txt").write_text("\n".join(lines) + "\n")
    if pictures:
        for seed, path in enumerate(paths):
            write_picture(folder / "images" / path, seed, (20 + seed, 30))
    return root


def celeba_files(
    root: Path,
    values: np.ndarray | None = None,
    *,
    attributes: str | None = None,
    names: Sequence[str] = CELEBA_ATTRIBUTES,
) -> Path:
    """Twelve faces with forty attributes; the values are ±1 from a seed, the splits 8/2/2."""
    root.mkdir()
    if values is None:
        values = np.random.default_rng(5).integers(0, 2, (12, 40))
        values[8:] = values[:4]  # the combinations of the held-out faces occur in training too
    files = [f"{number:06d}.jpg" for number in range(1, len(values) + 1)]
    rows = [f"{name} " + " ".join(f"{2 * v - 1:2d}" for v in row) for name, row in zip(files, values, strict=True)]
    text = f"{len(files)}\n{' '.join(names)} \n" + "\n".join(rows) + "\n"
    (root / "list_attr_celeba.txt").write_text(attributes or text)
    parts = [0] * (len(files) - 4) + [1, 1, 2, 2]
    partition = "".join(f"{name} {part}\n" for name, part in zip(files, parts, strict=True))
    (root / "list_eval_partition.txt").write_text(partition)
    for seed, name in enumerate(files):
        write_picture(root / "img_align_celeba" / name, seed, (22, 18))
    return root


def oai_files(root: Path, *, subfolder: str = "show_both_knees_True", codes: bytes | None = None) -> Path:
    """Three splits of three knees each, in Koh's layout."""
    for place, split in enumerate(("train", "val", "test")):
        folder = root / split / subfolder
        folder.mkdir(parents=True)
        barcodes = [f"0166079{place}{row:04d}" for row in range(3)]
        header = ",".join(["", "barcdbu", "side", "note", "xrkl", *OAI_COLUMNS])
        lines = [header]
        for row, barcode in enumerate(barcodes):
            grades = [f"{(row + column) % 4}.0" for column in range(10)]
            grades[9] = "" if row == 2 else "1.6"
            # The number has lost its leading zero, as in the real table.
            lines.append(",".join([str(row), barcode.lstrip("0"), "1", "a b", f"{row * 2}.0", *grades]))
            knee = np.random.default_rng(row).normal(size=(8, 6)).astype(np.float32)
            np.savez(folder / f"image_{row}.npz", knee)
        (folder / "non_image_data.csv").write_text("\n".join(lines) + "\n")
        content = codes or pickle.dumps([f"{barcode}*1" for barcode in barcodes])
        (folder / "image_codes.pkl").write_bytes(content)
    return root
