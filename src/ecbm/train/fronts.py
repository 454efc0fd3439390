"""From a recipe to the front of a network by name, and the layers behind it that are trained."""

from __future__ import annotations

import copy
import dataclasses
from typing import cast

import torch
from torch import Tensor, nn

from ecbm.errors import InputError
from ecbm.train.front import Front, FrontSettings, Frozen, digest_of_weights, tail_of
from ecbm.train.networks import Network, build_network, load_weights
from ecbm.train.onnx_network import OnnxNetwork, onnx_content
from ecbm.train.preprocessing import Preprocessing
from ecbm.train.recipe import Recipe
from ecbm.train.resnet import load_backbone_weights, resnet18

__all__ = ["build_front"]


def build_front(recipe: Recipe, shape: tuple[int, ...]) -> tuple[Front, nn.Module | None] | None:
    """The front of a network by name, and the layers behind it that are trained (``None``: all are frozen).

    ``None`` for backbones without a front.

    Parameters
    ----------
    recipe
        Already resolved (:func:`resolve_backbone`). Initial weights come from torch's global generator.
    shape
        Shape of one picture.
    """
    if not recipe.is_named and not recipe.frozen:
        return None
    until = recipe.frozen.partition(":")[2] if isinstance(recipe.frozen, str) else None
    frozen = "all" if recipe.is_frozen else ("until" if until else "none")
    network = _network(recipe)
    settings = FrontSettings(
        backbone=recipe.to_dict()["backbone"],
        library=network.library,
        source=network.source,
        preprocessing=network.preprocessing.replaced(recipe.preprocessing),
        input_shape=tuple(shape),
        shape=(),
        frozen=frozen,
        layer=cast(str | None, recipe.layer) if frozen == "all" else until,
        mixed=recipe.mixed_precision,
        precision=recipe.feature_precision or ("float16" if frozen == "until" else "float32"),
        arguments=recipe.arguments or ({"small_stem": recipe.small_stem} if recipe.backbone == "resnet18" else {}),
    )
    if frozen == "none":
        settings = dataclasses.replace(settings, precision="float32", mixed=False)
    trial = Frozen(settings, nn.Identity() if frozen == "none" else network.module)
    settings = dataclasses.replace(settings, shape=_trial_shape(trial, shape))
    if frozen == "none":
        return Front(settings, {}, nn.Identity()), network.module
    tail = None if frozen == "all" else tail_of(network, settings, cast(str | None, recipe.layer))
    state = network.module.state_dict()
    if isinstance(network.module, OnnxNetwork):
        state = {"onnx": network.module.content}
    moving = tail.state_dict() if tail is not None else {}
    weights = {name: value.detach().clone() for name, value in state.items() if name not in moving}
    settings = dataclasses.replace(settings, weights=digest_of_weights(weights))
    # The front's own copy: training the tail must not reach into it.
    own = network.module if isinstance(network.module, OnnxNetwork) else copy.deepcopy(network.module)
    return Front(settings, weights, own), tail


def _network(recipe: Recipe) -> Network:
    if isinstance(recipe.backbone, nn.Module):
        return Network(copy.deepcopy(recipe.backbone), Preprocessing(), "custom")
    if recipe.backbone == "resnet18":
        backbone = resnet18(recipe.small_stem)
        if recipe.weights is not None:
            load_backbone_weights(backbone, recipe.weights)
        return Network(backbone, Preprocessing(), "ecbm", source=str(recipe.weights or "initial weights"))
    if recipe.backbone.startswith("onnx:"):
        found = OnnxNetwork(onnx_content(recipe.backbone.partition(":")[2]))
        return Network(found, Preprocessing(size=found.size), "onnxruntime", source=recipe.backbone)
    network = build_network(recipe.backbone, recipe.arguments, pretrained=recipe.weights == "pretrained")
    if recipe.weights is not None and recipe.weights != "pretrained":
        network = load_weights(network, str(recipe.weights))
    return network


def _trial_shape(module: nn.Module, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Shape of what a module makes of one picture."""
    module.eval()
    try:
        with torch.no_grad():
            out = module(torch.zeros(1, *shape))
    except (RuntimeError, ValueError, TypeError, IndexError, AssertionError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"the backbone cannot take a picture of shape {shape} ({reason})") from None
    if not isinstance(out, Tensor) or out.ndim < 2:
        raise InputError("the backbone must give feature rows (n, features)")
    return tuple(out.shape[1:])
