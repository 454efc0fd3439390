"""Inputs that lie in one ``.npz`` file each, read when they are needed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from ecbm.errors import InputError
from ecbm.read.features import read_features

__all__ = ["ArrayFileInputs"]

_CACHE_LIMIT_BYTES = 2 * 2**30


class ArrayFileInputs:
    """Grey pictures as float arrays, one a file; shown to models with three equal channels.

    Parameters
    ----------
    paths
        ``.npz`` files, each with one array (height, width) or (1, height, width).
    size
        (height, width) to resize to, or ``None``.
    """

    def __init__(self, paths: Sequence[Path], size: tuple[int, int] | None = None) -> None:
        if not paths:
            raise InputError("no array files; the split tables have no rows")
        self._paths, self._size = list(paths), size
        self._expected: tuple[int, ...] | None = None
        self._kept: dict[Path, Tensor] = {}
        self._expected = tuple(self._load(self._paths[0]).shape)

    def __len__(self) -> int:
        return len(self._paths)

    @property
    def shape(self) -> tuple[int, ...]:
        assert self._expected is not None
        return (3, *self._expected)

    def raw(self, rows: Sequence[int] | Tensor) -> Tensor:
        wanted = rows.tolist() if isinstance(rows, Tensor) else rows
        if not len(wanted):
            return torch.empty((0, *self.shape))
        grey = torch.stack([self._load(self._paths[row]) for row in wanted])
        return grey.unsqueeze(1).repeat(1, 3, 1, 1)

    def take(self, rows: Sequence[int] | Tensor) -> Tensor:
        return self.raw(rows)

    def subset(self, rows: Sequence[int]) -> ArrayFileInputs:
        part = object.__new__(ArrayFileInputs)
        part._paths = [self._paths[row] for row in rows]
        part._size, part._expected, part._kept = self._size, self._expected, self._kept
        return part

    def _load(self, path: Path) -> Tensor:
        known = self._kept.get(path)
        if known is not None:
            return known
        grey = read_features(path).float().squeeze(0)
        if grey.ndim != 2:
            raise InputError(f"{path}: an array of shape {tuple(grey.shape)}, expected (height, width)")
        if self._size is not None:
            grey = torch.nn.functional.interpolate(
                grey[None, None], self._size, mode="bilinear", antialias=True, align_corners=False
            )[0, 0]
        if self._expected is not None and tuple(grey.shape) != self._expected:
            raise InputError(
                f"{path}: {tuple(grey.shape)} but the first picture is {self._expected}; pass image_size="
            )
        if (len(self._kept) + 1) * grey.numel() * 4 <= _CACHE_LIMIT_BYTES:
            self._kept[path] = grey.clone()
        return grey
