"""Pictures of one folder or zip: found, decoded once by several threads, and kept."""

from __future__ import annotations

import hashlib
import os
import weakref
import zipfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ecbm.errors import InputError
from ecbm.options import option
from ecbm.read.decoding import decode_picture, undecodable
from ecbm.read.digests import DIGEST_SIZE, RowDigests

__all__ = ["PictureStore", "open_archive"]

# Decoded pictures that all stores of a process keep together; what is beyond it is decoded whenever it is needed.
_CACHE_LIMIT_BYTES = 2**29
_reserved = 0
_DIGESTED_AT_ONCE = 512
_THREADS = max(1, min(8, os.cpu_count() or 1))


def open_archive(path: Path) -> zipfile.ZipFile:
    """A zip archive, opened for reading."""
    try:
        return zipfile.ZipFile(path)
    # A damaged directory raises nearly every kind of exception: BadZipFile, NotImplementedError, ValueError, ...
    except Exception as error:
        reason = " ".join(str(error).split())[:150]
        raise InputError(f"{path}: not a readable zip archive ({reason}); replace the file") from None


def _reserve(owner: object, size: int) -> bool:
    """Take ``size`` bytes out of the limit for as long as ``owner`` lives; false if there are not as many left."""
    global _reserved
    if _reserved + size > _CACHE_LIMIT_BYTES:
        return False
    _reserved += size
    weakref.finalize(owner, _release, size)
    return True


def _release(size: int) -> None:
    global _reserved
    _reserved -= size


