"""The terminal: whether it takes colours, and how wide it is."""

from __future__ import annotations

import os
from typing import IO, Any

from rich.console import Console

__all__ = ["is_plain", "new_console"]


def is_plain() -> bool:
    """Whether the user wants no colours (``NO_COLOR``, see no-color.org) or the terminal has none (``dumb``)."""
    return bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM", "").lower() in ("dumb", "unknown")


def new_console(
    *, stderr: bool = False, quiet: bool = False, file: IO[str] | None = None, **options: Any
) -> Console:
    """A console that sends no escape codes where :func:`is_plain`."""
    system = None if is_plain() else "auto"
    return Console(stderr=stderr, quiet=quiet, file=file, color_system=system, **options)  # type: ignore[arg-type]
