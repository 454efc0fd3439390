"""The recipe: everything that decides how a model is trained, as one value that can be saved and compared."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any

from torch import nn

from ecbm.errors import InputError, unknown_name
from ecbm.train.augment import checked_augmentation
from ecbm.train.certified import checked_certified
from ecbm.train.networks import is_own
from ecbm.train.preprocessing import checked_preprocessing

__all__ = ["BACKBONES", "BOTTLENECKS", "REGIMES", "Recipe"]

BACKBONES = ("auto", "linear", "mlp", "convnet", "resnet18", "pretrained")
PREFIXES = ("timm:NAME", "torchvision:NAME", "onnx:FILE", "package.module:factory")
PRECISIONS = ("float32", "float16")
# Fields that came later: left out of a recipe's plain form at their default, so that older fingerprints stay valid.
_LATER: dict[str, Any] = {
    "frozen": None, "layer": None, "preprocessing": None, "feature_precision": None, "arguments": None,
    "mixed_precision": False, "augment": None, "backbone_rate": 1.0, "class_balanced": False, "accumulate": 1,
    "sync_batchnorm": False, "label_l1": None, "certified": None,
}  # fmt: skip
REGIMES = ("sequential", "independent", "joint")
BOTTLENECKS = ("logits", "probabilities")


def _positive(name: str, value: Any) -> float:
    if not isinstance(value, Real) or not 0 < float(value) < math.inf:
        raise InputError(f"Recipe: {name} must be a positive number, got {value!r}")
    return float(value)


def _whole(name: str, value: Any, smallest: int = 1) -> int:
    if not isinstance(value, Integral) or int(value) < smallest:
        raise InputError(f"Recipe: {name} must be a whole number of at least {smallest}, got {value!r}")
    return int(value)


def _checked_positive_weight(setting: Any) -> str | float | dict[str, float] | None:
    if setting is None:
        return None
    if isinstance(setting, str):
        if setting == "balanced":
            return setting
        raise unknown_name("pos_weight", setting, ["balanced"], "Recipe")
    if isinstance(setting, Mapping):
        return {str(name): _positive(f"pos_weight of {name!r}", value) for name, value in setting.items()}
    return _positive("pos_weight", setting)


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How to train a concept bottleneck model.

    Parameters
    ----------
    backbone
        ``"linear"`` (frozen features, standardised with training statistics), ``"mlp"``, ``"convnet"`` (small,
        for 32–64 px), ``"resnet18"`` (torchvision's parameter names), any ``nn.Module`` that
        maps a batch to feature rows, or ``"auto"`` (linear for feature rows, convnet for pictures). For pictures
        also ``"pretrained"`` (the best network with weights that is installed), ``"timm:NAME"``,
        ``"torchvision:NAME"``, ``"onnx:FILE"`` and ``"package.module:factory"`` (your own).
    regime
        ``"sequential"``: concepts first, then classes on the predicted bottleneck. ``"independent"``: classes on
        the true concepts. ``"joint"``: both at once, J_Y + ``joint_weight`` · J_C.
    bottleneck
        What the label head reads: concept ``"logits"`` or ``"probabilities"``.
    concept_l2, label_l2
        α and β of the objectives, on every parameter of the stage. ``None`` takes 0.1 for the linear backbone
        and 1e-2 for others, and 1e-2 for logits and 1e-3 for probabilities.
    label_l1
        λ of an L1 term over the label head's weights: most of them become 0, and each class reads few concepts.
        ``None``: no such term. Not for the joint regime.
    joint_weight
        c of the joint objective.
    pos_weight
        Weight of positive concept labels: ``None``, ``"balanced"`` (negatives / positives in the training
        split, at most 20), one number, or a mapping from concept names to numbers.
    epochs, batch_size, learning_rate
        Of the deep stage: Adam with a one-cycle schedule that peaks at ``learning_rate`` (``None`` takes 1e-2
        for the convnet and 1e-3 for other backbones).
    patience
        Stop after this many epochs without a better validation objective and keep the best; ``None`` never. Epochs
        count from three fifths of the schedule on, when the learning rate has come down.
    augment
        How pictures are varied in the epochs of a deep stage: ``"flip,crop,colour"``, also
        ``"vertical_flip"`` and ``"zoom"``; with strengths ``"crop=0.1"`` or ``{"crop": 0.1}``. ``None``: not.
        Not for frozen networks or layers behind one, which see kept features or maps.
    class_balanced
        Every class comes up equally often in the epochs of a deep stage, instead of every sample once. Heads are
        solved on all samples as they are.
    accumulate
        Batches whose gradients make one step: a batch of ``accumulate · batch_size`` in the memory of one.
    backbone_rate
        Learning rate of the backbone as a share of ``learning_rate``, such as 0.1 for one with weights of its own.
    sync_batchnorm
        Under several processes: BatchNorm over the whole batch instead of each process's share.
    hidden
        Layer widths of ``"mlp"``.
    small_stem
        ``resnet18`` only: a 3×3 stride-1 stem without pooling, for pictures up to 64 px.
    weights
        Initial weights of ``resnet18`` and of networks by name: a file (safetensors, or a state dict), the name of
        an installed package with weights, or ``"pretrained"`` (the library's own, from its cache or downloaded).
    frozen
        ``True``: the network is left as it is; its features are computed once and both heads are convex, so every
        edit is exact. ``"until:LAYER"``: only the layers behind one are trained, on kept maps. ``False``: all of it
        is trained. ``None``: ``True`` for networks with pretrained weights, ``False`` for others.
    layer
        Of a frozen network: the layer whose output is taken as features (maps by their mean), instead of the last.
        Several are joined: ``"layer3+layer4"``, or a list of names. With ``frozen="until:LAYER"``, that layer and
        layers behind it that are joined, and normalised, instead of the network's own output.
    preprocessing
        What to change in the network's own preprocessing: ``{"size": 160}``, also ``crop``, ``squash``,
        ``interpolation``, ``mean``, ``std``.
    feature_precision
        To which kept features are rounded: ``"float32"`` or ``"float16"`` (half the space). ``None`` takes float32
        for features and float16 for maps.
    arguments
        What the factory of a ``"package.module:factory"`` is called with (JSON values).
    mixed_precision
        Compute products of networks in bfloat16, in training and in the passes of a frozen network (whose features
        then differ in the third digit). Heads are solved in float64 all the same.
    certified
        ``{"epsilon": 1.0, "delta": 1e-5}``: every model is released with noise on both heads that makes removed
        samples (ε, δ)-indistinguishable from ones that were never there. For frozen features; ``"tolerance"`` is
        the gradient norm that a head may have left (1e-9). ``None``: no noise.
    resolve_concept_head
        Re-solve the concept head exactly on the final features as the last step of deep training.
    head_tolerance
        Gradient norm to which the convex heads are solved at least, in float64. The solver aims a thousand times
        lower, which costs one more step and lets later edits prove that nothing else moved.
    seed
        Decides initial weights and the order of samples.

    Examples
    --------
    >>> Recipe(backbone="linear").label_regularisation
    0.01
    """

    backbone: str | nn.Module = "auto"
    regime: str = "sequential"
    bottleneck: str = "logits"
    concept_l2: float | None = None
    label_l2: float | None = None
    joint_weight: float = 1.0
    pos_weight: str | float | Mapping[str, float] | None = None
    epochs: int = 20
    batch_size: int = 64
    learning_rate: float | None = None
    patience: int | None = 5
    augment: str | Sequence[str] | Mapping[str, float] | None = dataclasses.field(default=None, kw_only=True)
    class_balanced: bool = dataclasses.field(default=False, kw_only=True)
    accumulate: int = dataclasses.field(default=1, kw_only=True)
    backbone_rate: float = dataclasses.field(default=1.0, kw_only=True)
    sync_batchnorm: bool = dataclasses.field(default=False, kw_only=True)
    hidden: tuple[int, ...] = (256,)
    small_stem: bool = True
    weights: str | os.PathLike[str] | None = None
    resolve_concept_head: bool = True
    head_tolerance: float = 1e-10
    seed: int = 0
    frozen: bool | str | None = None
    layer: str | Sequence[str] | None = None
    preprocessing: Mapping[str, Any] | None = None
    feature_precision: str | None = None
    arguments: Mapping[str, Any] | None = None
    mixed_precision: bool = False
    label_l1: float | None = None
    certified: Mapping[str, float] | None = dataclasses.field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.backbone, str | nn.Module):
            raise InputError(f"Recipe: backbone must be a name or an nn.Module, got {self.backbone!r}")
        if isinstance(self.backbone, str) and self.backbone not in BACKBONES and not self.is_named:
            raise unknown_name("backbone", self.backbone, (*BACKBONES, *PREFIXES), "Recipe")
        if self.regime not in REGIMES:
            raise unknown_name("regime", self.regime, REGIMES, "Recipe")
        if self.bottleneck not in BOTTLENECKS:
            raise unknown_name("bottleneck", self.bottleneck, BOTTLENECKS, "Recipe")
        for name in ("class_balanced", "sync_batchnorm"):
            if not isinstance(getattr(self, name), bool):
                raise InputError(f"Recipe: {name} must be True or False, got {getattr(self, name)!r}")
        self._put("augment", checked_augmentation(self.augment))
        # Numbers of other libraries become Python's: a recipe is written as JSON and compared by what it prints.
        self._put("pos_weight", _checked_positive_weight(self.pos_weight))
        for name in ("concept_l2", "label_l2", "label_l1", "learning_rate"):
            self._put(name, None if getattr(self, name) is None else _positive(name, getattr(self, name)))
        for name in ("joint_weight", "head_tolerance", "backbone_rate"):
            self._put(name, _positive(name, getattr(self, name)))
        for name in ("epochs", "batch_size", "accumulate"):
            self._put(name, _whole(name, getattr(self, name)))
        self._put("patience", None if self.patience is None else _whole("patience", self.patience))
        self._put("seed", _whole("seed", self.seed, smallest=0))
        if self.seed >= 2**63:
            raise InputError(f"Recipe: seed must be below 2**63, got {self.seed}")
        if self.label_l1 is not None and self.regime == "joint":
            raise InputError("Recipe: label_l1 is for sequential and independent training; joint heads are smooth")
        self._put("certified", checked_certified(self.certified))
        if self.certified is not None:
            self._check_certified()
        if not self.hidden:
            raise InputError("Recipe: hidden needs at least one layer width")
        self._put("hidden", tuple(_whole("hidden", width) for width in self.hidden))
        if self.weights is not None:
            if self.backbone != "resnet18" and not self.is_named:
                raise InputError("Recipe: weights= is for 'resnet18' and networks by name ('timm:NAME', ...) only")
            self._put("weights", os.fspath(self.weights))
        self._check_frozen()
        if self.augment is not None and (self.is_linear or isinstance(self.frozen, str)):
            raise InputError(
                "Recipe: augment= is for networks trained from pictures, not for frozen ones or kept maps"
            )

    def _check_certified(self) -> None:
        assert self.certified is not None
        if self.regime == "joint":
            raise InputError("Recipe: certified= needs convex heads; the joint objective is not convex")
        if self.label_l1 is not None:
            raise InputError("Recipe: certified= adds noise to every weight, which a sparse label head cannot have")
        if self.certified["tolerance"] < self.head_tolerance:
            raise InputError(
                f"Recipe: tolerance of certified is below head_tolerance={self.head_tolerance:g}; heads are not "
                "solved that far"
            )

    def _check_frozen(self) -> None:
        if isinstance(self.frozen, str):
            kind, _, layer = self.frozen.partition(":")
            if kind != "until" or not layer:
                raise InputError(f"Recipe: frozen must be True, False or 'until:LAYER', got {self.frozen!r}")
        elif self.frozen is not None:
            self._put("frozen", bool(self.frozen))
        can = self.is_named or self.backbone == "resnet18" or isinstance(self.backbone, nn.Module)
        for name in ("frozen", "layer", "preprocessing", "feature_precision"):
            if getattr(self, name) not in (None, False) and not can:
                raise InputError(f"Recipe: {name}= is for networks of pictures by name, not for {self.backbone!r}")
        if self.backbone_text.startswith("onnx:") and self.frozen not in (None, True):
            raise InputError("Recipe: a network from an ONNX file cannot be trained; leave out frozen=")
        if isinstance(self.layer, list | tuple):
            self._put("layer", "+".join(map(str, self.layer)))
        if self.layer is not None and not self.is_frozen and not isinstance(self.frozen, str):
            raise InputError(
                "Recipe: layer= is for a frozen network; to train behind a layer: frozen='until:LAYER'"
            )
        if self.feature_precision is not None and self.feature_precision not in PRECISIONS:
            raise unknown_name("feature_precision", self.feature_precision, PRECISIONS, "Recipe")
        if self.preprocessing is not None:
            if not isinstance(self.preprocessing, Mapping):
                raise InputError(f"Recipe: preprocessing must be a mapping, got {self.preprocessing!r}")
            self._put("preprocessing", checked_preprocessing(self.preprocessing))
        if self.arguments is not None:
            try:
                self._put("arguments", json.loads(json.dumps(dict(self.arguments))))
            except (TypeError, ValueError):
                raise InputError(f"Recipe: arguments must be JSON values, got {self.arguments!r}") from None
            if not self.is_own:
                raise InputError("Recipe: arguments= is for backbone='package.module:factory' only")

    def _put(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    @property
    def backbone_text(self) -> str:
        """The backbone's name; a module has none."""
        return self.backbone if isinstance(self.backbone, str) else ""

    @property
    def is_own(self) -> bool:
        """Whether the backbone is the user's own code, by import path."""
        return is_own(self.backbone_text)

    @property
    def is_named(self) -> bool:
        """Whether the backbone is a network of pictures by name."""
        library, _, what = self.backbone_text.partition(":")
        known = library in ("timm", "torchvision", "onnx") and bool(what)
        return known or self.backbone_text == "pretrained" or self.is_own

    @property
    def is_frozen(self) -> bool:
        """Whether a network in front of the heads is left as it is, all of it."""
        if self.frozen is not None:
            return self.frozen is True
        if self.backbone_text == "pretrained" or self.backbone_text.startswith("onnx:"):
            return True
        return self.is_named and self.weights is not None

    @property
    def is_linear(self) -> bool:
        """Whether features do not depend on training: given ones, or those of a frozen network. The exact case."""
        return self.backbone == "linear" or self.is_frozen

    @property
    def concept_regularisation(self) -> float:
        """α, with the default filled in."""
        return self.concept_l2 if self.concept_l2 is not None else (0.1 if self.backbone == "linear" else 1e-2)

    @property
    def label_regularisation(self) -> float:
        """β, with the default filled in."""
        return self.label_l2 if self.label_l2 is not None else (1e-2 if self.bottleneck == "logits" else 1e-3)

    @property
    def peak_learning_rate(self) -> float:
        """The learning rate, with the default filled in."""
        return self.learning_rate or (1e-2 if self.backbone == "convnet" else 1e-3)

    @property
    def step_size(self) -> int:
        """How many samples make one gradient step."""
        return self.batch_size * self.accumulate

    def replace(self, **changes: Any) -> Recipe:
        """The same recipe with some fields changed."""
        _check_fields(changes)
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values. A backbone given as a module is recorded as ``"custom"``."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        if isinstance(self.backbone, nn.Module):
            fields["backbone"] = "custom"
        if isinstance(self.pos_weight, Mapping):
            fields["pos_weight"] = dict(self.pos_weight)
        fields["hidden"] = list(self.hidden)
        if self.preprocessing is not None:
            lists = {name: list(v) if isinstance(v, tuple) else v for name, v in self.preprocessing.items()}
            fields["preprocessing"] = lists
        fields["certified"] = None if self.certified is None else dict(self.certified)
        return {name: value for name, value in fields.items() if name not in _LATER or value != _LATER[name]}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any], backbone: nn.Module | None = None) -> Recipe:
        """Inverse of :meth:`to_dict`; ``backbone`` supplies the module of a custom one."""
        _check_fields(fields)
        values = dict(fields)
        if values.get("backbone") == "custom":
            if backbone is None:
                raise InputError("this recipe has a custom backbone; pass the module as backbone=")
            values["backbone"] = backbone
        if "hidden" in values:
            values["hidden"] = tuple(values["hidden"])
        return cls(**values)


def _check_fields(given: Mapping[str, Any]) -> None:
    known = [field.name for field in dataclasses.fields(Recipe)]
    for name in given:
        if name not in known:
            raise unknown_name("recipe field", name, known)
