"""Yes and no, in the ways people write them."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["truth_value", "truth_words"]

_TRUTH = (
    ("no", "yes"), ("n", "y"), ("false", "true"), ("f", "t"), ("absent", "present"), ("negative", "positive"),
    ("neg", "pos"), ("-", "+"), ("off", "on"), ("nein", "ja"), ("non", "oui"), ("no", "sí"), ("no", "si"),
)  # fmt: skip
_VALUES = {word: float(place) for pair in _TRUTH for place, word in enumerate(pair)}


def truth_words(words: Sequence[str]) -> dict[str, float] | None:
    """0 and 1 for words that mean no and yes; ``None`` where they do not, or mix two ways of saying it.

    Examples
    --------
    >>> truth_words(["ja", "Nein"]), truth_words(["yes", "nein"]), truth_words(["f"])
    ({'ja': 1.0, 'Nein': 0.0}, None, None)
    """
    folded = {word.casefold() for word in words}
    for no, yes in _TRUTH:
        # One letter alone may stand for anything: a column of 'f' may be women.
        if folded == {no, yes} or (len(no) > 1 and folded and folded <= {no, yes}):
            return {word: float(word.casefold() == yes) for word in words}
    return None


def truth_value(word: str) -> float | None:
    """0 or 1 for a word that is given as the value of something known to be yes or no; ``None`` for another.

    Examples
    --------
    >>> truth_value("Ja"), truth_value("absent"), truth_value("n"), truth_value("blue")
    (1.0, 0.0, 0.0, None)
    """
    return _VALUES.get(word.strip().casefold())
