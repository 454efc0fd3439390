"""How a text table was saved: its encoding, and what separates its columns."""

from __future__ import annotations

import codecs
import csv
import dataclasses
import io
import re
from pathlib import Path

from ecbm.errors import InputError
from ecbm.options import option

__all__ = ["DELIMITERS", "Dialect", "dialect_of"]

DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
_NAMED = {"comma": ",", "semicolon": ";", "tab": "\t", "bar": "|", "\\t": "\t"}
_DECLARED = re.compile(rb"\A\s*\"?sep=(.)\"?\r?\n")
# So many records decide between two separators.
_RECORDS = 200


@dataclasses.dataclass(frozen=True)
class Dialect:
    """A table as UTF-8 bytes, what separates its columns, and remarks on what is not the usual."""

    raw: bytes
    delimiter: str
    remarks: tuple[str, ...]


def dialect_of(path: Path, raw: bytes, encoding: str | None = None, delimiter: str | None = None) -> Dialect:
    """Find out how a text table was saved.

    UTF-8 and UTF-16 are recognised for certain. Bytes that are neither are read as Windows-1252, which is what is
    common, and the remark shows a word of it; ``encoding`` says otherwise.
    """
    text, remarks = _decoded(path, raw, encoding)
    declared = _DECLARED.match(text)
    if declared is not None:
        # The line stays as an empty one, so that lines are counted as in the file.
        text = b"\n" + text[declared.end() :]
        delimiter = delimiter or declared[1].decode()
    if delimiter is not None:
        chosen = _NAMED.get(delimiter, delimiter)
        if len(chosen) != 1 or chosen in '"\r\n':
            raise InputError(
                f"{option('delimiter', delimiter)}: give one character, or comma, semicolon, tab or bar"
            )
    else:
        chosen = _delimiter(path, text)
    if chosen != ",":
        remarks.append(f"columns are separated by {DELIMITERS.get(chosen, repr(chosen))}")
    return Dialect(text, chosen, tuple(remarks))


def _decoded(path: Path, raw: bytes, encoding: str | None) -> tuple[bytes, list[str]]:
    """The bytes as UTF-8 without a mark, and what was remarkable."""
    if encoding is not None:
        try:
            codecs.lookup(encoding)
            return raw.decode(encoding).removeprefix("\ufeff").encode(), [f"text is {encoding}, as given"]
        except LookupError:
            raise InputError(
                f"{option('encoding', encoding)}: unknown; for example utf-8, windows-1252, iso-8859-2, mac-roman"
            ) from None
        except UnicodeError:
            raise InputError(f"{path}: not {encoding} text; give another {option('encoding')}") from None
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        try:
            return raw.decode("utf-16").encode(), ["text is UTF-16"]
        except UnicodeError:
            raise InputError(f"{path}: damaged UTF-16 text; save it as 'CSV UTF-8'") from None
    raw = raw.removeprefix(codecs.BOM_UTF8)
    try:
        raw.decode()
        return raw, []
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        return _windows(path, raw, line)


def _windows(path: Path, raw: bytes, line: int) -> tuple[bytes, list[str]]:
    refusal = InputError(
        f"{path}, line {line}: neither UTF-8 nor Windows-1252 text; save the table as 'CSV UTF-8' or pass "
        f"{option('encoding')}"
    )
    if b"\0" in raw:
        raise refusal
    try:
        text = raw.decode("windows-1252")
    except UnicodeDecodeError:
        raise refusal from None
    word = re.search(r"\w*[^\x00-\x7f]\w*", text)
    shown = word[0] if word is not None else ""
    told = f"text is Windows-1252 (line {line}: {shown!r}); if that is wrong, pass {option('encoding')}"
    return text.encode(), [told]


def _delimiter(path: Path, raw: bytes) -> str:
    """What separates the columns: what is in the header, and if that is several, what divides all lines alike."""
    head = next((line for line in raw.split(b"\n") if line.strip()), b"").decode(errors="replace")
    bare = re.sub(r'"[^"]*"', "", head)
    present = [one for one in DELIMITERS if one in bare]
    if len(present) < 2:
        return present[0] if present else ","
    fitting = [one for one in present if _divides_alike(raw, one)]
    if len(fitting) == 1:
        return fitting[0]
    if len(fitting) > 1:
        names = " or ".join(DELIMITERS[one] for one in fitting)
        raise InputError(
            f"{path}, line 1: columns may be separated by {names}; pass {option('delimiter')} with one of them"
        )
    # Damaged lines: the reader names the first one.
    return max(present, key=bare.count)


def _divides_alike(raw: bytes, delimiter: str) -> bool:
    reader = csv.reader(
        io.TextIOWrapper(io.BytesIO(raw), encoding="utf-8", errors="replace", newline=""), delimiter=delimiter
    )
    widths = set()
    try:
        for count, record in enumerate(reader):
            if record:
                widths.add(len(record))
            if count == _RECORDS or len(widths) > 1:
                break
    except csv.Error:
        return False
    return len(widths) == 1 and widths != {1}
