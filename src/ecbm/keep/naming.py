"""Finding names in what is kept: texts inside JSON values, and whether one of them names a sample."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

__all__ = ["digests_in", "names", "texts_in"]

# Ids this long are found inside other words too; shorter ones ("12") would be found everywhere.
_LONG = 6


def names(text: str, word: str) -> bool:
    """Whether a text names the word; a short one counts only on its own, not as a part of a longer one.

    Examples
    --------
    >>> names("120 labels", "12"), names("patient 12", "12"), names("xPATIENT7x", "patient7")
    (False, True, True)
    """
    if len(word) >= _LONG:
        return word.casefold() in text.casefold()
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text, re.IGNORECASE) is not None


def texts_in(value: Any) -> Iterator[str]:
    """Every text in a JSON value, keys too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from texts_in(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts_in(item)


def digests_in(value: Any) -> Iterator[str]:
    """Every file that manifests name."""
    return (text for text in texts_in(value) if re.fullmatch(r"[0-9a-f]{64}", text))
