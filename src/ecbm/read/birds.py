"""A built-in dataset: birds drawn by the program, so that every concept of every picture is known exactly."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from ecbm.errors import InputError
from ecbm.read.birds_draw import draw
from ecbm.read.dataset import Dataset

__all__ = ["birds"]

# Each group and its values. A group whose only value is "yes" is absent otherwise.
GROUPS: dict[str, tuple[str, ...]] = {
    "wing_color": ("blue", "green", "red", "brown", "grey"),
    "breast_color": ("white", "yellow", "orange"),
    "breast_pattern": ("plain", "spotted", "streaked"),
    "bill": ("short", "long", "hooked"),
    "tail": ("short", "long", "forked"),
    "crest": ("yes",),
    "eye_ring": ("yes",),
    "wing_bar": ("yes",),
    "mask": ("yes",),
}

# The typical bird of each species, in the order of the groups.
SPECIES: dict[str, str] = {
    "Lantern Jay": "blue orange plain hooked long yes no yes no",
    "Moss Piper": "green yellow streaked long short no yes no no",
    "Ember Finch": "red orange plain short forked yes no no yes",
    "Tide Wren": "grey white streaked long short no no yes yes",
    "Velvet Shrike": "grey orange plain hooked forked no yes no yes",
    "Saffron Tit": "green yellow plain short long yes no yes yes",
    "Dusk Thrush": "brown white spotted short long no yes no no",
    "Frost Bunting": "blue white spotted short forked yes yes yes no",
}

# How often a picture has its species' typical value; the rest is spread over the group's other values.
_TYPICAL = 0.86
_CHUNK_PIXELS = 64 * 48 * 48
_SHARES = {"train": 0.7, "val": 0.1, "test": 0.2}


def birds(n: int = 3000, seed: int = 0, size: int = 48) -> Dataset:
    """Draw pictures of perched birds of eight invented species.

    Every picture has its own concepts: each group takes its species' typical value with probability 0.86 and
    another one otherwise, so a species is a tendency and not a template. Background, light, pose, size, place
    and noise vary independently of species and concepts.

    Parameters
    ----------
    n
        Number of pictures, at least 80; every species is in every split.
    seed
        The same ``n``, ``seed`` and ``size`` give the same bytes.
    size
        Height and width in pixels, 24 to 96.

    Returns
    -------
    Dataset
        Pictures as uint8 (3, size, size), 21 concepts in 9 groups, 8 classes, split 70/10/20.

    Examples
    --------
    >>> data = birds(n=80, size=32)
    >>> data.inputs.shape, len(data.concept_names), len(data.groups), len(data.class_names)
    ((3, 32, 32), 21, 9, 8)
    """
    for name, value, low, high in (
        ("n", n, 10 * len(SPECIES), 1_000_000),
        ("size", size, 24, 96),
        ("seed", seed, 0, 2**63 - 1),
    ):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not low <= value <= high:
            raise InputError(f"birds: {name}={value!r}; give a whole number from {low} to {high}")
    random = np.random.default_rng(seed)
    labels = random.permutation(np.arange(n) % len(SPECIES))
    choices = _choose(labels, random)
    pixels = np.empty((n, 3, size, size), np.uint8)
    chunk = max(1, _CHUNK_PIXELS // size**2)
    for start in range(0, n, chunk):
        rows = slice(start, start + chunk)
        pixels[rows] = draw({group: values[rows] for group, values in choices.items()}, size, random)
    columns = {
        f"{group}={value}": choices[group] == (index if len(values) > 1 else 1)
        for group, values in GROUPS.items()
        for index, value in enumerate(values)
    }
    return Dataset(
        [f"bird-{row:05d}" for row in range(n)],
        torch.from_numpy(pixels),
        torch.from_numpy(np.stack(list(columns.values()), 1).astype(np.float32)),
        torch.from_numpy(labels),
        list(columns),
        list(SPECIES),
        _split(labels, random),
    )


def _choose(labels: NDArray[np.int64], random: np.random.Generator) -> dict[str, NDArray[np.int64]]:
    """Each group's value for every picture, as an index; where "yes" stands alone, 0 is no and 1 is yes."""
    chosen = {}
    for position, (group, values) in enumerate(GROUPS.items()):
        options = values if len(values) > 1 else ("no", "yes")
        typical = np.asarray([options.index(birds.split()[position]) for birds in SPECIES.values()])
        other = random.integers(1, len(options), len(labels)) * (random.random(len(labels)) >= _TYPICAL)
        chosen[group] = (typical[labels] + other) % len(options)
    return chosen


def _split(labels: NDArray[np.int64], random: np.random.Generator) -> list[str]:
    """A split for every picture, in the stated shares within each species."""
    splits = np.empty(len(labels), dtype=object)
    for species in range(len(SPECIES)):
        rows = random.permutation(np.flatnonzero(labels == species))
        ends = np.rint(np.cumsum(list(_SHARES.values())) * len(rows)).astype(int)
        for name, part in zip(_SHARES, np.split(rows, ends[:-1]), strict=True):
            splits[part] = name
    return [str(name) for name in splits]
