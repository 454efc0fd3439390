"""``dataset.json``: what a table cannot say about a dataset that was written to a folder."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from ecbm.errors import InputError
from ecbm.read.feature_columns import FeatureColumns
from ecbm.read.targets import TARGETS

__all__ = ["SIDECAR", "Sidecar", "find_table", "read_sidecar", "write_sidecar"]

SIDECAR = "dataset.json"
_FORMAT, _VERSION = "ecbm-dataset", 1


@dataclasses.dataclass(frozen=True)
class Sidecar:
    """Order of classes and concepts, how the columns are called, and how the inputs are stored.

    ``inputs`` is ``"features"`` (numbers), ``"pixels"`` (a uint8 array) or ``"images"`` (picture files).
    """

    inputs: str
    class_names: tuple[str, ...]
    concept_names: tuple[str, ...]
    columns: dict[str, str]
    fingerprint: str
    image_size: tuple[int, int] | None = None
    concept_types: dict[str, str] = dataclasses.field(default_factory=dict)
    units: dict[str, str] = dataclasses.field(default_factory=dict)
    feature_columns: FeatureColumns | None = None
    target: str = "class"
    target_unit: str = ""


def write_sidecar(folder: Path, sidecar: Sidecar) -> None:
    """Write ``dataset.json``."""
    content = {"format": _FORMAT, "version": _VERSION, **dataclasses.asdict(sidecar)}
    if sidecar.feature_columns is not None:
        content["feature_columns"] = json.loads(sidecar.feature_columns.to_bytes())
    else:
        del content["feature_columns"]
    # Where every concept is binary the file is what it was before there were types; and so it is with classes.
    content = {name: value for name, value in content.items() if value != {}}
    if sidecar.target == "class":
        del content["target"], content["target_unit"]
    text = json.dumps(content, indent=2, ensure_ascii=False)
    (folder / SIDECAR).write_text(text + "\n", encoding="utf-8")


def read_sidecar(folder: Path) -> Sidecar | None:
    """Read ``dataset.json`` of a folder; ``None`` where there is none."""
    path = folder / SIDECAR
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path}: not readable JSON ({reason}); write the dataset again") from None
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise InputError(f"{path}: not a dataset of this program (no format {_FORMAT!r})")
    if content.get("version") != _VERSION:
        raise InputError(
            f"{path}: format version {content.get('version')!r}, this program reads {_VERSION}; upgrade ecbm"
        )
    size = content.get("image_size")
    columns = content.get("columns")
    types, units = content.get("concept_types", {}), content.get("units", {})
    sound = (
        content.get("inputs") in ("features", "pixels", "images")
        and _texts(content.get("class_names"))
        and _texts(content.get("concept_names"))
        and isinstance(columns, dict)
        and {"id", "split", "label", "image"} == set(columns)
        and _texts(list(columns.values()))
        and isinstance(content.get("fingerprint"), str)
        and _texts_by_name(types)
        and _texts_by_name(units)
        and content.get("target", "class") in TARGETS
        and isinstance(content.get("target_unit", ""), str)
        and (size is None or (isinstance(size, list) and len(size) == 2 and all(type(s) is int for s in size)))
    )
    given = content.get("feature_columns")
    try:
        features = None if given is None else FeatureColumns.from_plain(given)
    except (TypeError, KeyError, AttributeError):
        sound = False
    if not sound:
        raise InputError(f"{path}: damaged (a field is missing or of the wrong kind); write the dataset again")
    return Sidecar(
        inputs=content["inputs"],
        class_names=tuple(content["class_names"]),
        concept_names=tuple(content["concept_names"]),
        columns=dict(content["columns"]),
        fingerprint=content["fingerprint"],
        image_size=None if size is None else (size[0], size[1]),
        concept_types=types,
        units=units,
        feature_columns=features,
        target=content.get("target", "class"),
        target_unit=content.get("target_unit", ""),
    )


def find_table(folder: Path) -> Path:
    """The table of a folder: ``samples.csv`` or ``samples.parquet``."""
    for name in ("samples.csv", "samples.parquet"):
        if (folder / name).is_file():
            return folder / name
    raise InputError(f"{folder}: no samples.csv or samples.parquet in this folder; give the table's own path")


def _texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _texts_by_name(value: object) -> bool:
    return isinstance(value, dict) and _texts(list(value.values()))
