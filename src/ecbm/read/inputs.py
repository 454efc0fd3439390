"""What a model sees: feature rows held in memory, or pictures decoded when they are first needed."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from torch import Tensor

from ecbm.errors import InputError
from ecbm.read.digests import DIGEST_SIZE, RowDigests
from ecbm.read.pictures import PictureStore

if TYPE_CHECKING:
    from ecbm.read.feature_columns import FeatureColumns

__all__ = ["ImageInputs", "Inputs", "TensorInputs", "digest_rows", "rows_at_once"]


class Inputs(Protocol):
    """An ordered collection of inputs, one a sample.

    ``take`` returns float32 ready for a model (pictures scaled to 0..1); ``raw`` returns what is stored
    (pictures as uint8), which is what fingerprints are made of.
    """

    def __len__(self) -> int: ...

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        ...

    def raw(self, rows: Sequence[int] | Tensor) -> Tensor: ...

    def take(self, rows: Sequence[int] | Tensor) -> Tensor: ...

    def subset(self, rows: Sequence[int]) -> Inputs: ...


def rows_at_once(shape: tuple[int, ...]) -> int:
    """How many inputs of a shape a model is best shown together: what lies between its layers should stay in the
    processor's cache. Pictures of 32 px: 64.
    """
    return max(8, min(512, 3 * 2**16 // max(math.prod(shape), 1)))


def _all_finite(tensor: Tensor) -> bool:
    """Whether a tensor holds neither NaN nor infinity; by its extremes, which needs no memory of its own."""
    if tensor.dtype == torch.uint8 or tensor.numel() == 0:
        return True
    return all(math.isfinite(extreme.item()) for extreme in torch.aminmax(tensor))


def _to_float(stored: Tensor) -> Tensor:
    return stored.float().div_(255) if stored.dtype == torch.uint8 else stored


class TensorInputs:
    """Inputs in one tensor: float features, or pictures as uint8 (n, channels, height, width).

    A subset is a view: it remembers its rows and copies nothing until it is read. ``columns`` says of which columns
    of a table they were made, where they were; only then may values be missing (NaN).
    """

    def __init__(self, tensor: Tensor, rows: Tensor | None = None, columns: FeatureColumns | None = None) -> None:
        if tensor.dtype != torch.uint8:
            tensor = tensor.to(torch.float32)
        self._base, self._rows, self.columns = tensor.contiguous(), rows, columns
        self._not_finite: list[int] | None = None

    @property
    def tensor(self) -> Tensor:
        """All inputs."""
        return self._base if self._rows is None else self._base[self._rows]

    def first_not_finite(self) -> int | None:
        """The first row with NaN (where none is allowed) or infinity, if any; looked for once."""
        if self._not_finite is None and _all_finite(self._base):
            self._not_finite = []
        if self._not_finite is None:
            wrong = ~torch.isfinite(self.tensor) if self.columns is None else torch.isinf(self.tensor)
            self._not_finite = wrong.flatten(1).any(1).nonzero().flatten()[:1].tolist()
        return self._not_finite[0] if self._not_finite else None

    @property
    def has_missing(self) -> bool:
        """Whether some value is missing (NaN)."""
        return self.columns is not None and bool(self.tensor.isnan().any())

    def __len__(self) -> int:
        return len(self._base) if self._rows is None else len(self._rows)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self._base.shape[1:])

    def raw(self, rows: Sequence[int] | Tensor) -> Tensor:
        wanted = torch.as_tensor(rows, dtype=torch.long)
        return self._base[wanted if self._rows is None else self._rows[wanted]]

    def take(self, rows: Sequence[int] | Tensor) -> Tensor:
        return _to_float(self.raw(rows))

    def subset(self, rows: Sequence[int]) -> TensorInputs:
        wanted = torch.as_tensor(rows, dtype=torch.long)
        part = TensorInputs(self._base, wanted if self._rows is None else self._rows[wanted], self.columns)
        part._not_finite = [] if self._not_finite == [] else None
        return part


class JoinedInputs:
    """Several inputs one after another, each read where it lies."""

    def __init__(self, parts: Sequence[Inputs]) -> None:
        self._parts = [part for part in parts if len(part)]

    def __len__(self) -> int:
        return sum(len(part) for part in self._parts)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self._parts[0].shape)

    def raw(self, rows: Sequence[int] | Tensor) -> Tensor:
        wanted = torch.as_tensor(rows, dtype=torch.long)
        out: Tensor | None = None
        offset = 0
        for part in self._parts:
            mine = ((wanted >= offset) & (wanted < offset + len(part))).nonzero().flatten()
            if len(mine):
                values = part.raw(wanted[mine] - offset)
                out = values.new_empty((len(wanted), *self.shape)) if out is None else out
                out[mine] = values
            offset += len(part)
        return out if out is not None else self._parts[0].raw(rows)

    def take(self, rows: Sequence[int] | Tensor) -> Tensor:
        return _to_float(self.raw(rows))

    def subset(self, rows: Sequence[int]) -> Inputs:
        if list(rows) == list(range(len(self))):
            return self
        parts: list[Inputs] = []
        offset = 0
        # Rows keep their order, so that a subset is again parts one after another wherever that is possible.
        position = 0
        wanted = [int(row) for row in rows]
        for part in self._parts:
            end = position
            while end < len(wanted) and offset <= wanted[end] < offset + len(part):
                end += 1
            parts.append(part.subset([row - offset for row in wanted[position:end]]))
            position = end
            offset += len(part)
        return JoinedInputs(parts) if position == len(wanted) else TensorInputs(self.raw(wanted))


def concatenate(first: Inputs, second: Inputs) -> Inputs:
    """Two inputs of one shape and kind, the second behind the first."""
    kinds = [part.raw([0]).dtype for part in (first, second) if len(part)]
    if len(set(kinds)) > 1:
        raise InputError(f"inputs of two kinds cannot be joined ({kinds[0]} and {kinds[1]}); convert one of them")
    if isinstance(first, TensorInputs) and isinstance(second, TensorInputs):
        if first.columns != second.columns and None not in (first.columns, second.columns):
            raise InputError(
                "inputs made of different columns cannot be joined; read the new table like the old one"
            )
        return TensorInputs(torch.cat([first.tensor, second.tensor]), columns=first.columns or second.columns)
    return JoinedInputs([first, second])


class ImageInputs:
    """Pictures named in a table and found in a folder or a zip; decoded on first use and kept.

    Parameters
    ----------
    source
        Folder or zip archive.
    names
        One path inside ``source`` a sample.
    size
        (height, width) to resize to; ``None`` requires all pictures to have the size of the first.
    rows
        Row number of each picture in the table it came from, for error messages.
    table
        How to call such a row in error messages.
    """

    def __init__(
        self,
        source: str | Path,
        names: Sequence[str],
        size: tuple[int, int] | None = None,
        rows: Sequence[int] | None = None,
        table: str = "row",
    ) -> None:
        self._store = PictureStore(Path(source), names, rows or range(1, len(names) + 1), size, table)
        self._indices = list(range(len(names)))

    def __len__(self) -> int:
        return len(self._indices)

    @property
    def shape(self) -> tuple[int, ...]:
        return (3, *self._store.size)

    @property
    def names(self) -> list[str]:
        """Path of each picture inside its folder or zip."""
        return [self._store.names[i] for i in self._indices]

    @property
    def resizes(self) -> bool:
        """Whether pictures are resized when decoded."""
        return self._store.resizes

    def encoded(self, row: int) -> bytes:
        """The original file's bytes of one picture."""
        return self._store.read(self._indices[row])

    def raw(self, rows: Sequence[int] | Tensor) -> Tensor:
        wanted = rows.tolist() if isinstance(rows, Tensor) else rows
        return torch.from_numpy(self._store.pixels([self._indices[row] for row in wanted]))

    def take(self, rows: Sequence[int] | Tensor) -> Tensor:
        return _to_float(self.raw(rows))

    def digests(self) -> RowDigests:
        """The digest of every picture; made while it is decoded."""
        return self._store.digests(self._indices)

    def subset(self, rows: Sequence[int]) -> ImageInputs:
        part = object.__new__(ImageInputs)
        part._store = self._store
        part._indices = [self._indices[row] for row in rows]
        return part


def digest_rows(inputs: Inputs, chunk: int = 512) -> RowDigests:
    """A 16-byte digest of every input, made of what the model sees and not of how the file encodes it."""
    if isinstance(inputs, ImageInputs):
        return inputs.digests()
    if isinstance(inputs, JoinedInputs):
        empty = np.zeros((0, DIGEST_SIZE), np.uint8)
        return RowDigests(np.concatenate([empty, *(digest_rows(part, chunk).table for part in inputs._parts)]))
    digests: list[bytes] = []
    for start in range(0, len(inputs), chunk):
        block = inputs.raw(range(start, min(start + chunk, len(inputs)))).numpy()
        tag = f"{block.dtype}{block.shape[1:]}".encode()
        digests += [hashlib.blake2b(tag + row.tobytes(), digest_size=DIGEST_SIZE).digest() for row in block]
    return RowDigests.of(digests)
