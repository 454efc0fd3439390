"""Models on disk: ``config.json``, ``model.safetensors`` and a model card. Nothing is ever unpickled."""

from __future__ import annotations

import copy
import json
import math
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from ecbm._version import __version__
from ecbm.errors import InputError
from ecbm.files import flush_folder, refusing_places, write_json, write_safetensors, write_text
from ecbm.keep.card import model_card
from ecbm.read.concept_types import layout_of
from ecbm.train.backbones import build_backbone, feature_width
from ecbm.train.front import Front, FrontSettings
from ecbm.train.model import ConceptBottleneck, Provenance, linear_from
from ecbm.train.recipe import Recipe

__all__ = ["config_of", "load", "model_from", "save"]

FORMAT_VERSION = 1
_CONFIG, _WEIGHTS, _CARD = "config.json", "model.safetensors", "README.md"
_FRONT = "front.safetensors"


def save(
    model: ConceptBottleneck,
    folder: str | Path,
    *,
    metrics: dict[str, Any] | None = None,
    about: Mapping[str, Any] | None = None,
) -> Path:
    """Save a model as a folder; the folder appears whole or not at all.

    Equal models give equal bytes: seconds, which differ from run to run, are left out of the config.

    Parameters
    ----------
    model
        The model.
    folder
        A new folder, or one that holds a saved model, which is then replaced.
    metrics
        Figures of :func:`ecbm.evaluate` for the model card.
    about
        More for the card: ``data`` (sizes), ``split`` (of the metrics) and ``history`` (lines).
    """
    if not isinstance(model, ConceptBottleneck):
        raise InputError(f"save: expected a trained model, got {type(model).__name__}")
    folder = Path(folder)
    with refusing_places(folder):
        return _save(model, folder, metrics, about)


def _save(
    model: ConceptBottleneck, folder: Path, metrics: dict[str, Any] | None, about: Mapping[str, Any] | None
) -> Path:
    if folder.exists() and (not folder.is_dir() or (any(folder.iterdir()) and not (folder / _CONFIG).is_file())):
        raise InputError(f"{folder}: exists and is not a saved model; choose another folder")
    folder.parent.mkdir(parents=True, exist_ok=True)
    config = config_of(model)
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        temporary.chmod(0o755)
        write_json(temporary / _CONFIG, config)
        write_safetensors(temporary / _WEIGHTS, model.state_dict(), {"format": "pt"})
        if model.front is not None:
            write_safetensors(temporary / _FRONT, model.front.weights(), {"format": "pt"})
        write_text(temporary / _CARD, model_card(model, metrics, about))
        if folder.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{folder.name}.old.", dir=folder.parent))
            folder.rename(old / "model")
            try:
                temporary.rename(folder)
            except OSError:
                (old / "model").rename(folder)
                raise
            finally:
                shutil.rmtree(old)
        else:
            temporary.rename(folder)
        flush_folder(folder.parent)
    finally:
        if temporary.exists():
            shutil.rmtree(temporary)
    return folder


def config_of(model: ConceptBottleneck) -> dict[str, Any]:
    """What ``config.json`` says about a model."""
    layout = model.layout
    typed = {} if layout.plain else {"concept_types": layout.declared, "units": layout.units}
    number = {"target": {"kind": "number", "unit": model.target_unit}} if model.predicts_number else {}
    front = {} if model.front is None else {"front": model.front.settings.to_dict()}
    return front | {
        "format": "ecbm-model",
        "format_version": FORMAT_VERSION,
        "ecbm_version": __version__,
        "recipe": model.recipe.to_dict(),
        "input_shape": list(model.input_shape),
        "concept_names": list(model.concept_names),
        "class_names": list(model.class_names),
        **typed,
        **number,
        "data_fingerprint": model.provenance.data_fingerprint,
        "training": _without_seconds(model.provenance.training),
        "fingerprint": model.fingerprint,
    }


def _without_seconds(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_seconds(item) for key, item in value.items() if not key.endswith("seconds")}
    return [_without_seconds(item) for item in value] if isinstance(value, list) else value


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / _CONFIG
    if not path.is_file():
        raise InputError(f"{folder}: not a saved model (no {_CONFIG})")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: cannot be read ({error})") from None
    if not isinstance(config, dict) or config.get("format") != "ecbm-model":
        raise InputError(f"{path}: not the config of an ecbm model")
    if config.get("format_version") != FORMAT_VERSION:
        raise InputError(
            f"{path}: format version {config.get('format_version')!r}; this ecbm reads {FORMAT_VERSION}: "
            "upgrade ecbm or save the model again"
        )
    shapes = {
        "recipe": dict, "input_shape": list, "concept_names": list, "class_names": list,
        "data_fingerprint": str, "training": dict, "fingerprint": str,
    }  # fmt: skip
    for name, kind in shapes.items():
        if not isinstance(config.get(name), kind):
            raise InputError(f"{path}: field {name!r} is missing or not a {kind.__name__}")
    for name in ("concept_names", "class_names"):
        if not config[name] or not all(isinstance(item, str) for item in config[name]):
            raise InputError(f"{path}: field {name!r} must list names")
    sizes = config["input_shape"]
    if not sizes or not all(isinstance(size, int) and 0 < size < 1 << 20 for size in sizes):
        raise InputError(f"{path}: field 'input_shape' must list positive sizes")
    if math.prod(sizes) > 1 << 28:
        raise InputError(f"{path}: field 'input_shape' is too large ({sizes})")
    return config


