"""Code of one's own behind a backbone: imported on loading only where the user says so, and never unpickled.

A saved model or a workspace may come from somebody else. That it names a module to import must not be enough to
have that module run here.
"""

from __future__ import annotations

from collections.abc import Sequence

from ecbm.errors import InputError

__all__ = ["allow", "allowed", "check_trusted"]

_allowed: set[str] = set()


def allow(*modules: str) -> None:
    """Allow modules (and what lies inside a package) for the rest of this process, as ``--trust`` does."""
    _allowed.update(modules)


def allowed() -> list[str]:
    """What was allowed so far, for another process that does a part of this one's work."""
    return sorted(_allowed)


def check_trusted(backbone: str, trust: Sequence[str] = ()) -> None:
    """Refuse to import the module of a ``"package.module:factory"`` that nobody has allowed."""
    module = backbone.partition(":")[0]
    if not any(module == one or module.startswith(f"{one}.") for one in {*trust, *_allowed}):
        raise InputError(
            f"the backbone is code of somebody's own, {backbone!r}; if you know it, allow it: --trust {module} on "
            f"the command line, trust=[{module!r}] in Python"
        )
