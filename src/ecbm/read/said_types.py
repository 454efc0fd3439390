"""What a user said about the types of columns: ``severity=ordinal``, ``pain=ordinal:none,mild,severe``."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from ecbm.errors import InputError, unknown_name
from ecbm.options import option, type_option
from ecbm.read.concept_types import TYPES

__all__ = ["Said", "said_types", "types_from_flags"]


@dataclasses.dataclass(frozen=True)
class Said:
    """A type; and its values in order (of words), or the unit (of a continuous column)."""

    kind: str
    values: tuple[str, ...] = ()
    unit: str = ""


def said_types(types: Mapping[str, Any] | None) -> dict[str, Said]:
    """The types that were given, by column or group.

    Examples
    --------
    >>> said_types({"pain": "ordinal:none,mild,severe", "size": "continuous:mm"})["pain"].values
    ('none', 'mild', 'severe')
    """
    if types is None:
        return {}
    if not isinstance(types, Mapping):
        raise InputError(f"types: expected {{column: type}}, got {type(types).__name__}")
    return {str(column): _said(str(column), given) for column, given in types.items()}


def _said(column: str, given: Any) -> Said:
    if not isinstance(given, str):
        raise InputError(f"types: {column!r}: expected a type such as 'ordinal', got {type(given).__name__}")
    kind, _, rest = given.partition(":")
    kind = kind.strip()
    if kind not in TYPES:
        raise unknown_name("type", kind, TYPES, type_option(column, given))
    values = tuple(part.strip() for part in rest.split(",") if part.strip())
    if kind == "continuous":
        return Said(kind, unit=rest.strip())
    if len(set(values)) < len(values):
        raise InputError(f"{type_option(column, given)}: a value is named twice; name each once")
    if kind == "binary" and len(values) not in (0, 2):
        raise InputError(
            f"{type_option(column, given)}: name the word for 0 and the word for 1, such as binary:no,yes"
        )
    if kind != "binary" and len(values) == 1:
        raise InputError(f"{type_option(column, given)}: one value only; name all of them, separated by commas")
    return Said(kind, values)


def types_from_flags(texts: Sequence[str]) -> dict[str, str]:
    """``COLUMN=TYPE`` of the command line; a column's name may contain equal signs."""
    found: dict[str, str] = {}
    for text in texts:
        column, _, kind = _divided(text)
        if not column or not kind:
            raise InputError(
                f"{option('type', text)}: write COLUMN=TYPE, for example severity=ordinal; types are "
                f"{', '.join(TYPES)}"
            )
        if column in found:
            raise InputError(f"{option('type', text)}: the type of {column!r} is given twice")
        found[column] = kind
    return found


def _divided(text: str) -> tuple[str, str, str]:
    # At the equal sign in front of a known type, if there is one: values behind it may contain others.
    for kind in TYPES:
        head, found, rest = text.partition(f"={kind}")
        if found and rest[:1] in ("", ":"):
            return head, "=", kind + rest
    return text.rpartition("=")
