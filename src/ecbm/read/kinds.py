"""What a concept column is taken for: from its cells where they leave no doubt, else from what the user said.

Certain without a word from the user:

| cells | taken for |
|---|---|
| 0, 1, numbers between, percentages, yes and no in their usual forms | binary |
| a few words, each of them often | categorical |
| numbers with decimals, most of them outside 0 to 1 and many different | continuous |

Whole numbers beyond 1 may be grades, counts, measurements or codes; words may have an order; texts that hardly
repeat may be ids or remarks. These are doubts: all of them are collected and put to the user in one line.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ecbm.errors import InputError
from ecbm.options import option, type_option
from ecbm.read.columns import Cells, Table
from ecbm.read.numbers import is_missing
from ecbm.read.said_types import Said
from ecbm.read.truth import truth_words

__all__ = ["Doubt", "Found", "Words", "concept_column", "truth_words", "words_in"]

# Each pair: the word for 0 and the word for 1. A column must keep to one pair.
# Words with an order that everybody knows; that it is meant still has to be said.
_SCALES = (
    ("none", "minimal", "mild", "moderate", "severe", "extreme"),
    ("absent", "mild", "moderate", "severe"),
    ("very low", "low", "medium", "high", "very high"),
    ("low", "normal", "high"),
    ("small", "medium", "large"),
    ("never", "rarely", "seldom", "sometimes", "often", "always"),
    ("strongly disagree", "disagree", "neutral", "agree", "strongly agree"),
    ("very poor", "poor", "fair", "good", "very good", "excellent"),
    ("i", "ii", "iii", "iv", "v"),
)
# A column of remarks is empty in most rows, or its texts are sentences.
_WORDS_OF_A_REMARK = 4
_DATE = re.compile(r"\d{1,4}[-./]\d{1,2}[-./]\d{1,4}(?!\d)")
_MOST_WORDS = 30
_IN_FULL = 3
_MANY_NUMBERS = 10


@dataclasses.dataclass(frozen=True)
class Found:
    """A concept column as columns of the concept matrix, and how that came about.

    ``names`` and ``values`` (n, len(names)) are those columns; ``why`` says what in the cells decided, and
    ``otherwise`` how to say something else.
    """

    column: str
    kind: str
    names: tuple[str, ...]
    values: NDArray[np.float32]
    why: str
    otherwise: str = ""
    unit: str = ""


@dataclasses.dataclass(frozen=True)
class Doubt:
    """A column that could be several things: what is seen at which place, and what to say."""

    column: str
    row: int
    seen: str
    remedy: str

    def error(self, table: Table, others: Sequence[Doubt] = ()) -> InputError:
        """All doubts in one line, the first few in full."""
        parts = [f"{self.seen}; {self.remedy}"]
        parts += [f"likewise column {other.column!r}: {other.seen}; {other.remedy}" for other in others[:_IN_FULL]]
        if len(others) > _IN_FULL:
            parts.append(f"and likewise {', '.join(repr(other.column) for other in others[_IN_FULL:])}")
        return table.error(self.row, self.column, "; ".join(parts))


@dataclasses.dataclass(frozen=True)
class Words:
    """The words of a column: ``known`` in order of appearance, and which row has which (−1: missing)."""

    known: tuple[str, ...]
    codes: NDArray[np.int64]
    missing: tuple[str, ...]

    def first_row(self, word: str) -> int:
        return int((self.codes == self.known.index(word)).argmax())


def words_in(table: Table, cells: Cells, values: Sequence[str] = ()) -> Words:
    """The words of a column. A word that is listed in ``values`` is never taken for a missing one."""
    known: dict[str, int] = {}
    place, marks = np.full(len(cells.texts) + 1, -1, np.int64), []
    for number, text in enumerate(cells.texts):
        word = text.strip()
        if word not in values and is_missing(word, table.habits.missing):
            marks += [word] if word else []
            continue
        place[number] = known.setdefault(word, len(known))
    return Words(tuple(known), place[cells.codes], tuple(marks))


def concept_column(table: Table, name: str, said: Said | None) -> Found | Doubt:
    """What a column of concept labels is, and its labels."""
    if table.is_numeric(name):
        values = table.plain_numbers(name)
        if said is not None and said.values:
            texts, codes = np.unique(values[~np.isnan(values)], return_inverse=True)
            places = np.full(len(values), -1, np.int64)
            places[~np.isnan(values)] = codes
            listed = Cells([f"{number:g}" for number in texts.tolist()], places)
            return _of_words(table, name, words_in(table, listed, said.values), said)
        return _of_numbers(table, name, values, said, percent=False)
    cells, numbers = table.numbers_of(name)
    if numbers.doubtful is not None or (numbers.all_numbers and not (said and said.values)):
        return _of_numbers(table, name, table.numbers(name), said, percent=numbers.percent)
    words = words_in(table, cells, said.values if said else ())
    plain = numbers.values[~np.isnan(numbers.values)]
    mixed = bool(np.isfinite(plain).any()) and truth_words(words.known) is None
    if mixed and (said is None or said.kind == "continuous"):
        table.numbers(name)  # refuses the first word
    return _of_words(table, name, words, said)


# -- numbers -----------------------------------------------------------------------------------------------


def _of_numbers(
    table: Table, name: str, values: NDArray[np.float64], said: Said | None, *, percent: bool
) -> Found | Doubt:
    known = values[~np.isnan(values)]
    infinite = np.isinf(values)
    if said is not None and said.kind != "binary" and infinite.any():
        raise table.error(int(infinite.argmax()), name, "not a finite number; leave the cell empty")
    if said is None:
        return _guess(table, name, values, known, percent=percent)
    if said.kind == "binary":
        wrong = ~((values >= 0) & (values <= 1)) & ~np.isnan(values)
        if wrong.any():
            row = int(wrong.argmax())
            raise table.error(
                row, name, f"{values[row]:g} is not in [0, 1]; give 0, 1, a soft label between, or an empty cell"
            )
        return _single(name, "binary", values, "you said so")
    if said.kind == "continuous":
        return dataclasses.replace(_single(name, "continuous", values, "you said so"), unit=said.unit)
    whole = np.isnan(values) | (values == np.round(values))
    if not whole.all():
        row = int((~whole).argmax())
        raise table.error(
            row, name, f"{values[row]:g} is not a whole number; {said.kind} columns hold whole numbers or words"
        )
    if said.kind == "categorical":
        codes = sorted({int(value) for value in known})
        place = {code: number for number, code in enumerate(codes)}
        rows = np.array([-1 if np.isnan(value) else place[int(value)] for value in values], np.int64)
        return _categorical(table, name, [str(code) for code in codes], rows, "you said so")
    return _graded(table, name, values, "you said so")


def _guess(
    table: Table, name: str, values: NDArray[np.float64], known: NDArray[np.float64], *, percent: bool
) -> Found | Doubt:
    """The type of a column of numbers of which nothing was said."""
    outside = (known < 0) | (known > 1)
    if not outside.any():
        measured = type_option(name, "continuous")
        if not len(known):
            return _single(name, "binary", values, "no cell is filled")
        if bool(np.isin(known, (0, 1)).all()) and not percent:
            return _single(name, "binary", values, "only 0 and 1")
        what = "percentages" if percent else "numbers from 0 to 1"
        return _single(name, "binary", values, f"{what}, taken for soft labels", f"a measurement: {measured}")
    different = np.unique(known)
    finite = bool(np.isfinite(known).all())
    decimals = finite and bool((known != np.round(known)).any())
    if decimals and len(different) >= _MANY_NUMBERS and np.isin(known, (0, 1)).mean() < 0.5:
        low, high = known.min(), known.max()
        return _single(name, "continuous", values, f"numbers with decimals, {low:g} to {high:g}")
    row = int((~((values >= 0) & (values <= 1)) & ~np.isnan(values)).argmax())
    seen = f"{values[row]:g} is not in [0, 1]"
    answers = [f"a measurement: {type_option(name, 'continuous')}"] if finite else []
    if finite and not decimals:
        answers = [
            f"grades: {type_option(name, 'ordinal')}",
            *answers,
            f"codes: {type_option(name, 'categorical')}",
            f"no concept: {option('ignore', [name])}",
        ]
        if len(different) == len(values) >= _MANY_NUMBERS:
            answers.append(f"ids: {option('id_column', name)}")
    choose = "give 0, 1, a soft label between, or an empty cell"
    if answers:
        what = f"numbers from {known.min():g} to {known.max():g}"
        choose += f"; or say what the {what if decimals else f'whole {what}'} are ({', '.join(answers)})"
    return Doubt(name, row, seen, choose)


def _single(name: str, kind: str, values: NDArray[np.float64], why: str, otherwise: str = "") -> Found:
    return Found(name, kind, (name,), values[:, None].astype(np.float32), why, otherwise)


def _graded(table: Table, name: str, values: NDArray[np.float64], why: str) -> Found:
    """Grades as cumulative columns; the lowest grade is 0, or the lowest that occurs if that is another."""
    known = values[~np.isnan(values)]
    if not len(known):
        raise InputError(f"{table.path}, column {name!r}: no cell is filled; the grades cannot be known")
    low, high = min(0, int(known.min())) if known.min() <= 0 else int(known.min()), int(known.max())
    if high - low < 1 or high - low > _MOST_WORDS:
        raise InputError(
            f"{table.path}, column {name!r}: grades from {low} to {high}; an ordinal column has 2 to {_MOST_WORDS} "
            f"grades, a measurement is said by {type_option(name, 'continuous')}"
        )
    thresholds = np.arange(low + 1, high + 1)
    cumulative = (values[:, None] >= thresholds).astype(np.float32)
    cumulative[np.isnan(values)] = np.nan
    names = tuple(f"{name}::>={grade}" for grade in thresholds.tolist())
    return Found(name, "ordinal", names, cumulative, f"{why}: grades {low} to {high}")


# -- words -------------------------------------------------------------------------------------------------


def _of_words(table: Table, name: str, words: Words, said: Said | None) -> Found | Doubt:
    if said is None:
        return _guess_words(table, name, words)
    known = words.known
    if said.values:
        listed = {word.casefold(): place for place, word in enumerate(said.values)}
        for word in known:
            if word.casefold() not in listed:
                raise table.error(
                    words.first_row(word),
                    name,
                    f"{word!r} is none of {', '.join(said.values)}; name it in "
                    f"{type_option(name, said.kind + ':…')} or, if it means missing, pass "
                    f"{option('missing', [word])}",
                )
        order = [listed[word.casefold()] for word in known]
        return _ordered(table, name, words, said.kind, said.values, order)
    if said.kind == "binary":
        truth = truth_words(known)
        if truth is None:
            pair = ",".join(known[:2]) if len(known) > 1 else f"no,{known[0]}" if known else "no,yes"
            raise table.error(
                0, name, f"which words mean 0 and 1? Say both: {type_option(name, f'binary:{pair}')} (0 first)"
            )
        return _truth(name, words, truth, "you said so")
    if said.kind == "continuous":
        raise table.not_a_number(words.first_row(known[0]), name, known[0], "a continuous column holds numbers")
    if said.kind == "ordinal":
        scale = _scale_of(known)
        if scale is None:
            example = ",".join(known[:5])
            raise table.error(
                0,
                name,
                "the order of its words is not known; say it, lowest first: "
                f"{type_option(name, f'ordinal:{example}')}",
            )
        used = [word for word in scale if word in {one.casefold() for one in known}]
        return _ordered(table, name, words, "ordinal", used, [used.index(word.casefold()) for word in known])
    return _named(table, name, words, "you said so")


def _guess_words(table: Table, name: str, words: Words) -> Found | Doubt:
    known, filled = words.known, int((words.codes >= 0).sum())
    truth = truth_words(known)
    if truth is not None:
        return _truth(name, words, truth, f"{' and '.join(map(repr, sorted(known, key=lambda w: truth[w])))}")
    listed = ", ".join(map(repr, known[:4])) + (", …" if len(known) > 4 else "")
    if len(known) == 1:
        word = known[0]
        remedy = f"is empty absent or missing? Write yes and no, or pass {option('ignore', [name])}"
        return Doubt(name, words.first_row(word), f"only {word!r} or empty", remedy)
    if "none" in {mark.casefold() for mark in words.missing}:
        order = ",".join(["none", *known[:5]])
        remedy = (
            f"say that it is a value: {type_option(name, f'categorical:{order}')} (or ordinal:…, lowest first); or "
            f"leave these cells empty"
        )
        return Doubt(name, 0, "'none' may be a value or missing", remedy)
    scale = _scale_of(known)
    if scale is not None:
        used = [word for word in scale if word in {one.casefold() for one in known}]
        remedy = (
            f"if that is their order, say {type_option(name, 'ordinal')}; if they have none, "
            f"{type_option(name, 'categorical')}"
        )
        return Doubt(name, 0, f"words that may be graded ({' < '.join(used)})", remedy)
    if all(_DATE.match(word) for word in known):
        remedy = f"no concept: {option('ignore', [name])}, unless you say {type_option(name, 'categorical')}"
        return Doubt(name, 0, f"dates ({listed})", remedy)
    remarks = filled < len(words.codes) / 2 or max(len(word.split()) for word in known) >= _WORDS_OF_A_REMARK
    if len(known) > _MOST_WORDS or filled < 2 * len(known) or remarks:
        answers = [f"ids: {option('id_column', name)}"] if len(known) == len(words.codes) else []
        answers += [f"remarks: {option('ignore', [name])}"]
        answers += [f"values of a concept: {type_option(name, 'categorical')}"]
        seen = f"{len(known)} different texts in {filled} rows ({listed})"
        return Doubt(name, 0, seen, f"say what they are ({', '.join(answers)})")
    example = ",".join(known[:3]) + (",…" if len(known) > 3 else "")
    found = _named(table, name, words, f"{len(known)} words: {listed}")
    return dataclasses.replace(found, otherwise=f"graded: {type_option(name, f'ordinal:{example}')}, lowest first")


def _scale_of(words: Sequence[str]) -> tuple[str, ...] | None:
    folded = {word.casefold() for word in words}
    return next((scale for scale in _SCALES if len(folded) > 1 and folded <= set(scale)), None)


def _truth(name: str, words: Words, truth: dict[str, float], why: str) -> Found:
    numbers = np.array([*(truth[word] for word in words.known), np.nan])
    return _single(name, "binary", numbers[words.codes], why)


def _named(table: Table, name: str, words: Words, why: str) -> Found:
    names = sorted(words.known)
    place = np.array([*(names.index(word) for word in words.known), -1], np.int64)
    marks = f" ({', '.join(map(repr, words.missing))} taken for missing)" if words.missing else ""
    return _categorical(table, name, names, place[words.codes], why + marks)


def _ordered(
    table: Table, name: str, words: Words, kind: str, values: Sequence[str], order: Sequence[int]
) -> Found:
    """Words whose values were listed: ``order`` gives each known word its place in ``values``."""
    codes = np.array([*order, -1], np.int64)[words.codes]
    if kind == "categorical":
        return _categorical(table, name, list(values), codes, "you said so")
    numbers = np.where(codes < 0, np.nan, codes)
    if kind == "binary":
        return _single(name, "binary", numbers, f"you said so: {values[0]!r} is 0, {values[1]!r} is 1")
    thresholds = np.arange(1, len(values))
    cumulative = (numbers[:, None] >= thresholds).astype(np.float32)
    cumulative[codes < 0] = np.nan
    grades = ", ".join(f"{word} = {grade}" for grade, word in enumerate(values))
    names = tuple(f"{name}::>={grade}" for grade in thresholds.tolist())
    return Found(name, "ordinal", names, cumulative, f"you said so: {grades}")


def _categorical(table: Table, name: str, values: Sequence[str], codes: NDArray[np.int64], why: str) -> Found:
    if len(values) < 2:
        raise InputError(f"{table.path}, column {name!r}: one value only; a categorical column needs two or more")
    onehot = (codes[:, None] == np.arange(len(values))).astype(np.float32)
    onehot[codes < 0] = np.nan
    return Found(name, "categorical", tuple(f"{name}::{value}" for value in values), onehot, why)
