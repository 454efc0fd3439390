"""What an erasure would destroy, said before it is done."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ecbm.errors import InputError
from ecbm.keep import database
from ecbm.keep.destruction import SIDE_FOLDERS
from ecbm.keep.erasure import _check_known, _not_reached, _reduced, wanted_ids
from ecbm.keep.records import erased
from ecbm.keep.workspace import Workspace
from ecbm.words import counted, listed, readable_size

__all__ = ["plan_erasure", "plan_lines"]


def plan_erasure(workspace: Workspace, ids: Sequence[str], method: str = "auto") -> dict[str, Any]:
    """What ``erase`` with these arguments would destroy. Nothing is changed.

    Returns
    -------
    dict
        ``version`` (the current one), ``samples`` (id to split; ``None`` for one that an edit removed earlier),
        ``with_them`` (classes and concepts that no other sample has), ``versions`` and ``bytes`` (how many versions
        with arrays there are and how large they are), ``folders`` (in the workspace, emptied), ``details`` (of the
        ledger), ``not_reached``.
    """
    version = workspace.version()
    if version.data is None:
        raise erased(version)
    wanted = wanted_ids(ids)
    data = workspace.data(version.version)
    _check_known(workspace, data, wanted)
    present = {name for name in wanted if name in data.rows_by_id}
    left = data.select([row for row, name in enumerate(data.ids) if name not in present])
    if present and (len(left) == 0 or (version.model is not None and "train" not in left.splits)):
        raise InputError("this would erase every sample to learn from; delete the workspace folder instead")
    model = workspace.model(version.version) if version.model is not None else None
    with database.reading(workspace.folder) as connection:
        marks = ", ".join("?" * len(wanted))
        (details,) = connection.execute(
            f"SELECT count(*) FROM details WHERE part IN ('report', 'facts') OR subject IN ({marks})", wanted
        ).fetchone()
    folders = [name for name in SIDE_FOLDERS if any((workspace.folder / name).rglob("*"))]
    return {
        "version": version.version,
        "samples": {name: data.splits[data.row(name)] if name in present else None for name in wanted},
        "with_them": _reduced(data, left, present)[1] if present else [],
        "versions": sum(older.kept for older in workspace.versions()),
        "bytes": workspace.counts()["bytes"],
        "folders": folders,
        "details": details,
        "not_reached": _not_reached(workspace, model, {"method": method}),
    }


def plan_lines(plan: Mapping[str, Any]) -> Iterator[str]:
    """The plan for people."""
    named = [f"{name} ({split or 'removed earlier'})" for name, split in plan["samples"].items()]
    yield "This destroys for good:"
    yield f"  - {counted(len(named), 'sample')}: {listed(named, 8)}"
    if plan["with_them"]:
        yield f"  - what no other sample has: {listed(plan['with_them'], 8)}; the model is trained anew without it"
    yield (
        f"  - the weights and data of {counted(plan['versions'], 'version')} ({readable_size(plan['bytes'])}, of "
        "which the new version keeps what is not about these samples); undo and redo end here"
    )
    if plan["folders"]:
        yield f"  - what is in {', '.join(f'{name}/' for name in plan['folders'])} of the workspace"
    yield f"  - {counted(plan['details'], 'detail')} of the ledger: reports, fingerprints, what edits did to them"
    yield "It does not reach:"
    for place in plan["not_reached"]:
        yield f"  - {place}"