class PictureStore:
    """Decoded pictures, shared by all subsets of a dataset.

    Parameters
    ----------
    source
        Folder or zip archive.
    names
        Path of each picture inside ``source``.
    rows
        Where each picture is named in ``table``.
    size
        (height, width) to resize to, or ``None``.
    table
        How to call a row in messages: ``"samples.csv, line"``.
    """

    def __init__(
        self,
        source: Path,
        names: Sequence[str],
        rows: Sequence[int],
        size: tuple[int, int] | None,
        table: str = "row",
    ) -> None:
        self.source, self.names, self.rows, self.table = source, list(names), rows, table
        # Found out here: pictures are decoded by threads, which do not know where options were given.
        self._images, self._image_size = option("images"), option("image_size")
        if not source.exists():
            raise InputError(f"{source}: no such folder or zip of pictures; check {option('images')}")
        self._is_zip = source.is_file()
        self._archive: zipfile.ZipFile | None = None
        self._owner = -1
        self._check_present()
        self.resizes = size is not None
        if size is not None and min(size) < 1:
            raise InputError(f"{option('image_size')}: {size!r}: height and width must be at least 1")
        self.size = size or self._size_of_first()
        self._make_cache()

    def _make_cache(self) -> None:
        shape = (len(self.names), 3, *self.size)
        # The operating system gives memory only to pages that are written, so unused pictures cost nothing.
        keep = _reserve(self, int(np.prod(shape, dtype=np.int64)))
        self._pixels: NDArray[np.uint8] | None = np.empty(shape, np.uint8) if keep else None
        self._known: NDArray[np.bool_] = np.zeros(len(self.names), bool)
        # Digests are made while pixels are at hand: reading pictures a second time takes longer than hashing them.
        self._digests = np.zeros((len(self.names), DIGEST_SIZE), np.uint8)
        self._digested: NDArray[np.bool_] = np.zeros(len(self.names), bool)

    def __getstate__(self) -> dict[str, Any]:
        # Worker processes open the archive themselves and decode what they need.
        state = dict(self.__dict__)
        for name in ("_archive", "_pixels", "_known", "_digests", "_digested"):
            del state[name]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._archive, self._owner = None, -1
        self._make_cache()

    def where(self, index: int) -> str:
        """The place of a picture, for messages."""
        return f"{self.source}, picture {self.names[index]!r} ({self.table} {self.rows[index]})"

    def read(self, index: int) -> bytes:
        """The file's bytes."""
        if self._is_zip:
            return self._zip().read(self.names[index])
        return (self.source / self.names[index]).read_bytes()

    def pixels(self, indices: Sequence[int]) -> NDArray[np.uint8]:
        """Pictures as uint8 (count, 3, height, width)."""
        wanted = np.asarray(indices, np.int64)
        if self._pixels is not None:
            fresh = np.unique(wanted[~self._known[wanted]])
            self._decode_into(self._pixels, fresh, fresh)
            self._known[fresh] = True
            cached: NDArray[np.uint8] = self._pixels[wanted]
            return cached
        result = np.empty((len(wanted), 3, *self.size), np.uint8)
        self._decode_into(result, wanted, np.arange(len(wanted)))
        return result

    def digests(self, indices: Sequence[int]) -> RowDigests:
        """The digest of each picture's pixels, made when they were decoded."""
        wanted = np.asarray(indices, np.int64)
        fresh = np.unique(wanted[~self._digested[wanted]])
        for part in np.array_split(fresh, -(-len(fresh) // _DIGESTED_AT_ONCE)) if len(fresh) else ():
            self.pixels(part.tolist())
        return RowDigests(self._digests[wanted])

    def _decode_into(
        self, target: NDArray[np.uint8], indices: NDArray[np.int64], places: NDArray[np.int64]
    ) -> None:
        def one(index: int, place: int) -> None:
            target[place] = self._decode(index)
            if not self._digested[index]:
                self._digest(index, target[place])

        pairs = zip(indices.tolist(), places.tolist(), strict=True)
        if len(indices) < 16 or _THREADS == 1:
            for index, place in pairs:
                one(index, place)
            return
        if self._is_zip:
            self._zip()  # opened before the threads start, so that they share one
        with ThreadPoolExecutor(_THREADS) as pool:
            try:
                for finished in [pool.submit(one, index, place) for index, place in pairs]:
                    finished.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def _digest(self, index: int, pixels: NDArray[np.uint8]) -> None:
        digest = hashlib.blake2b(f"uint8{pixels.shape}".encode(), digest_size=DIGEST_SIZE)
        digest.update(pixels.data)
        self._digests[index] = np.frombuffer(digest.digest(), np.uint8)
        self._digested[index] = True

    def _zip(self) -> zipfile.ZipFile:
        # A forked process shares the file offset of an open archive with its parent; each opens its own.
        if self._archive is None or self._owner != os.getpid():
            self._archive, self._owner = open_archive(self.source), os.getpid()
        return self._archive

    def _check_present(self) -> None:
        members = set(self._zip().namelist()) if self._is_zip else None
        for index, name in enumerate(self.names):
            present = name in members if members is not None else (self.source / name).is_file()
            if not present:
                raise InputError(f"{self.where(index)}: no such picture; check the image column and {self._images}")

    def _open(self, index: int) -> Image.Image:
        try:
            return decode_picture(self.read(index))
        # Decoders and archives raise nearly every kind of exception on damaged files.
        except Exception as error:
            raise InputError(f"{self.where(index)}: {undecodable(error)}") from None

    def _size_of_first(self) -> tuple[int, int]:
        if not self.names:
            raise InputError(f"{self.source}: no pictures named; the table has no rows")
        width, height = self._open(0).size
        return height, width

    def _decode(self, index: int) -> NDArray[np.uint8]:
        picture = self._open(index)
        height, width = self.size
        if picture.size != (width, height):
            if not self.resizes:
                raise InputError(
                    f"{self.where(index)}: is {picture.size[0]}x{picture.size[1]} but the first picture is "
                    f"{width}x{height}; pass {self._image_size} to resize all of them"
                )
            picture = picture.resize((width, height), Image.Resampling.BILINEAR, reducing_gap=3.0)
        decoded: NDArray[np.uint8] = np.asarray(picture, np.uint8).transpose(2, 0, 1)
        return decoded
