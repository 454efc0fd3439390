"""The settings of experiments, from ``settings.toml`` or a file of one's own; nothing here waits for torch."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from ecbm.errors import InputError, unknown_name

__all__ = ["NAMES", "WORDS", "Settings", "read_settings"]

NAMES = ("table1", "ratios", "concept-importance", "harmful", "periodic", "membership", "visual", "bounds")
_LAYERS = ("frozen", "deep", "quick")
# Settings that say something and decide nothing.
WORDS = ("title", "what", "needs", "time")

Settings = Mapping[str, Any]


def read_settings(path: Path | None = None) -> dict[str, Any]:
    """All settings as the file has them."""
    if path is None:
        return tomllib.loads(resources.files("ecbm.show.reproduce").joinpath("settings.toml").read_text("utf-8"))
    try:
        found = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--settings {path}: cannot be read ({error})") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"--settings {path}: {error}") from None
    usual = read_settings()
    for name in found:
        if name not in usual:
            raise unknown_name("table of settings", name, usual, where=str(path))
    return _over(usual, found)


def _over(usual: dict[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """Tables within tables: what a file does not name stays as it is."""
    merged = dict(usual)
    for name, value in found.items():
        known = merged.get(name)
        merged[name] = _over(known, value) if isinstance(known, dict) and isinstance(value, dict) else value
    return merged


def check_name(name: str) -> None:
    """Refuse what is no experiment."""
    if name not in (*NAMES, "all"):
        raise unknown_name("experiment", name, (*NAMES, "all"))


def layered(tables: Mapping[str, Any], name: str, *, frozen: bool, quick: bool) -> dict[str, Any]:
    """The settings of one experiment: those of ``all`` first, its own over them.

    Examples
    --------
    >>> tables = {"all": {"budget": 0.1, "frozen": {"budget": 0.2}}, "bounds": {"l2": 0.1, "quick": {"l2": 1.0}}}
    >>> layered(tables, "bounds", frozen=True, quick=False)
    {'budget': 0.2, 'l2': 0.1}
    >>> layered(tables, "bounds", frozen=False, quick=True)["l2"]
    1.0
    """
    found: dict[str, Any] = {}
    wanted = ("frozen" if frozen else "deep", *(("quick",) if quick else ()))
    for table in (tables["all"], tables[name]):
        found |= {key: value for key, value in table.items() if key not in _LAYERS}
        for layer in wanted:
            found |= table.get(layer, {})
    return found


def of_data(tables: Mapping[str, Any], kind: str, *, quick: bool) -> dict[str, Any]:
    """How a kind of dataset is read and trained on."""
    table = tables["data"][kind]
    plain = {key: value for key, value in table.items() if key not in _LAYERS}
    return plain | (table.get("quick", {}) if quick else {})
