"""Names of concepts and values as people read them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ecbm.show.serve.schemas import ConceptInfo, Value

if TYPE_CHECKING:
    from ecbm.read.concept_types import Concept

__all__ = ["concept_info", "for_people", "label_words", "number_words", "spoken"]

_TRAINED = re.compile(r"trained a \w+ model \([^)]*\) on ([\d,]+) training samples?")
_LOSS = re.compile(r"turning it round should (lower|raise) the concept's validation loss \(by [^)]*\)")
_FLAGS = re.compile(r" \(--tail trains[^)]*\)")
_YES = ("yes", "true", "present", "1")


def spoken(name: str) -> str:
    """A name without underscores, beginning with a capital.

    Examples
    --------
    >>> spoken("wing_color")
    'Wing color'
    """
    text = " ".join(name.replace("_", " ").split())
    return text[:1].upper() + text[1:]


def for_people(words: str, pictures: bool) -> str:
    """A sentence of the ledger or of a command in the words of the page: pictures or records, no options, no
    architecture.

    Examples
    --------
    >>> for_people("trained a sequential model (convnet backbone) on 628 training samples", True)
    'trained a model on 628 pictures'
    >>> for_people("corrected 2 concept labels of 1 sample", False)
    'corrected 2 concept labels of 1 record'
    """
    noun = "picture" if pictures else "record"
    text = _LOSS.sub(
        lambda found: (
            "correcting it should make the model read this concept "
            + ("better" if found[1] == "lower" else "worse")
        ),
        words,
    )
    text = _FLAGS.sub("", _TRAINED.sub(r"trained a model on \1 samples", text))
    text = re.sub(r"\bsample(s?)\b", rf"{noun}\1", text)
    # A figure and its unit stay on one line.
    text = re.sub(r"(\d) %", "\\1\u202f%", text)
    return re.sub(r"\bthe backbone\b", "the picture reader" if pictures else "what comes before the concepts", text)


def _parts(name: str) -> tuple[str, str]:
    for separator in ("::", "="):
        head, found, value = name.partition(separator)
        if found and head and value:
            return head, value
    return name, ""


def concept_info(concept: Concept, siblings: int = 1) -> ConceptInfo:
    """A concept for the page; ``siblings`` is how many concepts its group has.

    Examples
    --------
    >>> from ecbm.read.concept_types import Concept
    >>> concept_info(Concept("wing_color=blue", "binary", (0,)), 5).title
    'Wing color: blue'
    >>> concept_info(Concept("crest=yes", "binary", (0,))).title
    'Crest'
    """
    group, value = _parts(concept.name) if concept.type == "binary" else (concept.name, "")
    single = siblings == 1 and (not value or value.casefold() in _YES)
    short = spoken(group) if not value or single else " ".join(value.replace("_", " ").split())
    return ConceptInfo(
        name=concept.name,
        title=spoken(group) if not value or single else f"{spoken(group)}: {short}",
        group=group,
        group_title=spoken(group),
        short=short,
        type=concept.type,  # type: ignore[arg-type]  # one of the four, checked when the layout was made
        values=list(concept.values),
        unit=concept.unit,
    )


def label_words(concept: Concept, value: Value) -> str:
    """A label in words: present, absent, missing, blue, grade 2, 12.5 mm; a soft one as a share."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "missing"
    if concept.type == "continuous" and not isinstance(value, str):
        return number_words(float(value), concept.unit)
    if concept.type != "binary" or isinstance(value, str):
        return concept.said(value)
    return {1.0: "present", 0.0: "absent"}.get(float(value), f"{value:.0%} present")


def number_words(value: float, unit: str) -> str:
    """A number with its unit, as a person writes it.

    Examples
    --------
    >>> number_words(7.06942, "mm"), number_words(1026.13, "EUR"), number_words(2.98e-6, "EUR")
    ('7.069 mm', '1026 EUR', '0.00000298 EUR')
    """
    text = f"{value:.4g}"
    if "e" in text:
        text = f"{float(text):.12f}".rstrip("0").rstrip(".") if abs(value) < 1 else f"{float(text):,.0f}"
    return f"{text} {unit}".strip()


def joined(parts: Sequence[str]) -> str:
    """Parts of a sentence: 'a, b and c'."""
    return ", ".join(parts[:-1]) + (" and " if len(parts) > 1 else "") + (parts[-1] if parts else "")
