"""A small convolutional network for 32–64 px pictures, fast on a CPU."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

__all__ = ["Apply", "ConvNet"]

_WIDTHS = (16, 32, 64, 128)


class Apply(nn.Module):
    """A function without parameters as a piece of a network."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class ConvNet(nn.Module):
    """Four 3×3 convolutions with batch normalisation and pooling between them; 256 features.

    The last maps are pooled twice, by mean and by maximum: the mean sees colour and texture, the maximum whether
    a small part (a bill, a vacuole) is anywhere in the picture. Narrow layers at full resolution and wide ones at
    low resolution keep an epoch near the cost of its largest layer.
    """

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for width in _WIDTHS:
            layers += [nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)]
            # A maximum of rectified values is the rectified maximum, of a quarter as many.
            layers += [nn.ReLU()] if width == _WIDTHS[-1] else [nn.MaxPool2d(2), nn.ReLU(inplace=True)]
            channels = width
        self.layers = nn.Sequential(*layers)
        # Channels last in memory: on a CPU a forward pass takes a third of the time, a training step two thirds.
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x: Tensor) -> Tensor:
        return _pooled(self.layers(_scaled(x)))

    def pieces(self) -> list[tuple[str, nn.Module]]:
        """Its blocks in order (:func:`ecbm.train.cuts.cuts_of`)."""
        starts = [place for place, layer in enumerate(self.layers) if isinstance(layer, nn.Conv2d)]
        ends = [*starts[1:], len(self.layers)]
        blocks = [(f"block {n}", self.layers[a:b]) for n, (a, b) in enumerate(zip(starts, ends, strict=True), 1)]
        return [("scale", Apply(_scaled)), *blocks, ("pool", Apply(_pooled))]


def _scaled(x: Tensor) -> Tensor:
    # Fixed constants, not fitted on the data: nothing to forget when a sample is removed.
    return ((x - 0.5) / 0.25).contiguous(memory_format=torch.channels_last)


def _pooled(maps: Tensor) -> Tensor:
    return torch.cat([maps.mean((2, 3)), maps.amax((2, 3))], dim=1)
