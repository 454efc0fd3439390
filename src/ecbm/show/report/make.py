"""``ecbm.report``: gather, draw, write."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ecbm.errors import InputError
from ecbm.files import write_json
from ecbm.keep.workspace import Workspace
from ecbm.show.report.audit import audit_from, kept_audit, read_audit
from ecbm.show.report.content import gather
from ecbm.show.report.layout import page_of

__all__ = ["report"]


def report(
    workspace: Workspace | str | os.PathLike[str],
    version: int | str | None = None,
    *,
    out: str | os.PathLike[str] | None = None,
    audit: dict[str, Any] | str | os.PathLike[str] | None = None,
) -> dict[str, Any]:
    """A version for readers who did not make it: what was changed, by whom and why, how good it is, what is proven.

    Parameters
    ----------
    workspace
        A workspace, or its folder.
    version
        The current one by default.
    out
        Where to write it: ``NAME.html`` writes the page and, with the complete lists, ``NAME.json`` beside it;
        ``NAME.json`` only the latter. Inside the workspace, reports go to its ``exports`` folder, which an erasure
        reaches.
    audit
        The result of ``ecbm verify``, or the path of a file that holds it; by default the deepest that the
        workspace keeps for this version.

    Returns
    -------
    dict
        ``summary`` (in words), ``version``, ``changes``, ``figures`` (by split, with 95 % intervals),
        ``predictions``, ``mistakes``, ``certificate``, ``checks``, ``history``, ``erasures``, ``integrity``,
        ``limits`` and ``reproduce``, among others. The same workspace gives the same bytes.

    Examples
    --------
    >>> import ecbm, tempfile
    >>> data, recipe = ecbm.datasets.breast_cancer(), ecbm.Recipe(backbone="linear")
    >>> workspace = ecbm.Workspace.create(tempfile.mkdtemp(), data, recipe)
    >>> _ = workspace.train()
    >>> found = ecbm.report(workspace)
    >>> [row["name"] for row in found["figures"]["test"]["measures"]][:2]
    ['classes', 'all concepts']
    """
    opened = workspace if isinstance(workspace, Workspace) else Workspace(Path(workspace))
    target = None if out is None else _target(opened, Path(out))
    material = gather(opened, version, _audit(opened, version, audit))
    if target is not None:
        complete = target.with_suffix(".json")
        if target != complete:
            page_of(material, complete.name).write(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        write_json(complete, material.content)
    return material.content


def _audit(
    workspace: Workspace, version: int | str | None, given: dict[str, Any] | str | os.PathLike[str] | None
) -> dict[str, Any] | None:
    if given is None:
        return kept_audit(workspace, version)
    return audit_from(given) if isinstance(given, dict) else read_audit(Path(given))


def _target(workspace: Workspace, out: Path) -> Path:
    if out.suffix.lower() not in (".html", ".htm", ".json"):
        raise InputError(f"{out}: a report is a page or JSON; give a name that ends in .html or .json")
    if out.is_dir():
        raise InputError(f"{out}: is a folder; give the name of a file")
    place, root = out.resolve(), workspace.folder.resolve()
    if place.is_relative_to(root) and place.parent != root / "exports":
        raise InputError(f"{out}: inside the workspace, reports go to {workspace.folder / 'exports'}/NAME.html")
    return out
