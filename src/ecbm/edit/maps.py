"""Kept maps: what comes out of the front of a cut backbone, computed once for every sample.

What is trained behind the cut reads these and never runs the front again (docs/editing.md, "Deep backbones"). They
hold single samples, as features do, and share their fate: they belong to one model and its data.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor, nn

from ecbm.devices import device_of
from ecbm.edit.alignment import Alignment, Matching
from ecbm.read.dataset import Dataset
from ecbm.read.inputs import Inputs, rows_at_once
from ecbm.train.cuts import Cut, cuts_of
from ecbm.train.model import ConceptBottleneck

__all__ = ["CarriedMaps", "FreshMaps", "KeptMaps", "MapStore", "Maps", "tail_design"]

# In memory as float32 up to the first size, as float16 up to the second, and in a file beyond it.
_SINGLE_BYTES, _MEMORY_BYTES = 256 * 2**20, 2**30
# Stored for later processes up to this size: reading more takes as long as the forward pass.
_STORED_BYTES = 256 * 2**20


class Maps(Protocol):
    """Maps of some samples in order."""

    exact: bool
    """Whether they are what the front gives, bit for bit."""

    def __len__(self) -> int: ...

    def take(self, rows: Tensor) -> Tensor:
        """Those of some samples, float32, in memory of their own."""
        ...


class KeptMaps:
    """Maps held in memory or in a temporary file, which goes with them."""

    def __init__(self, values: Tensor, channels_last: bool) -> None:
        self.values, self.channels_last = values, channels_last
        self.exact = values.dtype == torch.float32
        self._file: object = None

    @classmethod
    def of(cls, front: nn.Module, inputs: Inputs) -> KeptMaps:
        """The front's maps of all inputs, in evaluation mode."""
        front.eval()
        found: KeptMaps | None = None
        size = rows_at_once(inputs.shape)
        with torch.no_grad():
            for start in range(0, max(len(inputs), 1), size):
                rows = inputs.take(range(start, min(start + size, len(inputs))))
                maps = front(rows.to(device_of(front))).cpu()
                found = found or cls._empty(len(inputs), maps)
                found.values[start : start + len(maps)] = found._as_kept(maps)
        assert found is not None
        return found

    @classmethod
    def _empty(cls, count: int, maps: Tensor) -> KeptMaps:
        channels_last = maps.ndim == 4 and not maps.is_contiguous()
        shape = (count, *(maps.permute(0, 2, 3, 1) if channels_last else maps).shape[1:])
        numbers = math.prod(shape)
        kind = torch.float32 if 4 * numbers <= _SINGLE_BYTES else torch.float16
        if kind.itemsize * numbers <= _MEMORY_BYTES:
            return cls(torch.empty(shape, dtype=kind), channels_last)
        file = tempfile.NamedTemporaryFile(prefix="ecbm-maps-")  # noqa: SIM115
        file.truncate(kind.itemsize * numbers)
        kept = cls(torch.from_file(file.name, shared=True, size=numbers, dtype=kind).view(shape), channels_last)
        kept._file = file
        return kept

    def _as_kept(self, maps: Tensor) -> Tensor:
        return maps.permute(0, 2, 3, 1) if self.channels_last else maps

    def __len__(self) -> int:
        return len(self.values)

    @property
    def bytes(self) -> int:
        return self.values.numel() * self.values.element_size()

    def take(self, rows: Tensor) -> Tensor:
        # A channel's largest value is far below float16's in any network that trains; what is above it is cut off.
        taken = self.values[rows].float()
        return taken.permute(0, 3, 1, 2) if self.channels_last else taken


class CarriedMaps:
    """Kept maps under new places; those of samples that came are computed."""

    def __init__(self, kept: Maps, places: Matching, come: Maps | None) -> None:
        self._kept, self._places, self._come = kept, places, come
        self.exact = kept.exact and (come is None or come.exact)
        self._new = torch.full((places.after,), -1, dtype=torch.long)
        self._new[places.come] = torch.arange(len(places.come))

    def __len__(self) -> int:
        return self._places.after

    def take(self, rows: Tensor) -> Tensor:
        origin = self._places.origin[rows]
        if self._come is None or bool((origin >= 0).all()):
            return self._kept.take(origin)
        taken = self._kept.take(origin.clamp_min(0))
        here = origin < 0
        taken[here] = self._come.take(self._new[rows[here]])
        return taken


class FreshMaps:
    """Maps that are not worth keeping: the front has no parameters and takes no time."""

    exact = True

    def __init__(self, front: nn.Module, inputs: Inputs) -> None:
        self._front, self._inputs = front.eval(), inputs

    def __len__(self) -> int:
        return len(self._inputs)

    def take(self, rows: Tensor) -> Tensor:
        with torch.no_grad():
            return self._front(self._inputs.take(rows).to(device_of(self._front))).cpu()  # type: ignore[no-any-return]


