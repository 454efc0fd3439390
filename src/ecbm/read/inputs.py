"""What a model sees: feature rows held in memory, or pictures decoded when they are first needed."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from ecbm.errors import InputError

__all__ = ["ImageInputs", "Inputs", "TensorInputs"]

_CACHE_LIMIT_BYTES = 4 * 2**30


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


def _to_float(stored: Tensor) -> Tensor:
    return stored.float().div_(255) if stored.dtype == torch.uint8 else stored


class TensorInputs:
    """Inputs in one tensor: float features, or pictures as uint8 (n, channels, height, width)."""

    def __init__(self, tensor: Tensor) -> None:
        if tensor.dtype != torch.uint8:
            tensor = tensor.to(torch.float32)
        self.tensor = tensor.contiguous()

    def __len__(self) -> int:
        return len(self.tensor)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape[1:])

    def raw(self, rows: Sequence[int] | Tensor) -> Tensor:
        return self.tensor[torch.as_tensor(rows, dtype=torch.long)]

    def take(self, rows: Sequence[int] | Tensor) -> Tensor:
        return _to_float(self.raw(rows))

    def subset(self, rows: Sequence[int]) -> TensorInputs:
        return TensorInputs(self.raw(rows))


class _PictureCache:
    """Decoded pictures of one folder or zip, shared by all subsets of a dataset."""

    def __init__(self, source: Path, names: Sequence[str], rows: Sequence[int], size: tuple[int, int] | None):
        self.source, self.names, self.rows = source, list(names), list(rows)
        self._archive = zipfile.ZipFile(source) if source.is_file() else None
        self.check_present()
        self.size = size or self._size_of_first()
        self._resize = size is not None
        count = len(self.names) * 3 * self.size[0] * self.size[1]
        keep = count <= _CACHE_LIMIT_BYTES
        self._pixels = np.empty((len(self.names), 3, *self.size), np.uint8) if keep else None
        self._known: NDArray[np.bool_] = np.zeros(len(self.names), bool)

    def where(self, index: int) -> str:
        return f"{self.source}, picture {self.names[index]!r} (row {self.rows[index]})"

    def check_present(self) -> None:
        members = set(self._archive.namelist()) if self._archive is not None else None
        for index, name in enumerate(self.names):
            present = name in members if members is not None else (self.source / name).is_file()
            if not present:
                raise InputError(f"{self.where(index)}: no such picture; check the image column and images=")

    def bytes_of(self, index: int) -> bytes:
        if self._archive is not None:
            return self._archive.read(self.names[index])
        return (self.source / self.names[index]).read_bytes()

    def _open(self, index: int) -> Image.Image:
        try:
            picture = Image.open(io.BytesIO(self.bytes_of(index)))
            picture.load()
        except (OSError, SyntaxError, ValueError, zipfile.BadZipFile) as error:
            raise InputError(f"{self.where(index)}: cannot be decoded ({error}); replace the file") from None
        return picture.convert("RGB")

    def _size_of_first(self) -> tuple[int, int]:
        if not self.names:
            raise InputError(f"{self.source}: no pictures named; the table has no rows")
        width, height = self._open(0).size
        return height, width

    def pixels(self, index: int) -> NDArray[np.uint8]:
        """Picture ``index`` as uint8 (3, height, width)."""
        if self._pixels is not None and self._known[index]:
            cached: NDArray[np.uint8] = self._pixels[index]
            return cached
        picture = self._open(index)
        height, width = self.size
        if picture.size != (width, height):
            if not self._resize:
                raise InputError(
                    f"{self.where(index)}: is {picture.size[0]}x{picture.size[1]} but the first picture is "
                    f"{width}x{height}; pass image_size= to resize all of them"
                )
            picture = picture.resize((width, height), Image.Resampling.BILINEAR, reducing_gap=3.0)
        decoded: NDArray[np.uint8] = np.asarray(picture, np.uint8).transpose(2, 0, 1)
        if self._pixels is not None:
            self._pixels[index] = decoded
            self._known[index] = True
        return decoded


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
    """

    def __init__(
        self,
        source: str | Path,
        names: Sequence[str],
        size: tuple[int, int] | None = None,
        rows: Sequence[int] | None = None,
    ) -> None:
        cache = _PictureCache(Path(source), names, rows or range(1, len(names) + 1), size)
        self._cache, self._indices = cache, list(range(len(names)))

    def __len__(self) -> int:
        return len(self._indices)

    @property
    def shape(self) -> tuple[int, ...]:
        return (3, *self._cache.size)

    @property
    def names(self) -> list[str]:
        """Path of each picture inside its folder or zip."""
        return [self._cache.names[i] for i in self._indices]

    def encoded(self, row: int) -> bytes:
        """The original file's bytes of one picture."""
        return self._cache.bytes_of(self._indices[row])

    def raw(self, rows: Sequence[int] | Tensor) -> Tensor:
        wanted = rows.tolist() if isinstance(rows, Tensor) else rows
        pixels = np.empty((len(wanted), *self.shape), np.uint8)
        for position, row in enumerate(wanted):
            pixels[position] = self._cache.pixels(self._indices[row])
        return torch.from_numpy(pixels)

    def take(self, rows: Sequence[int] | Tensor) -> Tensor:
        return _to_float(self.raw(rows))

    def subset(self, rows: Sequence[int]) -> ImageInputs:
        part = object.__new__(ImageInputs)
        part._cache = self._cache
        part._indices = [self._indices[row] for row in rows]
        return part


def digest_rows(inputs: Inputs, chunk: int = 512) -> list[bytes]:
    """A 16-byte digest of every input, made of what the model sees and not of how the file encodes it."""
    digests: list[bytes] = []
    for start in range(0, len(inputs), chunk):
        block = inputs.raw(range(start, min(start + chunk, len(inputs)))).numpy()
        tag = f"{block.dtype}{block.shape[1:]}".encode()
        digests += [hashlib.blake2b(tag + row.tobytes(), digest_size=16).digest() for row in block]
    return digests
