"""Answers and annotators from files: what people found, and who labelled what."""

from __future__ import annotations

import csv
import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ecbm.errors import InputError, unknown_name

__all__ = ["Answer", "read_annotators", "read_answers"]

_YES, _NO = ("yes", "true", "1", "wrong"), ("no", "false", "0", "right")


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a person found about one label: whether it was wrong.

    ``concept`` is ``None`` for a class label. ``recorded`` is the concept label that was looked at, where it is
    known; otherwise the one that the data holds now.
    """

    id: str
    concept: str | None
    wrong: bool
    recorded: float | None = None


def _judged(value: Any, where: str) -> bool | None:
    """Yes, no, or nothing yet."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text in _YES or text in _NO:
        return text in _YES
    raise InputError(f"{where}: 'wrong' is {value!r}; write yes or no, or leave it empty")


def _answer(item: Mapping[str, Any], where: str) -> Answer | None:
    for key in ("id", "concept"):
        if key not in item:
            raise InputError(f"{where}: {key!r} is missing; give id, concept (empty for a class label) and wrong")
    judged = _judged(item.get("wrong"), where)
    if judged is None:
        return None
    concept = item["concept"] or None
    recorded = item.get("recorded")
    if concept is None or recorded in (None, ""):
        return Answer(str(item["id"]), concept, judged)
    try:
        value = float(recorded)
    except (TypeError, ValueError):
        raise InputError(f"{where}: 'recorded' is {recorded!r}; give 0 or 1, or leave it out") from None
    if value not in (0.0, 1.0):
        raise InputError(f"{where}: 'recorded' is {value:g}; give 0 or 1, or leave it out")
    return Answer(str(item["id"]), str(concept), judged, value)


def read_answers(path: str | Path, ids: Sequence[str], concepts: Sequence[str]) -> list[Answer]:
    """Read answers: the output of ``ecbm suggest --json`` with ``"wrong": true`` or ``false`` written into what was
    looked at, a list of such objects, or a CSV with the columns id, concept and wrong. What has no verdict yet is
    skipped.

    Parameters
    ----------
    path
        ``.json`` or ``.csv``.
    ids, concepts
        The ids and concepts that exist; others are refused.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "answers.csv"
    >>> _ = path.write_text("id,concept,wrong\\na,striped,yes\\nb,striped,no\\n")
    >>> read_answers(path, ["a", "b"], ["striped"])[0]
    Answer(id='a', concept='striped', wrong=True, recorded=None)
    """
    path = Path(path)
    text = _text(path)
    items: list[tuple[Mapping[str, Any], str]] = []
    if path.suffix.lower() == ".csv":
        reader = csv.DictReader(text.splitlines())
        for name in ("id", "concept", "wrong"):
            if name not in (reader.fieldnames or []):
                raise InputError(f"{path}: no column {name!r}; answers have the columns id, concept and wrong")
        items = [(row, f"{path}, line {number}") for number, row in enumerate(reader, 2)]
    else:
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}: not JSON ({' '.join(str(error).split())}); give .json or .csv") from None
        found = content
        if isinstance(content, Mapping):
            found = [*content.get("suggestions", []), *content.get("rare", []), *content.get("checks", [])]
        if not isinstance(found, list) or not all(isinstance(item, Mapping) for item in found):
            raise InputError(f"{path}: expected a list of answers, or what 'ecbm suggest --json' prints")
        items = [(item, f"{path}, item {number}") for number, item in enumerate(found, 1)]
    known_ids, known_concepts = set(ids), set(concepts)
    answers = []
    for item, where in items:
        answer = _answer(item, where)
        if answer is None:
            continue
        if answer.id not in known_ids:
            raise unknown_name("sample id", answer.id, ids, where)
        if answer.concept is not None and answer.concept not in known_concepts:
            raise unknown_name("concept", answer.concept, concepts, where)
        answers.append(answer)
    return answers


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); check the path") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text (byte {error.start}); save it as UTF-8") from None


def read_annotators(source: str) -> dict[str, str]:
    """Who labelled what, from a table with an id column: ``FILE`` if it has one other column, or ``FILE:COLUMN``.

    A dataset keeps no columns but concepts; the table that it was made from still has them
    (``samples.csv:annotator``).
    """
    from ecbm.read.table_files import read_table

    path, column = Path(source), ""
    if not path.is_file():
        head, _, column = source.rpartition(":")
        path = Path(head)
        if not head or not path.is_file():
            raise InputError(
                f"--by {source}: no such table; give a CSV or Parquet file with an id column, and the column after "
                "a colon: --by samples.csv:annotator"
            )
    names = _columns(path)
    if "id" not in names:
        raise InputError(f"{path}: no column 'id'; give a table with the sample ids and who labelled them")
    others = [name for name in names if name != "id"]
    if not column:
        if len(others) != 1:
            raise InputError(
                f"{path}: which column? give it after a colon, such as --by {path}:{(others or ['name'])[0]}"
            )
        column = others[0]
    if column not in names:
        raise unknown_name("column", column, names, str(path))
    table = read_table(path, text=["id", column], only=["id", column])
    ids = table.text("id", "an id")
    return dict(zip(ids, table.text(column, "an annotator"), strict=True))


def _columns(path: Path) -> list[str]:
    if path.suffix.lower() == ".csv":
        first = next(csv.reader(_text(path).splitlines()), [])
        return [name.strip() for name in first]
    from pyarrow import ArrowException, parquet

    try:
        return list(parquet.read_schema(path).names)
    except (ArrowException, OSError) as error:
        raise InputError(f"{path}: not a readable table ({' '.join(str(error).split())[:120]})") from None
