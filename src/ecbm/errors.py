"""Errors a user can act on: one line that says what is wrong, where, and what to do."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

__all__ = ["EcbmError", "InputError", "UnknownNameError", "unknown_name"]


class EcbmError(Exception):
    """Base of every error raised on purpose by ecbm."""


class InputError(EcbmError, ValueError):
    """Something the caller gave cannot be used; nothing was changed. The command line exits with status 2."""


class UnknownNameError(InputError, KeyError):
    """A concept, class, group, split or sample id that does not exist. The message lists near matches."""

    def __str__(self) -> str:  # KeyError would show the repr of the message
        return str(self.args[0])


def unknown_name(kind: str, name: object, valid: Iterable[str], where: str = "") -> UnknownNameError:
    """Build the error for an unknown name, with the nearest valid names.

    Parameters
    ----------
    kind
        What the name should have been: ``"concept"``, ``"class"``, ``"sample id"``.
    name
        What was given.
    valid
        The names that exist.
    where
        Optional place (a file, an edit) put in front of the message.

    Examples
    --------
    >>> print(unknown_name("concept", "wing_colour=blue", ["wing_color=blue", "tail=long"]))
    unknown concept 'wing_colour=blue'; did you mean 'wing_color=blue'?
    >>> print(unknown_name("sample id", "bird-0005", ["bird-00005", "bird-02005"]))
    unknown sample id 'bird-0005'; did you mean 'bird-00005'?
    """
    names = [str(v) for v in valid]
    text = str(name)
    near = _alike(text, names) or difflib.get_close_matches(text, names, n=3, cutoff=0.6)
    if not near:
        folded = {n.casefold(): n for n in names}
        near = [folded[m] for m in difflib.get_close_matches(text.casefold(), folded, n=3, cutoff=0.6)]
    if near:
        hint = "did you mean " + " or ".join(repr(n) for n in near) + "?"
    elif names:
        shown = ", ".join(repr(n) for n in names[:8])
        hint = f"known: {shown}" + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    else:
        hint = "there are none"
    prefix = f"{where}: " if where else ""
    return UnknownNameError(f"{prefix}unknown {kind} {text!r}; {hint}")


def _alike(text: str, names: list[str]) -> list[str]:
    """Names that say the same in another spelling: zeros before a number, capitals, spaces, dashes."""
    wanted = _plainest(text)
    return [name for name in names if _plainest(name) == wanted][:3] if wanted else []


def _plainest(text: str) -> str:
    # Numbers stay apart from each other (1-23 is not 12-3); what stands between words does not matter.
    words = re.findall(r"[^\W\d_]+|\d+", text.casefold())
    return " ".join(word.lstrip("0") or "0" if word.isdecimal() else word for word in words)
