"""Pictures as the trained part of a model sees them: through its front, each computed once and then kept.

A dataset seen through a front has the same ids, labels and digests; its inputs give features where the pictures'
own inputs give pixels. From there a frozen network is the ``linear`` case.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from ecbm import parallel
from ecbm.progress import progress
from ecbm.read.dataset import Dataset
from ecbm.read.digests import RowDigests
from ecbm.read.inputs import Inputs
from ecbm.train.front import Front

__all__ = ["SeenInputs", "extract", "extract_missing", "pictures_of", "seen_through"]

# Pictures that are decoded together and whose features are kept together: what a killed process loses.
_BATCH = 64
# Processes that keep their own parts wait for each other every so many batches: one that is far behind the others
# would let their last wait run out of time.
_TOGETHER = 64
_DERIVED = ("x", "_parts", "_selections")


class SeenInputs:
    """Inputs seen through a front: ``raw`` gives the pictures' own pixels, ``take`` what the front makes of them.

    Parameters
    ----------
    inputs, digests
        The pictures, and the digest of each (not needed where a front keeps nothing).
    front
        What they are seen through.
    """

    def __init__(self, inputs: Inputs, digests: RowDigests | None, front: Front) -> None:
        self.inputs, self._digests, self.front = inputs, digests, front

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.front.shape

    def raw(self, rows: Sequence[int] | Tensor) -> Tensor:
        return self.inputs.raw(rows)

    def take(self, rows: Sequence[int] | Tensor) -> Tensor:
        wanted = rows if isinstance(rows, Tensor) else torch.as_tensor(list(rows), dtype=torch.long)
        if self._digests is None:
            return self._computed(wanted)
        values, found = self.front.rows.fetch(self._digests.take(wanted.numpy()))
        missing = torch.from_numpy(~found).nonzero().flatten()
        for part in missing.split(_BATCH) if len(missing) else ():
            values[part] = self._computed(wanted[part])
        return values

    def _computed(self, rows: Tensor) -> Tensor:
        return self.front.through(self.inputs.take(rows))

    def subset(self, rows: Sequence[int]) -> SeenInputs:
        digests = None if self._digests is None else self._digests.take(rows)
        return SeenInputs(self.inputs.subset(rows), digests, self.front)

    def missing(self) -> np.ndarray:
        """Rows that are not kept yet; of equal pictures the first."""
        if self._digests is None:
            return np.zeros(0, np.int64)
        rows = np.flatnonzero(~self.front.rows.has(self._digests))
        _, first = np.unique(self._digests.table[rows], axis=0, return_index=True)
        return rows[np.sort(first)]


def extract_missing(data: Dataset) -> None:
    """Compute and keep what a front makes of a dataset's pictures, where that is not kept yet.

    Features are kept of all of them. Maps, which are large, of those that training and edits read again and again.
    """
    if isinstance(data.inputs, SeenInputs) and data.inputs.front.settings.frozen == "until":
        data = data.select([row for row, split in enumerate(data.splits) if split in ("train", "val")])
    inputs = data.inputs
    if isinstance(inputs, SeenInputs) and inputs._digests is not None:
        extract(inputs.front, inputs.inputs, inputs._digests, inputs.missing())


def extract(front: Front, inputs: Inputs, digests: RowDigests, rows: np.ndarray) -> None:
    """Put ``rows`` of the inputs through a front and keep what comes out.

    While one batch goes through the network, the next is decoded by other threads. Processes share each batch.
    Where what is kept lies on disk, each writes its own part, and one that is killed loses a batch at most;
    otherwise each is given the parts of the others.
    """
    parallel.wait()  # all have looked what is missing before one of them adds to it
    if not len(rows):
        return
    size = _BATCH * parallel.world_size()
    batches = np.array_split(rows, -(-len(rows) // size))

    def decoded(batch: np.ndarray) -> Tensor:
        share = parallel.shard(len(batch))
        return inputs.take(batch[share.start : share.stop].tolist())

    title = f"Features of {front.settings.backbone.partition(':')[2] or front.settings.backbone}"
    with progress(title, len(digests), len(digests) - len(rows)) as bar, ThreadPoolExecutor(1) as pool:
        coming = pool.submit(decoded, batches[0])
        for place, batch in enumerate(batches):
            pixels = coming.result()
            if place + 1 < len(batches):
                coming = pool.submit(decoded, batches[place + 1])
            computed, mine = front.through(pixels), parallel.shard(len(batch))
            if front.rows.shared:
                front.rows.add(digests.take(batch[mine.start : mine.stop]), computed)
            else:
                front.rows.add(digests.take(batch), parallel.gather_rows(computed, len(batch)))
            bar.advance(len(batch))
            if place % _TOGETHER == 0:
                parallel.wait()
    parallel.wait()
    front.rows.refresh()


def seen_through(front: Front | None, data: Dataset) -> Dataset:
    """The dataset as the part of a model behind a front sees it; itself where there is no front."""
    if front is None or isinstance(data.inputs, SeenInputs):
        return data
    digests = RowDigests.of(data.row_digests) if front.keeps else None
    return _with_inputs(data, SeenInputs(data.inputs, digests, front))


def pictures_of(data: Dataset) -> Dataset:
    """The dataset itself, of one that was seen through a front."""
    return _with_inputs(data, data.inputs.inputs) if isinstance(data.inputs, SeenInputs) else data


def _with_inputs(data: Dataset, inputs: Inputs) -> Dataset:
    """The same samples with other inputs that have the same digests: everything known about labels stays known."""
    other = object.__new__(Dataset)
    other.__dict__.update({name: value for name, value in data.__dict__.items() if name not in _DERIVED})
    other.__dict__["inputs"] = inputs
    return other