def tail_design(cut: Cut, maps: Maps, shape: tuple[int, ...]) -> Tensor:
    """Features with a column of ones, from maps: the same bits as from inputs of ``shape`` where maps are exact.

    Samples go through in the pieces that :func:`~ecbm.train.stages.feature_design` takes, for rounding depends on
    them.
    """
    cut.tail.eval()
    size, design = rows_at_once(shape), torch.empty(0)
    with torch.no_grad():
        for rows in torch.arange(len(maps)).split(size):
            features = cut.tail(maps.take(rows).to(device_of(cut.tail))).cpu()
            if not len(design):
                design = torch.ones(len(maps), features.shape[1] + 1, dtype=torch.float64)
            design[rows, :-1] = features.double()
    return design


class MapStore:
    """The maps of one model on its data, by the names of cut and split; computed on first use."""

    def __init__(self, model: ConceptBottleneck, data: Dataset, seconds: dict[str, float]) -> None:
        self.model, self.data, self.seconds = model, data, seconds
        self.kept: dict[tuple[str, str], KeptMaps] = {}

    def of(self, cut: Cut, split: str) -> Maps:
        """What comes out of the front of a cut of the model, for the samples of a split; kept."""
        if cut.whole:
            return FreshMaps(cut.front, self.data.split(split).inputs)
        key = cut.name, split
        if key not in self.kept:
            started = time.monotonic()
            self.kept[key] = KeptMaps.of(cut.front, self.data.split(split).inputs)
            self.seconds["maps"] = self.seconds.get("maps", 0.0) + time.monotonic() - started
        return self.kept[key]

    def carried(self, alignment: Alignment, cut: Cut, split: str) -> Maps:
        """Those of the edited samples, for a cut of the carried model; only samples that came are computed."""
        edited = alignment.after if split == "train" else alignment.edited.split(split)
        if cut.whole:
            return FreshMaps(cut.front, edited.inputs)
        places = alignment.samples
        if split != "train":
            before = self.data.split(split).ids if split in self.data.split_sizes else ()
            places = Matching.by_name(before, edited.ids, frozenset(alignment.edit.remove_samples))
        # The carried front computes what the model's own does, up to rounding: all maps are of the model's own.
        own = next(one for one in cuts_of(self.model.backbone) if one.name == cut.name)
        if not len(places.old):
            return KeptMaps.of(own.front, edited.inputs)
        if places.unchanged:
            return self.of(own, split)
        come = KeptMaps.of(own.front, edited.select(places.come).inputs) if len(places.come) else None
        return CarriedMaps(self.of(own, split), places, come)

    def follow(self, before: MapStore) -> None:
        """Take over what holds here too: maps of the same samples, in front of cuts whose front did not move."""
        if not before.kept:
            return
        fronts = {cut.name: cut.front.state_dict() for cut in cuts_of(before.model.backbone)}
        same = {
            cut.name
            for cut in cuts_of(self.model.backbone)
            if cut.name in fronts and _equal(fronts[cut.name], cut.front.state_dict())
        }
        for (name, split), maps in before.kept.items():
            there = split in self.data.split_sizes
            if name in same and there and before.data.split(split).ids == self.data.split(split).ids:
                self.kept[name, split] = maps

    def stored(self) -> dict[str, dict[str, Tensor]]:
        """Maps at hand as a group of named tensors, if they are small enough."""
        if not self.kept or sum(maps.bytes for maps in self.kept.values()) > _STORED_BYTES:
            return {}
        return {"maps": {f"{split} {name}": maps.values for (name, split), maps in self.kept.items()}}

    def restored(self, group: Mapping[str, Tensor]) -> dict[tuple[str, str], KeptMaps]:
        """Kept maps from stored ones.

        Raises
        ------
        ValueError
            If they are not of the shapes that the fronts give.
        """
        found = {}
        fronts = {cut.name: cut.front for cut in cuts_of(self.model.backbone)}
        for key, values in group.items():
            split, name = key.split(" ", 1)
            if name not in fronts or split not in self.data.split_sizes:
                raise ValueError(f"there is no place for maps called {key!r}")
            part = self.data.split(split)
            like = KeptMaps.of(fronts[name], part.inputs.subset([0]))
            if tuple(values.shape) != (len(part), *like.values.shape[1:]):
                raise ValueError(f"{key} has shape {tuple(values.shape)}")
            found[name, split] = KeptMaps(values, like.channels_last)
        return found


def _equal(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)
