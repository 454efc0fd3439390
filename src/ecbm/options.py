"""How an option is called where the user gave it: an argument in Python, a flag on the command line."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["comma_hint", "named_as_flags", "option", "type_option"]

# Flags that take several names with commas between them.
_LISTS = ("features", "ignore")

_flags: ContextVar[bool] = ContextVar("ecbm_options_are_flags", default=False)


@contextmanager
def named_as_flags() -> Iterator[None]:
    """Within it, messages name the command line's options."""
    token = _flags.set(True)
    try:
        yield
    finally:
        _flags.reset(token)


def option(name: str, value: str | list[str] | None = None) -> str:
    """An option as the user would write it, with or without a value.

    Examples
    --------
    >>> option("label_column", "species"), option("images"), option("ignore", ["note"])
    ("label_column='species'", 'images=', "ignore=['note']")
    >>> with named_as_flags():
    ...     option("label_column", "species"), option("images"), option("ignore", ["note"])
    ('--label-column species', '--images', '--ignore note')
    >>> with named_as_flags():
    ...     print(option("ignore", ["CRP, mg/l"]))  # names are separated by commas there
    --ignore '"CRP, mg/l"'
    """
    if not _flags.get():
        return f"{name}={value!r}" if value is not None else f"{name}="
    flag = f"--{name.replace('_', '-')}"
    if value is None:
        return flag
    values = [value] if isinstance(value, str) else value
    if name in _LISTS:
        values = [_in_a_list(one) for one in values]
    return " ".join(f"{flag} {shlex.quote(one)}" for one in values)


def _in_a_list(name: str) -> str:
    return f'"{name.replace(chr(34), chr(34) * 2)}"' if "," in name or '"' in name else name


def comma_hint(name: str, part: str, known: Sequence[str]) -> str:
    """What to add to "unknown column" where ``part`` is a piece of a name that a comma has cut in two.

    Examples
    --------
    >>> with named_as_flags():
    ...     print(comma_hint("ignore", "CRP", ["age", "CRP, mg/l"]))
    ; a name with a comma stands in quotation marks: --ignore '"CRP, mg/l"'
    """
    whole = next((one for one in known if "," in one and part in [piece.strip() for piece in one.split(",")]), None)
    if whole is None or not _flags.get():
        return ""
    return f"; a name with a comma stands in quotation marks: {option(name, [whole])}"


def type_option(column: str, kind: str) -> str:
    """How the type of a column is said.

    Examples
    --------
    >>> type_option("severity", "ordinal")
    "types={'severity': 'ordinal'}"
    >>> with named_as_flags():
    ...     type_option("severity", "ordinal")
    '--type severity=ordinal'
    """
    if not _flags.get():
        return f"types={{{column!r}: {kind!r}}}"
    return f"--type {shlex.quote(f'{column}={kind}')}"
