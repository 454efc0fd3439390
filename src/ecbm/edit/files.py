"""Edits as files: the fields of :class:`~ecbm.Edit` as JSON, with tables for what is new; or one table."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ecbm.edit.edit import Edit
from ecbm.edit.tables import corrections_from, is_table, yes_or_no_values
from ecbm.errors import InputError, unknown_name
from ecbm.files import write_json
from ecbm.read.columns import Table
from ecbm.read.dataset import Dataset
from ecbm.read.inputs import TensorInputs
from ecbm.read.reading import Asked, read_and_tell
from ecbm.read.table_files import read_table
from ecbm.read.truth import truth_value
from ecbm.read.write import write_dataset

__all__ = ["edit_content", "edit_from", "read_edit", "write_edit"]

_FIELDS = (
    "correct_concepts",
    "correct_labels",
    "remove_concepts",
    "add_concepts",
    "remove_samples",
    "add_samples",
    "concept_types",
    "units",
)
_SAMPLE_FIELDS = ("table", "features", "images", "ignore")


def read_edit(path: str | Path, data: Dataset | None = None, removed: Mapping[str, int] | None = None) -> Edit:
    """Read an edit file.

    Paths in it (``add_samples``, ``add_concepts``) are relative to the file.

    Parameters
    ----------
    path
        A JSON file, or a table of corrections (CSV, Parquet) with the columns ``id``, ``concept`` and ``value``, or
        ``id`` and ``label``, or all four.
    data
        The dataset to be edited; new pictures are resized to its size, new columns compared with its concepts.
    removed
        Concepts that it had, and the version that removed each; named where new samples still have them.

    Raises
    ------
    InputError
        One line: the file, the place in it, and what is wrong.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "edit.json"
    >>> _ = path.write_text('{"correct_labels": [{"id": "a", "label": "wren"}], "remove_samples": ["b"]}')
    >>> print(read_edit(path))
    correct 1 class label; remove 1 sample
    """
    path = Path(path)
    if is_table(path):
        concepts, labels = corrections_from(path, data)
        try:
            return Edit(correct_concepts=concepts, correct_labels=labels)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); check the path of the edit") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text (byte {error.start}); save the edit as UTF-8") from None
    try:
        content = json.loads(text, object_pairs_hook=_no_duplicates, parse_constant=_no_constants)
    except RecursionError:
        raise InputError(f"{path}: nested too deeply for an edit") from None
    except ValueError as error:
        raise InputError(f"{path}: not a JSON edit ({error})") from None
    return edit_from(content, str(path), path.parent, data, removed)


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{name!r} is given twice; give it once")
        found[name] = value
    return found


def _no_constants(name: str) -> float:
    raise ValueError(f"{name} is not a number here; use null for a missing label")


def edit_from(
    content: Any,
    where: str,
    folder: Path,
    data: Dataset | None = None,
    removed: Mapping[str, int] | None = None,
) -> Edit:
    """The edit of a JSON value; ``where`` names it in messages, and paths in it start at ``folder``."""
    if not isinstance(content, Mapping):
        raise InputError(
            f"{where}: an edit is an object with fields such as 'correct_concepts', got {_kind(content)}"
        )
    for name in content:
        if name not in _FIELDS:
            raise unknown_name("field", name, _FIELDS, where)
    given = {name: value for name, value in content.items() if value is not None}
    concepts = [
        (_text(item, "id", place), _text(item, "concept", place), _given_value(item, place, data))
        for item, place in _items(given, "correct_concepts", ("id", "concept", "value"), where)
    ]
    labels = [
        (_text(item, "id", place), _given_label(item, place, data))
        for item, place in _items(given, "correct_labels", ("id", "label"), where)
    ]
    added = given.get("add_samples")
    new = given.get("add_concepts")
    try:
        types = _words(given, "concept_types", where)
        columns = None if new is None else _new_concepts(new, f"{where}: add_concepts", folder, types)
        samples = None
        if added is not None:
            fresh = Edit(add_concepts=columns, concept_types=types).add_concepts
            known = None if data is None else {*data.concept_names, *fresh}
            samples = _new_samples(added, f"{where}: add_samples", folder, data)
            _check_columns(added, samples, known, removed or {}, f"{where}: add_samples")
        return Edit(
            correct_concepts=concepts,
            correct_labels=labels,
            remove_concepts=_names(given, "remove_concepts", where),
            add_concepts=columns,
            remove_samples=_names(given, "remove_samples", where),
            add_samples=samples,
            concept_types=types,
            units=_words(given, "units", where),
        )
    except InputError as error:
        if str(error).startswith(where):
            raise
        raise InputError(f"{where}: {error}") from None


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    words = {
        dict: "an object",
        list: "a list",
        str: "text",
        bool: "true or false",
        int: "a number",
        float: "a number",
    }
    return words.get(type(value), type(value).__name__)


def _items(
    given: Mapping[str, Any], field: str, keys: Sequence[str], where: str
) -> list[tuple[Mapping[str, Any], str]]:
    items = given.get(field, [])
    if not isinstance(items, list):
        raise InputError(f"{where}: {field}: expected a list of objects with {', '.join(keys)}, got {_kind(items)}")
    found = []
    for number, item in enumerate(items, 1):
        place = f"{where}: {field}, item {number}"
        if not isinstance(item, Mapping):
            raise InputError(f"{place}: expected an object with {', '.join(keys)}, got {_kind(item)}")
        for name in item:
            if name not in keys:
                raise unknown_name("field", name, keys, place)
        for name in keys:
            if name not in item:
                raise InputError(f"{place}: {name!r} is missing; give {', '.join(keys)}")
        found.append((item, place))
    return found


def _text(item: Mapping[str, Any], key: str, place: str) -> str:
    return _as_text(item[key], f"{place}: {key!r}")


def _as_text(value: Any, place: str) -> str:
    if not isinstance(value, str):
        hint = f'; write it in quotes, "{value}"' if type(value) in (int, float) else ""
        raise InputError(f"{place}: expected text, got {_kind(value)}{hint}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InputError(f"{place}: is not valid text (half of a surrogate pair)") from None
    return value


def _given_label(item: Mapping[str, Any], place: str, data: Dataset | None) -> str:
    """A class by name; where the data's labels are numbers, a number."""
    label = item["label"]
    if data is not None and data.predicts_number and type(label) in (int, float):
        return str(label)
    return _text(item, "label", place)


