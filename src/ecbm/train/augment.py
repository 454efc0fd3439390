"""Augmentation: what deep training sees of a picture differs a little from epoch to epoch.

Every number that is drawn is a function of the seed, the epoch and the sample's place in the epoch's order, so it
is the same after an interrupt, in batches of another size, and whichever process computes it. Only the epochs of a
deep training look through it: validation, the closing features, heads, edits and predictions see pictures as they
are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from numbers import Real
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from ecbm.errors import InputError, unknown_name

__all__ = ["AUGMENTATIONS", "Augmentation", "checked_augmentation", "uniform"]

AUGMENTATIONS = {"flip": 0.5, "vertical_flip": 0.5, "crop": 0.125, "zoom": 0.8, "colour": 0.2}
"""Their usual strengths: the probability of a flip, by what share of its size a crop moves the picture at most, the
smallest share of height and width that a zoom enlarges, and how far from 1 the factors of brightness, contrast and
saturation go."""

# Places of each augmentation's numbers among those drawn for a sample: one that is left out changes no other.
_FLIP, _VERTICAL_FLIP, _CROP, _ZOOM, _COLOUR = 0, 1, slice(2, 4), slice(4, 7), slice(7, 10)
_DRAWS = 10
_GOLDEN = 0x9E3779B97F4A7C15
# Luma of Rec. 601: what photographs are made grey by.
_GREY = (0.299, 0.587, 0.114)


def checked_augmentation(given: Any) -> dict[str, float] | None:
    """Augmentations with their strengths, in a fixed order; ``None`` where there are none.

    Parameters
    ----------
    given
        Names (``"flip,crop"``, also with a strength: ``"crop=0.1"``), a list of them, or a mapping from names to
        strengths. ``None`` and ``"none"`` are none.

    Examples
    --------
    >>> checked_augmentation("crop=0.1, flip")
    {'flip': 0.5, 'crop': 0.1}
    """
    found: dict[str, float] = {}
    for name, strength in _pairs(given):
        if name not in AUGMENTATIONS:
            raise unknown_name("augmentation", name, AUGMENTATIONS, "Recipe: augment")
        if strength is False:
            continue
        value = AUGMENTATIONS[name] if strength is None or strength is True else strength
        if not isinstance(value, Real) or not 0 < float(value) <= 1:
            raise InputError(f"Recipe: augment: {name} must be above 0 and at most 1, got {strength!r}")
        found[name] = float(value)
    return {name: found[name] for name in AUGMENTATIONS if name in found} or None


def _pairs(given: Any) -> list[tuple[str, Any]]:
    if given is None or (isinstance(given, str) and given.strip().lower() in ("", "none")):
        return []
    if isinstance(given, Mapping):
        return [(str(name), strength) for name, strength in given.items()]
    if not isinstance(given, Iterable):
        raise InputError(f"Recipe: augment must be names or a mapping to strengths, got {given!r}")
    return [_pair(text) for text in (given.split(",") if isinstance(given, str) else map(str, given))]


def _pair(text: str) -> tuple[str, Any]:
    name, equals, strength = (part.strip() for part in text.partition("="))
    if not equals:
        return name, None
    try:
        return name, float(strength)
    except ValueError:
        raise InputError(f"Recipe: augment: {name} needs a number, got {strength!r}") from None


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64 (Steele, Lea, Flood 2014): 64 bits in, 64 bits that look random out."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def uniform(seed: int, epoch: int, places: Tensor, draws: int = _DRAWS) -> Tensor:
    """(n, draws) numbers in [0, 1), float64: each row depends on seed, epoch and its own place alone.

    A generator that is counted, not stepped: no state has to be kept for an interrupted training, and processes
    draw for their own samples only.

    Examples
    --------
    >>> few, all = uniform(0, 3, torch.tensor([5])), uniform(0, 3, torch.arange(8))
    >>> bool((few[0] == all[5]).all())
    True
    """
    golden = np.uint64(_GOLDEN)
    key = _mixed(_mixed(np.array([seed], np.uint64) + golden) + np.array([epoch], np.uint64) * golden)
    first = places.numpy().astype(np.uint64)[:, None] * np.uint64(draws)
    bits = _mixed(key[0] + (first + np.arange(1, draws + 1, dtype=np.uint64)) * golden) >> np.uint64(11)
    return torch.from_numpy(bits.astype(np.float64) * 2.0**-53)


class Augmentation:
    """Pictures (n, channels, height, width) in 0..1, changed at random but reproducibly.

    Parameters
    ----------
    strengths
        As :func:`checked_augmentation` gives them.
    seed
        The recipe's.
    """

    def __init__(self, strengths: Mapping[str, float], seed: int) -> None:
        self.strengths, self.seed = dict(strengths), seed

    def __call__(self, pictures: Tensor, epoch: int, places: Tensor) -> Tensor:
        """The pictures as an epoch sees them; ``places`` says where in its order each stands."""
        drawn = uniform(self.seed, epoch, places).to(pictures.device)
        strengths = self.strengths
        if "flip" in strengths:
            pictures = _flipped(pictures, drawn[:, _FLIP] < strengths["flip"], -1)
        if "vertical_flip" in strengths:
            pictures = _flipped(pictures, drawn[:, _VERTICAL_FLIP] < strengths["vertical_flip"], -2)
        if "crop" in strengths:
            pictures = _cropped(pictures, drawn[:, _CROP], strengths["crop"])
        if "zoom" in strengths:
            pictures = _zoomed(pictures, drawn[:, _ZOOM], strengths["zoom"])
        if "colour" in strengths:
            pictures = _coloured(pictures, drawn[:, _COLOUR], strengths["colour"])
        return pictures


def _flipped(pictures: Tensor, chosen: Tensor, side: int) -> Tensor:
    return torch.where(chosen[:, None, None, None], pictures.flip(side), pictures)


def _cropped(pictures: Tensor, drawn: Tensor, furthest: float) -> Tensor:
    """The picture moved by whole pixels, its border mirrored: small ones keep every detail."""
    count, channels, height, width = pictures.shape
    # A border can be mirrored only once.
    down, across = (min(max(round(furthest * side), 1), side - 1) for side in (height, width))
    padded = functional.pad(pictures, (across, across, down, down), mode="reflect")
    starts = (drawn * torch.tensor([2 * down + 1, 2 * across + 1], device=drawn.device)).long()
    rows = starts[:, :1] + torch.arange(height, device=drawn.device)
    columns = starts[:, 1:] + torch.arange(width, device=drawn.device)
    samples = torch.arange(count, device=drawn.device)[:, None, None, None]
    layers = torch.arange(channels, device=drawn.device)[None, :, None, None]
    return padded[samples, layers, rows[:, None, :, None], columns[:, None, None, :]]


def _zoomed(pictures: Tensor, drawn: Tensor, smallest: float) -> Tensor:
    """A window of the pictures' own shape, of a random size and place, enlarged to the whole."""
    size = smallest + (1 - smallest) * drawn[:, :1]
    # Coordinates go from -1 to 1: a window of this size fits with its middle this far from 0.
    middle = (1 - size) * (2 * drawn[:, 1:] - 1)
    window = torch.zeros(len(pictures), 2, 3, dtype=torch.float64, device=pictures.device)
    window[:, 0, 0] = window[:, 1, 1] = size[:, 0]
    window[:, :, 2] = middle
    grid = functional.affine_grid(window.to(pictures.dtype), list(pictures.shape), align_corners=False)
    return functional.grid_sample(pictures, grid, padding_mode="border", align_corners=False)


def _coloured(pictures: Tensor, drawn: Tensor, furthest: float) -> Tensor:
    """Brightness, then contrast (away from the picture's mean grey), then saturation (away from each pixel's)."""
    factors = (1 + furthest * (2 * drawn - 1)).to(pictures.dtype)[:, :, None, None, None]
    weights = torch.tensor(_GREY, dtype=pictures.dtype, device=pictures.device)[:, None, None]
    pictures = (pictures * factors[:, 0]).clamp(0, 1)
    middle = (pictures * weights).sum(1, keepdim=True).mean((2, 3), keepdim=True)
    pictures = (middle + factors[:, 1] * (pictures - middle)).clamp(0, 1)
    grey = (pictures * weights).sum(1, keepdim=True)
    return (grey + factors[:, 2] * (pictures - grey)).clamp(0, 1)
