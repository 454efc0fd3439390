"""What audits have computed, kept in a workspace: what each reference model says of the samples in question.

The folder ``references`` has one folder for each plan of an audit, named by the plan's digest; the fingerprint
of the data is part of the plan and stands in every file, so nothing is ever used for other data. Weights are not
kept. Nothing depends on these files: what is damaged or missing is computed again. An erasure destroys the
folder, for every reference has seen some of what is erased.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as arrays_from
from safetensors.numpy import save as array_bytes

from ecbm.errors import EcbmError
from ecbm.keep import durable
from ecbm.keep.ledger import canonical
from ecbm.keep.lock import BusyError, exclusive
from ecbm.keep.objects import digest_of
from ecbm.keep.transaction import LOCK

__all__ = ["FOLDER", "StoredParts", "keep_verdict", "kept_verdict"]

FOLDER = "references"
_FORMAT = 1
_DIGEST = 64
_MOST_PLANS = 16


class StoredParts:
    """Parts of an audit on disk (:class:`~ecbm.verify.audit.collecting.Store`).

    Parameters
    ----------
    workspace
        The workspace's folder.
    plan
        Everything that decides what the parts are, as plain values; ``data`` is the fingerprint of the data.
    still_there
        Raises where the versions that are audited have been erased meanwhile.
    """

    def __init__(self, workspace: Path, plan: Mapping[str, Any], still_there: Callable[[], None]) -> None:
        self._workspace, self._still_there, self._data = workspace, still_there, str(plan["data"])
        self.key = digest_of(canonical({"format": _FORMAT, **plan}).encode())[:32]
        self.folder = workspace / FOLDER / self.key

    def get(self, name: str) -> dict[str, NDArray[np.float64]] | None:
        """A part, if it is whole and of this plan and data; what is not is removed."""
        path = self.folder / f"{name}.part"
        try:
            content = path.read_bytes()
        except OSError:
            return None
        try:
            if digest_of(content[_DIGEST:]) != content[:_DIGEST].decode():
                raise ValueError("damaged")
            arrays: dict[str, NDArray[np.float64]] = arrays_from(content[_DIGEST:])
            about = json.loads(arrays.pop("about").tobytes())
            if about != self._about(name):
                raise ValueError("of other data")
        except (ValueError, KeyError, AttributeError, SafetensorError):
            durable.remove(path)
            return None
        return arrays

    def put(self, name: str, arrays: Mapping[str, NDArray[np.float64]]) -> None:
        """Keep a part, unless what it was computed from is gone; a full or read-only disk is no reason to fail."""
        about = np.frombuffer(canonical(self._about(name)).encode(), np.uint8)
        content = array_bytes({"about": about, **{key: np.ascontiguousarray(a) for key, a in arrays.items()}})
        with contextlib.suppress(OSError):
            self._write(self.folder / f"{name}.part", digest_of(content).encode() + content)

    def _about(self, name: str) -> dict[str, str]:
        return {"part": name, "plan": self.key, "data": self._data}

    def _write(self, path: Path, content: bytes) -> None:
        # An erasure holds the same lock: nothing of what it destroys is written behind its back.
        with exclusive(self._workspace / LOCK):
            self._still_there()
            for folder in (path.parent.parent, path.parent):
                durable.make_folder(folder)
            durable.replace_unflushed(path, content)
            _tidy(path.parent)


def _tidy(mine: Path) -> None:
    """Drop the oldest plans, and drafts of a process that was killed; the caller holds the lock."""
    for draft in mine.glob("*.draft"):
        durable.remove(draft)
    others = [path for path in mine.parent.iterdir() if path.is_dir() and path != mine]
    if len(others) >= _MOST_PLANS:
        for path in sorted(others, key=lambda one: one.stat().st_mtime)[: len(others) - _MOST_PLANS + 1]:
            durable.step("remove folder", path)
            shutil.rmtree(path, ignore_errors=True)


def _verdict_file(workspace: Path, version: int, depth: str) -> Path:
    return workspace / FOLDER / f"verdict-{version}-{depth}.json"


def keep_verdict(
    workspace: Path,
    version: int,
    prints: Mapping[str, str],
    result: Mapping[str, Any],
    still_there: Callable[[], None],
) -> None:
    """Keep the result of an audit beside its references, for reports."""
    content = json.dumps({"of": dict(prints), "result": result}, ensure_ascii=False).encode()
    # What cannot be kept is said all the same.
    with contextlib.suppress(OSError, BusyError), exclusive(workspace / LOCK):
        still_there()
        durable.make_folder(workspace / FOLDER)
        durable.replace_unflushed(_verdict_file(workspace, version, str(result["depth"])), content)


def kept_verdict(workspace: Path, version: int, depth: str, prints: Mapping[str, str]) -> dict[str, Any] | None:
    """The last result of this depth for a version with these fingerprints; ``None`` where there is none."""
    try:
        kept = json.loads(_verdict_file(workspace, version, depth).read_bytes())
        return dict(kept["result"]) if kept["of"] == dict(prints) else None
    except (OSError, ValueError, KeyError, TypeError, EcbmError):
        return None
