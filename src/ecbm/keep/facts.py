"""What an edit starts from, kept between processes: a cold edit then computes only what it changes.

Facts of a version (:class:`~ecbm.edit.state.EditorState`) lie in the folder ``cache`` as files named by their
digest, with a small list beside them. Nothing depends on them: what is damaged, unknown or too old is dropped and
computed again, and an erasure destroys the folder. Versions share files that an edit left as they were.

The list also says at which version the facts were computed from the data itself (``root``); facts that came forward
from there by edits agree with fresh ones to rounding, not to the bit, so replaying an edit starts from the same
root.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load as tensors_from
from safetensors.torch import save as tensor_bytes
from torch import Tensor

from ecbm.edit.editor import Editor
from ecbm.keep import durable
from ecbm.keep.objects import digest_of

__all__ = ["Recalled", "keep_facts", "recall_facts"]

_FORMAT = 2
_MOST_VERSIONS = 8
_MOST_BYTES = 2 << 30


@dataclasses.dataclass(frozen=True)
class Recalled:
    """Where an editor's facts come from: the root version, and the files of groups that were read."""

    root: int
    files: dict[str, tuple[str, dict[str, Tensor]]] = dataclasses.field(default_factory=dict)


def _list_of(cache: Path, editor: Editor) -> Path:
    # The fingerprint of the data is part of the name: the same weights on other data have other facts.
    return cache / f"facts-{editor.model.fingerprint[:16]}-{editor.data.fingerprint[:16]}.json"


def recall_facts(workspace: Path, editor: Editor, version: int) -> Recalled:
    """Give an editor the facts that were kept for its model and data; without any, ``version`` is the root."""
    cache = workspace / "cache"
    path = _list_of(cache, editor)
    try:
        listed = json.loads(path.read_bytes())
        if listed["format"] != _FORMAT:
            raise ValueError("another format")
        files = {
            name: (str(digest), _read(cache / f"{digest}.facts", digest))
            for name, digest in listed["groups"].items()
        }
        editor.state.restore({name: group for name, (_, group) in files.items()})
        return Recalled(int(listed["root"]), files)
    except FileNotFoundError:
        return Recalled(version)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError):
        with contextlib.suppress(OSError):
            durable.remove(path)
        return Recalled(version)


def _read(path: Path, digest: str) -> dict[str, Tensor]:
    content = path.read_bytes()
    if digest_of(content) != digest:
        raise ValueError("damaged")
    # Copied into memory of torch's own: results may depend on how arrays are aligned.
    return {name: value.clone() for name, value in tensors_from(content).items()}


def keep_facts(workspace: Path, editor: Editor, recalled: Recalled) -> None:
    """Keep the facts that an editor has at hand for the next process; a full disk is no reason to fail."""
    cache = workspace / "cache"
    with contextlib.suppress(OSError):
        durable.make_folder(cache)
        groups = {
            name: _unchanged(group, recalled.files.get(name)) or _write(cache, group)
            for name, group in editor.state.stored().items()
        }
        if groups:
            content = json.dumps({"format": _FORMAT, "root": recalled.root, "groups": groups}).encode()
            durable.replace_unflushed(_list_of(cache, editor), content)
            _tidy(cache)


def _unchanged(group: dict[str, Tensor], known: tuple[str, dict[str, Tensor]] | None) -> str | None:
    """The file of a group whose tensors are those that were read from it."""
    if known is None or group.keys() != known[1].keys():
        return None
    same = (
        value is known[1][name] or (value.ndim == 0 and value == known[1][name]) for name, value in group.items()
    )
    return known[0] if all(same) else None


def _write(cache: Path, group: dict[str, Tensor]) -> str:
    content = tensor_bytes({name: value.contiguous() for name, value in group.items()})
    digest = digest_of(content)
    path = cache / f"{digest}.facts"
    if not path.exists():
        durable.replace_unflushed(path, content)
    return digest


def _tidy(cache: Path) -> None:
    """Drop the facts of older versions, and files that no list names."""
    lists = sorted(cache.glob("facts-*.json"), key=lambda path: path.stat().st_mtime, reverse=True)
    kept, size = set[str](), 0
    for place, path in enumerate(lists):
        try:
            mine = {f"{digest}.facts" for digest in json.loads(path.read_bytes())["groups"].values()}
            size += sum((cache / name).stat().st_size for name in mine - kept)
        except (OSError, ValueError, KeyError, AttributeError):
            mine, size = set(), _MOST_BYTES + 1
        if place and (place >= _MOST_VERSIONS or size > _MOST_BYTES):
            durable.remove(path)
        else:
            kept |= mine
    for path in (*cache.glob("*.facts"), *cache.glob("*.draft")):
        if path.name not in kept:
            durable.remove(path)
