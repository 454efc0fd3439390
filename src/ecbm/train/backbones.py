"""Backbones: from an input to the feature row that the concept head reads."""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor, nn

from ecbm.errors import InputError
from ecbm.train.convnet import ConvNet
from ecbm.train.recipe import Recipe
from ecbm.train.resnet import load_backbone_weights, resnet18

__all__ = ["MLP", "Standardise", "build_backbone", "feature_width", "resolve_backbone"]


class Standardise(nn.Module):
    """(x − mean) / scale with statistics of the training split, kept in the model.

    A missing value (NaN) is replaced by the mean of those training samples that have it, so it becomes 0.
    Buffers are float64: features of the ``linear`` backbone go straight into exact solves.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, mean: Tensor, scale: Tensor, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype
        self.register_buffer("mean", mean.double())
        self.register_buffer("scale", scale.double())

    @classmethod
    def of(cls, x: Tensor, dtype: torch.dtype) -> Standardise:
        """Statistics of the rows of ``x``; a constant feature keeps scale 1 and becomes 0."""
        rows = x.double()
        gaps = rows.isnan()
        if bool(gaps.any()):
            rows = torch.where(gaps, rows.nanmean(0).nan_to_num(0.0), rows)
        mean, scale = rows.mean(0), rows.std(0, correction=0)
        return cls(mean, torch.where(scale > 1e-12 * (1 + mean.abs()), scale, 1.0), dtype)

    def forward(self, x: Tensor) -> Tensor:
        standard = (x.double() - self.mean) / self.scale
        return standard.nan_to_num(0.0, math.inf, -math.inf).to(self.dtype)


class MLP(nn.Module):
    """Standardised (flattened) inputs through fully connected layers with ReLU."""

    def __init__(self, standardise: Standardise, width: int, hidden: tuple[int, ...]) -> None:
        super().__init__()
        self.standardise = standardise
        layers: list[nn.Module] = []
        for size in hidden:
            layers += [nn.Linear(width, size), nn.ReLU()]
            width = size
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layers(self.standardise(x.flatten(1)))
        return out

    def pieces(self) -> list[tuple[str, nn.Module]]:
        """Its layers in order (:func:`ecbm.train.cuts.cuts_of`)."""
        layers = [(f"layer {n // 2 + 1}", layer) for n, layer in enumerate(self.layers)]
        return [("flatten", nn.Flatten()), ("standardise", self.standardise), *layers]


def resolve_backbone(recipe: Recipe, shape: tuple[int, ...]) -> Recipe:
    """Replace ``"auto"`` by what fits inputs of this shape, and refuse what does not fit."""
    pictures = len(shape) == 3 and shape[0] == 3
    if recipe.backbone == "auto":
        recipe = recipe.replace(backbone="convnet" if pictures else "linear")
    if recipe.backbone in ("convnet", "resnet18") and not pictures:
        raise InputError(f"backbone {recipe.backbone!r} needs pictures (3, height, width); inputs are {shape}")
    if recipe.backbone == "linear" and len(shape) != 1:
        raise InputError(f"backbone 'linear' needs feature rows; inputs are {shape}: use 'mlp' or 'convnet'")
    if recipe.augment is not None and len(shape) != 3:
        raise InputError(f"augment= needs pictures (channels, height, width); inputs are {shape}")
    if recipe.class_balanced and recipe.is_linear:
        raise InputError("class_balanced= is for a backbone that is trained; heads are solved on all samples")
    return recipe


def build_backbone(recipe: Recipe, shape: tuple[int, ...], statistics: Tensor | None = None) -> nn.Module:
    """A fresh backbone for inputs of ``shape``.

    Parameters
    ----------
    recipe
        Already resolved (:func:`resolve_backbone`). Initial weights come from torch's global generator.
    shape
        Shape of one input.
    statistics
        Rows from which standardisation is computed; ``None`` gives placeholders to be loaded over.
    """
    if isinstance(recipe.backbone, nn.Module):
        return copy.deepcopy(recipe.backbone)
    if recipe.backbone in ("linear", "mlp"):
        rows = torch.zeros(1, *shape) if statistics is None else statistics
        if recipe.backbone == "linear":
            return Standardise.of(rows, torch.float64)
        flat = rows.flatten(1)
        return MLP(Standardise.of(flat, torch.float32), flat.shape[1], recipe.hidden)
    if recipe.backbone == "convnet":
        return ConvNet()
    backbone = resnet18(recipe.small_stem)
    if recipe.weights is not None:
        load_backbone_weights(backbone, recipe.weights)
    return backbone


def feature_width(backbone: nn.Module, shape: tuple[int, ...]) -> int:
    """Number of features a backbone gives, found by one trial input."""
    was_training = backbone.training
    backbone.eval()
    try:
        with torch.no_grad():
            out = backbone(torch.zeros(1, *shape))
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"the backbone cannot take a float32 input of shape {shape} ({reason})") from None
    backbone.train(was_training)
    if not isinstance(out, Tensor) or out.ndim != 2:
        got = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
        raise InputError(f"the backbone must give feature rows (n, features), got {got}; flatten its output")
    return int(out.shape[1])