def _given_value(item: Mapping[str, Any], place: str, data: Dataset | None) -> float | str | None:
    """The value of a correction; with data, one that its concept's type allows."""
    concept = None if data is None else data.layout.by_name.get(item["concept"])
    if concept is None or concept.type == "binary":
        truth = truth_value(item["value"]) if isinstance(item["value"], str) else None
        return _as_number(item["value"], f"{place}: 'value'") if truth is None else truth
    return _typed_value(item["value"], f"{place}: 'value'")


def _typed_value(value: Any, place: str) -> float | str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{place}: expected a number, a name or null, got {_kind(value)}")
    return float(value)


def _words(given: Mapping[str, Any], field: str, where: str) -> dict[str, str]:
    words = given.get(field, {})
    if not isinstance(words, Mapping):
        raise InputError(f"{where}: {field}: expected an object from concepts to text, got {_kind(words)}")
    return {name: _as_text(word, f"{where}: {field}, {name!r}") for name, word in words.items()}


def _as_number(value: Any, place: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{place}: expected a number from 0 to 1, yes, no or null, got {_kind(value)}")
    if not 0 <= value <= 1:
        shown = str(value) if len(str(value)) < 30 else "a number"
        raise InputError(f"{place}: {shown} is not in [0, 1]; use null for missing")
    return float(value)


def _names(given: Mapping[str, Any], field: str, where: str) -> list[str]:
    names = given.get(field, [])
    if not isinstance(names, list):
        raise InputError(f"{where}: {field}: expected a list of names, got {_kind(names)}")
    return [_as_text(name, f"{where}: {field}, item {number}") for number, name in enumerate(names, 1)]


def _path(value: Any, place: str, folder: Path) -> Path:
    text = _as_text(value, place)
    if not text or "\0" in text:
        raise InputError(f"{place}: not a path")
    return folder / text


def _new_concepts(
    value: Any, place: str, folder: Path, types: Mapping[str, str]
) -> dict[str, dict[str, float | str | None]]:
    """New concepts, from a table with an id column and one column a concept, or given in place."""
    if isinstance(value, Mapping):
        found: dict[str, dict[str, float | str | None]] = {}
        for name, labels in value.items():
            own = f"{place}: {_as_text(name, place)!r}"
            if not name:
                raise InputError(f"{place}: a concept needs a name")
            if not isinstance(labels, Mapping):
                raise InputError(f"{own}: expected an object from ids to values, got {_kind(labels)}")
            words = any(isinstance(label, str) for label in labels.values())
            read = _typed_value if words or types.get(name, "binary") != "binary" else _as_number
            found[name] = {_as_text(i, own): read(v, f"{own} of sample {i!r}") for i, v in labels.items()}
        return found
    path = _path(value, place, folder)
    table = read_table(path, text=["id"], ignore=())
    table.require("id")
    ids = table.text("id", "an id")
    if len(set(ids)) != len(ids):
        twice = next(name for name in ids if ids.count(name) > 1)
        raise InputError(f"{path}: duplicate id {twice!r}; give one row a sample")
    names = [name for name in table.names if name != "id"]
    if not names:
        raise InputError(f"{path}: no concept column; add one beside 'id'")
    return {name: _column_values(table, name, types.get(name), ids) for name in names}


def _column_values(table: Table, name: str, kind: str | None, ids: Sequence[str]) -> dict[str, float | str | None]:
    """The labels of one column by sample, without those that are missing."""
    if kind == "categorical":
        words = table.optional_text(name)
        return {sample: word for sample, word in zip(ids, words, strict=True) if word is not None}
    if kind in (None, "binary"):
        numbers = yes_or_no_values(table, name)
    else:
        numbers = table.numbers(name, f"{name!r} is {kind}").tolist()
    return {sample: number for sample, number in zip(ids, numbers, strict=True) if not math.isnan(number)}


def _new_samples(value: Any, place: str, folder: Path, data: Dataset | None) -> Dataset:
    """New samples; those without a split column are for training."""
    features: Path | None = None
    images: Path | None = None
    ignore: list[str] = []
    if isinstance(value, Mapping):
        for name in value:
            if name not in _SAMPLE_FIELDS:
                raise unknown_name("field", name, _SAMPLE_FIELDS, place)
        if "table" not in value:
            raise InputError(f"{place}: 'table' is missing; give the path of a CSV or Parquet file")
        path = _path(value["table"], f"{place}: 'table'", folder)
        features = (
            None if value.get("features") is None else _path(value["features"], f"{place}: 'features'", folder)
        )
        images = None if value.get("images") is None else _path(value["images"], f"{place}: 'images'", folder)
        ignore = _names({"ignore": value.get("ignore") or []}, "ignore", place)
    else:
        path = _path(value, place, folder)
    pictures = data is not None and len(data.inputs.shape) == 3 and data.inputs.shape[0] == 3
    columns = data is not None and isinstance(data.inputs, TensorInputs) and data.inputs.columns is not None
    if features is None and images is None and not path.is_dir():
        features, images = _inputs_beside(path, pictures)
        if features is None and images is None and not columns:
            raise InputError(
                f"{place}: no inputs for {path.name}; put {path.stem}.npy beside it, or give an object "
                '{"table": …, "features": …} or {"table": …, "images": …}'
            )
    size = (int(data.inputs.shape[1]), int(data.inputs.shape[2])) if data is not None and pictures else None
    everything = (1.0, 0.0, 0.0)
    asked = Asked(features, images, size, everything, ignore=ignore)
    return read_and_tell(path, asked, like=data).data


def _check_columns(
    value: Any, samples: Dataset, known: set[str] | None, removed: Mapping[str, int], place: str
) -> None:
    """Refuse a column that is no concept of the data, with the file, the column and how to leave it out."""
    extra = [] if known is None else [name for name in samples.concept_names if name not in known]
    if not extra:
        return
    table = value["table"] if isinstance(value, Mapping) else value
    was = f"was removed in version {removed[extra[0]]}" if extra[0] in removed else "is not in the data"
    near = str(unknown_name("concept", extra[0], known or ())).split("; ", 1)[1]
    hint = f" ({near})" if extra[0] not in removed and near.startswith("did you mean") else ""
    given = dict(value) if isinstance(value, Mapping) else {"table": table}
    given["ignore"] = [*given.get("ignore", []), *extra]
    raise InputError(
        f"{place}: {table}, column {extra[0]!r}: this concept {was}{hint}; to leave it out write "
        f'"add_samples": {json.dumps(given, ensure_ascii=False)}'
    )


def _inputs_beside(path: Path, pictures: bool) -> tuple[Path | None, Path | None]:
    """Inputs that lie beside a table and are called like it; pictures may lie in its folder."""
    for suffix in (".npy", ".npz"):
        if path.with_suffix(suffix).is_file():
            return path.with_suffix(suffix), None
    if path.with_suffix(".zip").is_file():
        return None, path.with_suffix(".zip")
    return None, path.parent if pictures else None


def write_edit(edit: Edit, path: str | Path) -> Path:
    """Write an edit as a file that :func:`read_edit` reads back equal; new samples go to a folder beside it."""
    path = Path(path)
    content = edit_content(edit)
    if edit.add_samples is not None:
        folder = path.with_name(f"{path.stem}_samples")
        write_dataset(edit.add_samples, folder)
        content["add_samples"] = folder.name
    write_json(path, content)
    return path


def edit_content(edit: Edit) -> dict[str, Any]:
    """What an edit file holds, but for new samples, which lie in files of their own."""

    def plain(value: float | str) -> float | str | None:
        return None if not isinstance(value, str) and math.isnan(value) else value

    content: dict[str, Any] = {
        "correct_concepts": [{"id": i, "concept": c, "value": plain(v)} for i, c, v in edit.correct_concepts],
        "correct_labels": [{"id": i, "label": label} for i, label in edit.correct_labels],
        "remove_concepts": list(edit.remove_concepts),
        "add_concepts": {
            name: {i: plain(v) for i, v in values.items()} for name, values in edit.add_concepts.items()
        },
        "remove_samples": list(edit.remove_samples),
        "concept_types": dict(edit.concept_types),
        "units": dict(edit.units),
    }
    return {name: value for name, value in content.items() if value}
