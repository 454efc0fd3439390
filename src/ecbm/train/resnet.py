"""Residual networks with torchvision's parameter names, so that its weight files load.

He et al. 2016. Stages, blocks and widths are free: the same class gives small networks for tests and benchmarks.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ecbm.train.convnet import Apply
from ecbm.train.weight_files import put_weights, read_weights

__all__ = ["BasicBlock", "ResNet", "load_backbone_weights", "resnet18"]

# The constants torchvision's weights were trained with. They do not depend on the user's data.
_IMAGENET_MEAN = (0.485, 0.456, 0.406)
_IMAGENET_SCALE = (0.229, 0.224, 0.225)


def _conv3x3(channels_in: int, channels_out: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(channels_in, channels_out, 3, stride=stride, padding=1, bias=False)


class BasicBlock(nn.Module):
    """Two 3×3 convolutions with a shortcut."""

    def __init__(self, channels_in: int, channels_out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = _conv3x3(channels_in, channels_out, stride)
        self.bn1 = nn.BatchNorm2d(channels_out)
        self.relu = nn.ReLU()
        self.conv2 = _conv3x3(channels_out, channels_out)
        self.bn2 = nn.BatchNorm2d(channels_out)
        self.downsample: nn.Module | None = None
        if stride != 1 or channels_in != channels_out:
            self.downsample = nn.Sequential(
                nn.Conv2d(channels_in, channels_out, 1, stride=stride, bias=False),
                nn.BatchNorm2d(channels_out),
            )

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        out: Tensor = self.relu(self.bn1(self.conv1(x)))
        joined: Tensor = self.relu(self.bn2(self.conv2(out)) + shortcut)
        return joined


class ResNet(nn.Module):
    """Pictures (n, 3, height, width) in 0..1 to feature rows (n, widths[-1]).

    Parameters
    ----------
    blocks, widths
        Number of blocks and channels of each stage; every stage but the first halves the resolution.
    small_stem
        A 3×3 stride-1 first convolution and no pooling, instead of 7×7 stride 2 and pooling.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, blocks: Sequence[int], widths: Sequence[int], small_stem: bool) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(_IMAGENET_MEAN).view(1, 3, 1, 1), persistent=False)
        self.register_buffer("scale", torch.tensor(_IMAGENET_SCALE).view(1, 3, 1, 1), persistent=False)
        first = widths[0]
        if small_stem:
            self.conv1 = _conv3x3(3, first)
            self.maxpool: nn.Module = nn.Identity()
        else:
            self.conv1 = nn.Conv2d(3, first, 7, stride=2, padding=3, bias=False)
            self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.bn1 = nn.BatchNorm2d(first)
        self.relu = nn.ReLU()
        channels = first
        self.stages = [f"layer{number}" for number in range(1, len(widths) + 1)]
        for number, (name, count, width) in enumerate(zip(self.stages, blocks, widths, strict=True)):
            layers = []
            for position in range(count):
                stride = 2 if number > 0 and position == 0 else 1
                layers.append(BasicBlock(channels, width, stride))
                channels = width
            self.add_module(name, nn.Sequential(*layers))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self._standardised(x)
        out = self.maxpool(self.relu(self.bn1(self.conv1(out))))
        for name in self.stages:
            out = self.get_submodule(name)(out)
        return _pooled(out)

    def _standardised(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.scale

    def pieces(self) -> list[tuple[str, nn.Module]]:
        """Its stem and stages in order (:func:`ecbm.train.cuts.cuts_of`)."""
        stem = nn.Sequential(self.conv1, self.bn1, self.relu, self.maxpool)
        stages = [(name, self.get_submodule(name)) for name in self.stages]
        return [("scale", Apply(self._standardised)), ("stem", stem), *stages, ("pool", Apply(_pooled))]


def _pooled(maps: Tensor) -> Tensor:
    return maps.mean((2, 3))


def resnet18(small_stem: bool = True) -> ResNet:
    """ResNet-18 without its last layer."""
    return ResNet((2, 2, 2, 2), (64, 128, 256, 512), small_stem)


def load_backbone_weights(backbone: nn.Module, path: str | os.PathLike[str]) -> None:
    """Load a weight file, torchvision's for example, into a fresh backbone; its classifier ``fc.*`` is left out."""
    put_weights(
        backbone,
        read_weights(path),
        path,
        classifier="fc",
        other_names="expected a ResNet of the same shape",
        other_shape="; is small_stem set as in the file?",
    )
