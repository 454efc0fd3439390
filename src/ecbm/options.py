"""How an option is called where the user gave it: an argument in Python, a flag on the command line."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["named_as_flags", "option", "type_option"]

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
    """
    if not _flags.get():
        return f"{name}={value!r}" if value is not None else f"{name}="
    flag = f"--{name.replace('_', '-')}"
    if value is None:
        return flag
    values = [value] if isinstance(value, str) else value
    return " ".join(f"{flag} {shlex.quote(one)}" for one in values)


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
