"""Answers and annotators from files: what people found, and who labelled what."""

from __future__ import annotations

import csv
import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ecbm.errors import InputError, unknown_name
from ecbm.read.columns import Cells
from ecbm.read.dataset import Dataset
from ecbm.read.table_files import read_table

__all__ = ["Answer", "read_annotators", "read_answers"]

_YES, _NO = ("yes", "true", "1", "wrong"), ("no", "false", "0", "right")


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a person found about one label: whether it was wrong.

    ``concept`` is ``None`` for a class label. ``recorded`` is the label that was looked at, where it is known;
    otherwise the one that the data holds now. ``value`` is what it should be; of a yes/no label that follows.
    """

    id: str
    concept: str | None
    wrong: bool
    recorded: float | str | None = None
    value: float | str | None = None


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
    recorded, value = (_plain(item.get(key)) for key in ("recorded", "value"))
    return Answer(str(item["id"]), None if concept is None else str(concept), judged, recorded, value)


def _plain(given: Any) -> float | str | None:
    """A number where it is one, as JSON and CSV alike should give it."""
    if given is None or given == "":
        return None
    try:
        return float(given)
    except (TypeError, ValueError):
        return str(given)


def _checked(answer: Answer, binary: set[str], where: str) -> Answer:
    """The answer; of a yes/no label what was recorded must be 0 or 1, and follows from what is proposed."""
    if answer.concept not in binary:
        return answer
    for name, given in (("recorded", answer.recorded), ("value", answer.value)):
        if given not in (None, 0.0, 1.0):
            raise InputError(f"{where}: {name!r} is {given!r}; {answer.concept!r} is 0 or 1, or leave it out")
    recorded = answer.recorded
    if recorded is None and isinstance(answer.value, float):
        recorded = 1 - answer.value
    return dataclasses.replace(answer, recorded=recorded)


def read_answers(path: str | Path, data: Dataset) -> list[Answer]:
    """Read answers: the output of ``ecbm suggest --json`` with ``"wrong": true`` or ``false`` written into what was
    looked at, a list of such objects, or a CSV with the columns id, concept and wrong (and recorded and value,
    where they are known). What has no verdict yet is skipped.

    Parameters
    ----------
    path
        ``.json`` or ``.csv``.
    data
        The samples and concepts that exist; others are refused.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from ecbm.read.breast_cancer import breast_cancer
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "answers.csv"
    >>> _ = path.write_text("id,concept,wrong\\ntumour-001,radius=large,yes\\n")
    >>> read_answers(path, breast_cancer())[0].wrong
    True
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
            parts = [content.get(name, []) for name in ("suggestions", "rare", "checks", "confirmed", "answers")]
            found = [item for part in parts if isinstance(part, list) for item in part]
        if not isinstance(found, list) or not all(isinstance(item, Mapping) for item in found):
            raise InputError(f"{path}: expected a list of answers, or what 'ecbm suggest --json' prints")
        items = [(item, f"{path}, item {number}") for number, item in enumerate(found, 1)]
    names = {concept.name: concept.type for concept in data.layout.concepts}
    binary = {name for name, kind in names.items() if kind == "binary"}
    answers: dict[tuple[str, str | None], Answer] = {}
    for item, where in items:
        answer = _answer(item, where)
        if answer is None:
            continue
        if answer.id not in data:
            raise unknown_name("sample id", answer.id, data.ids, where)
        if answer.concept is not None and answer.concept not in names:
            raise unknown_name("concept", answer.concept, names, where)
        before = answers.get((answer.id, answer.concept))
        if before is not None and before.wrong != answer.wrong:
            what = "the class" if answer.concept is None else repr(answer.concept)
            raise InputError(
                f"{where}: {what} of {answer.id!r} is said to be wrong and to be right; keep one answer"
            )
        answers[answer.id, answer.concept] = _checked(answer, binary, where)
    return list(answers.values())


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); check the path") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text (byte {error.start}); save it as UTF-8") from None


def read_annotators(source: str, ids: Sequence[str], table: Path | None = None) -> dict[str, str]:
    """Who labelled what: ``FILE:COLUMN``, or ``COLUMN`` of the table that the data was read from.

    A dataset keeps no columns but concepts; the table that it was made from still has them. The ids are those in
    the column ``id``, or in the column in which most of the known ids are found.

    Parameters
    ----------
    source
        Such as ``samples.csv:annotator``. A file with one column beside the ids needs no column.
    ids
        The samples.
    table
        Where the data came from, if that is known and still there.
    """
    path, column = Path(source), ""
    if not path.is_file():
        head, _, column = source.rpartition(":")
        if head and Path(head).is_file():
            path = Path(head)
        elif not head and table is not None and table.is_file():
            path = table
        else:
            raise InputError(
                f"--by {source}: no such table; give a file with the sample ids and the column after a colon: "
                "--by samples.csv:annotator"
            )
    # As text, all of it: a site called 007 is no number.
    found = read_table(path, text=read_table(path, text=()).names)
    if column and column not in found.names:
        raise unknown_name("column", column, found.names, str(path))
    texts = {name: found.cells(name) for name in found.names}
    named = _id_column(texts, set(ids), path)
    others = [name for name in found.names if name != named]
    if not column:
        if len(others) != 1:
            raise InputError(f"{path}: which column? give it after a colon: --by {path}:{(others or ['name'])[0]}")
        column = others[0]
    keys, people = (texts[name] for name in (named, column))
    return {
        keys.texts[key]: people.texts[person].strip()
        for key, person in zip(keys.codes.tolist(), people.codes.tolist(), strict=True)
        if key >= 0 and person >= 0 and people.texts[person].strip()
    }


def _id_column(texts: Mapping[str, Cells], ids: set[str], path: Path) -> str:
    known = {name: len(ids.intersection(cells.texts)) for name, cells in texts.items()}
    best = max(known, key=lambda name: (known[name], name == "id"))
    if not known[best]:
        raise InputError(f"{path}: no column holds ids of the samples, such as {min(ids)!r}; add an id column")
    return best
