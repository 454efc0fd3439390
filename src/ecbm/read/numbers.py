"""Numbers as people write them: percentages, decimal commas, separated thousands; and what stands for no number.

A comma in a number is read where only one reading is possible: ``1,5`` has a decimal comma, ``1,234,567`` and
``1,234.5`` have separated thousands. ``1,234`` may be both; then the rest of the column decides, then the rest of
the file, and where these say nothing it is asked for.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Collection, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["MISSING", "NOT_A_NUMBER", "Numbers", "has_decimal_comma", "is_missing", "numbers_in"]

# What people leave in a cell whose value is missing. Ids, classes and words are not compared with this list without
# more ado: a class may be called "NA", and no pain is written "none".
MISSING = frozenset({"", "na", "n/a", "#n/a", "nan", "-nan", "null", "none", "<na>", "?"})
NOT_A_NUMBER = float("-inf")
_TRUTH = {"true": 1.0, "false": 0.0}
_SPACES = re.compile(r"(?<=\d)[\u00a0\u202f\u2009](?=\d{3})")
_DECIMAL_COMMA = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+)?,\d+([eE][+-]?\d+)?")
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d*)?")
_DOTTED_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3})+")


@dataclasses.dataclass(frozen=True)
class Numbers:
    """The numbers in some texts.

    ``values`` is NaN where a text means missing and minus infinity where it is no number. ``percent``: all were
    percentages, and are now fractions. ``doubtful`` is a text that could be two numbers.
    """

    values: NDArray[np.float64]
    percent: bool = False
    decimal_comma: bool = False
    doubtful: str | None = None

    @property
    def all_numbers(self) -> bool:
        return not bool(np.isneginf(self.values).any())


def is_missing(text: str, more: Collection[str] = ()) -> bool:
    """Whether a text stands for a missing number; ``more`` are the user's own marks."""
    stripped = text.strip()
    return stripped.casefold() in MISSING or stripped in more


def has_decimal_comma(texts: Sequence[str]) -> bool:
    """Whether one of the texts is a number with a decimal comma and can be nothing else."""
    return any(_decimal_only(_plain(text)) for text in texts)


def numbers_in(
    texts: Sequence[str],
    *,
    missing: Collection[str] = (),
    decimal: str | None = None,
    comma_elsewhere: Callable[[], bool] = bool,
) -> Numbers:
    """The numbers in the different texts of a column.

    Parameters
    ----------
    texts
        Cells.
    missing
        What stands for a missing value, beside :data:`MISSING`.
    decimal
        ``"."`` or ``","`` where the user has said so.
    comma_elsewhere
        Finds out whether other columns of the file have decimal commas for certain; asked only where it matters.

    Examples
    --------
    >>> numbers_in(["1,5", "?", "12"]).values.tolist()
    [1.5, nan, 12.0]
    >>> numbers_in(["35 %", "100%"]).values.tolist(), numbers_in(["1,234"]).doubtful
    ([0.35, 1.0], '1,234')
    """
    plain = [None if is_missing(text, missing) else _plain(text) for text in texts]
    given = [text for text in plain if text is not None]
    percent = bool(given) and all(text.endswith("%") for text in given)
    if percent:
        plain = [None if text is None else text[:-1].strip() for text in plain]
        given = [text for text in plain if text is not None]
    comma, doubtful = _has_comma(given, decimal, comma_elsewhere)
    numbers = [np.nan if text is None else _number(text, comma) for text in plain]
    values = np.array(numbers, np.float64)
    if doubtful is not None and not np.isneginf(values).all():
        return Numbers(values, percent, comma, doubtful)
    return Numbers(values / 100 if percent else values, percent, comma and any("," in text for text in given))


def _plain(text: str) -> str:
    return _SPACES.sub("", text.strip().replace("\u2212", "-"))


def _decimal_only(text: str) -> bool:
    return bool(_DECIMAL_COMMA.fullmatch(text)) and not _THOUSANDS.fullmatch(text)


def _has_comma(texts: Sequence[str], decimal: str | None, elsewhere: Callable[[], bool]) -> tuple[bool, str | None]:
    """Whether commas are decimal commas in this column; and a text for which that cannot be known."""
    if decimal is not None:
        return decimal == ",", None
    if has_decimal_comma(texts):
        return True, None
    commas = [text for text in texts if _THOUSANDS.fullmatch(text)]
    if any(text.count(",") > 1 or "." in text for text in commas):
        return False, None
    if commas:
        return (True, None) if elsewhere() else (False, commas[0])
    # 1.234 beside decimal commas elsewhere may be one thousand and more; 0.5 is none, so its column has points.
    dots = [text for text in texts if "." in text]
    if dots and all(_DOTTED_THOUSANDS.fullmatch(text) for text in dots) and elsewhere():
        return False, dots[0]
    return False, None


def _number(text: str, comma: bool) -> float:
    truth = _TRUTH.get(text.casefold())
    if truth is not None:
        return truth
    if comma:
        if "." in text and not (_DOTTED_THOUSANDS.fullmatch(text) or _DECIMAL_COMMA.fullmatch(text)):
            return NOT_A_NUMBER
        text = text.replace(".", "").replace(",", ".")
    elif _THOUSANDS.fullmatch(text):
        text = text.replace(",", "")
    try:
        return NOT_A_NUMBER if "_" in text else float(text)
    except ValueError:
        return NOT_A_NUMBER
