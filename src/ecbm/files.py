"""Writing files so that a crash leaves the old content or the new one, never a part of either."""

from __future__ import annotations

import errno
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors.torch import save as safetensors_bytes
from torch import Tensor

from ecbm.errors import InputError

__all__ = ["refusing_places", "write_bytes", "write_json", "write_safetensors", "write_text"]


_IN_THE_WAY = {errno.ENOTDIR, errno.EEXIST}
_NO_PLACE = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT} | _IN_THE_WAY


@contextmanager
def refusing_places(folder: str | Path) -> Iterator[None]:
    """A folder that cannot be written to is bad input; a full or broken disk stays an error of the system."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_PLACE:
            raise
        reason = "a file is in the way" if error.errno in _IN_THE_WAY else error.strerror
        raise InputError(f"{folder}: cannot be written ({reason}); give another folder") from None


def write_bytes(path: str | Path, content: bytes) -> None:
    """Replace ``path`` by ``content``: written beside it, flushed to disk, then renamed over it."""
    path = Path(path)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    flush_folder(path.parent)


def flush_folder(folder: Path) -> None:
    """Make a rename inside ``folder`` durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_text(path: str | Path, content: str) -> None:
    """:func:`write_bytes` for UTF-8 text."""
    write_bytes(path, content.encode())


def write_json(path: str | Path, value: Any) -> None:
    """:func:`write_bytes` for a JSON value, indented for people."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def write_safetensors(path: str | Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """:func:`write_bytes` for tensors by name."""
    # Clones give every tensor its own contiguous memory, which the format requires.
    plain = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    write_bytes(path, safetensors_bytes(plain, dict(metadata)))