def load(folder: str | Path, *, backbone: nn.Module | None = None, trust: Sequence[str] = ()) -> ConceptBottleneck:
    """Load a saved model, bit for bit; shapes, finiteness, format version and fingerprint are checked.

    Parameters
    ----------
    folder
        Folder written by :func:`save`.
    backbone
        The module of a custom backbone (only its architecture matters; weights come from the file).
    trust
        Modules that may be imported to build a backbone of somebody's own (``"package.module:factory"``).
    """
    folder = Path(folder)
    config = _read_config(folder)
    path = folder / _WEIGHTS
    if not path.is_file():
        raise InputError(f"{folder}: not a saved model (no {_WEIGHTS})")
    try:
        state = load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read ({error})") from None
    return model_from(config, state, folder / _CONFIG, path, backbone, lambda: _read_front(folder / _FRONT), trust)


def _read_front(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise InputError(f"{path}: the weights of the frozen network cannot be read ({error})") from None


def front_from(
    config: Mapping[str, Any],
    recipe: Recipe,
    backbone: nn.Module | None,
    weights: Callable[[], Mapping[str, Tensor]],
    trust: Sequence[str],
) -> Front | None:
    """The front that a config speaks of; its weights are read when they are needed."""
    if "front" not in config:
        return None
    settings = FrontSettings.from_dict(config["front"])
    if settings.frozen == "none":
        return Front(settings, {}, trust=trust)
    if settings.backbone == "custom" and backbone is not None:
        network = copy.deepcopy(backbone)
        network.load_state_dict(dict(weights()))
        return Front(settings, weights, network)
    return Front(settings, weights, trust=trust)


def _target(given: Any, path: Path) -> tuple[Tensor | None, str]:
    """Where a number is predicted, a place for its mean and scale, and its unit."""
    if given is None:
        return None, ""
    if not isinstance(given, dict) or given.get("kind") != "number" or not isinstance(given.get("unit"), str):
        raise InputError(f"{path}: field 'target' is not that of a number")
    return torch.tensor([0.0, 1.0], dtype=torch.float64), given["unit"]


def model_from(
    config: Mapping[str, Any],
    state: Mapping[str, Tensor],
    config_path: Path,
    path: Path,
    backbone: nn.Module | None = None,
    frozen_weights: Callable[[], Mapping[str, Tensor]] = dict,
    trust: Sequence[str] = (),
) -> ConceptBottleneck:
    """The model of a config and its tensors; the paths are those named in errors.

    ``frozen_weights`` reads those of the front, when a picture first goes through it.
    """
    try:
        recipe = Recipe.from_dict(config["recipe"], backbone)
        shape = tuple(config["input_shape"])
        front = front_from(config, recipe, backbone, frozen_weights, trust)
        seen = shape if front is None else front.shape
        with torch.random.fork_rng(devices=[]):  # initial weights are overwritten: the caller's seed is not used up
            if front is not None and not recipe.is_frozen:
                fresh = front.tail(cast(str | None, recipe.layer))
            else:
                fresh = build_backbone(recipe if front is not None else recipe.replace(weights=None), seen)
        width = feature_width(fresh, seen)
    except (InputError, TypeError, AttributeError, RuntimeError, KeyError, ValueError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"{config_path}: recipe cannot be built ({reason})") from None
    k, classes = len(config["concept_names"]), len(config["class_names"])
    nothing = torch.zeros(k, dtype=torch.float64)
    try:
        layout = layout_of(config["concept_names"], config.get("concept_types"), config.get("units"))
    except (InputError, TypeError, AttributeError, ValueError) as error:
        raise InputError(f"{config_path}: types of concepts cannot be read ({error})") from None
    model = ConceptBottleneck(
        fresh,
        linear_from(torch.zeros(k, width + 1)),
        linear_from(torch.zeros(classes, k + 1)),
        config["concept_names"],
        config["class_names"],
        Recipe.from_dict(config["recipe"], backbone),
        shape,
        nothing,
        nothing,
        nothing,
        Provenance(config["data_fingerprint"], config["training"]),
        layout,
        None,
        front,
        *_target(config.get("target"), config_path),
    )
    expected = model.state_dict()
    for name in sorted(expected.keys() | state.keys()):
        if name not in state:
            raise InputError(f"{path}: lacks {name!r}")
        if name not in expected:
            raise InputError(f"{path}: has an unexpected tensor {name!r}")
        if state[name].shape != expected[name].shape or state[name].dtype != expected[name].dtype:
            raise InputError(
                f"{path}: {name!r} is {state[name].dtype} {tuple(state[name].shape)}, "
                f"expected {expected[name].dtype} {tuple(expected[name].shape)}"
            )
        if not bool(torch.isfinite(state[name]).all()):
            raise InputError(f"{path}: {name!r} contains NaN or infinity")
    model.load_state_dict(state)
    if model.fingerprint != config["fingerprint"]:
        raise InputError(f"{path}: weights and config do not belong together (fingerprints differ)")
    return model
