"""The recipe: everything that decides how a model is trained, as one value that can be saved and compared."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from torch import nn

from ecbm.errors import InputError, unknown_name

__all__ = ["BACKBONES", "BOTTLENECKS", "REGIMES", "Recipe"]

BACKBONES = ("auto", "linear", "mlp", "convnet", "resnet18")
REGIMES = ("sequential", "independent", "joint")
BOTTLENECKS = ("logits", "probabilities")


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How to train a concept bottleneck model.

    Parameters
    ----------
    backbone
        ``"linear"`` (frozen features, standardised with training statistics), ``"mlp"``, ``"convnet"`` (small,
        for 32–64 px), ``"resnet18"`` (torchvision's parameter names), any ``nn.Module`` that
        maps a batch to feature rows, or ``"auto"`` (linear for feature rows, convnet for pictures).
    regime
        ``"sequential"``: concepts first, then classes on the predicted bottleneck. ``"independent"``: classes on
        the true concepts. ``"joint"``: both at once, J_Y + ``joint_weight`` · J_C.
    bottleneck
        What the label head reads: concept ``"logits"`` or ``"probabilities"``.
    concept_l2, label_l2
        α and β of the objectives, on every parameter of the stage. ``None`` takes 1e-2 for the linear backbone
        and 1e-3 for a deep one, and 1e-2 for logits and 1e-3 for probabilities.
    joint_weight
        c of the joint objective.
    pos_weight
        Weight of positive concept labels: ``None``, ``"balanced"`` (negatives / positives in the training
        split, at most 20), one number, or a mapping from concept names to numbers.
    epochs, batch_size, learning_rate
        Of the deep stage: Adam with a one-cycle schedule that peaks at ``learning_rate`` (``None`` takes 1e-2
        for the convnet and 1e-3 for other backbones).
    patience
        Stop after this many epochs without a better validation objective and keep the best; ``None`` never.
    hidden
        Layer widths of ``"mlp"``.
    small_stem
        ``resnet18`` only: a 3×3 stride-1 stem without pooling, for pictures up to 64 px.
    weights
        File of initial weights for ``resnet18`` (safetensors, or a torchvision state dict).
    resolve_concept_head
        Re-solve the concept head exactly on the final features as the last step of deep training.
    head_tolerance
        Gradient norm to which the convex heads are solved, in float64.
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
    hidden: tuple[int, ...] = (256,)
    small_stem: bool = True
    weights: str | None = None
    resolve_concept_head: bool = True
    head_tolerance: float = 1e-10
    seed: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.backbone, str) and self.backbone not in BACKBONES:
            raise unknown_name("backbone", self.backbone, BACKBONES, "Recipe")
        if self.regime not in REGIMES:
            raise unknown_name("regime", self.regime, REGIMES, "Recipe")
        if self.bottleneck not in BOTTLENECKS:
            raise unknown_name("bottleneck", self.bottleneck, BOTTLENECKS, "Recipe")
        if isinstance(self.pos_weight, str) and self.pos_weight != "balanced":
            raise unknown_name("pos_weight", self.pos_weight, ["balanced"], "Recipe")
        if isinstance(self.pos_weight, int | float) and not self.pos_weight > 0:
            raise InputError(f"Recipe: pos_weight must be positive, got {self.pos_weight!r}")
        for name in ("concept_l2", "label_l2", "joint_weight", "learning_rate", "head_tolerance"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InputError(f"Recipe: {name} must be positive, got {value!r}")
        for name in ("epochs", "batch_size", "patience"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < 1):
                raise InputError(f"Recipe: {name} must be a whole number of at least 1, got {value!r}")
        object.__setattr__(self, "hidden", tuple(self.hidden))
        if not self.hidden or min(self.hidden) < 1:
            raise InputError(f"Recipe: hidden needs positive layer widths, got {self.hidden!r}")

    @property
    def is_linear(self) -> bool:
        return self.backbone == "linear"

    @property
    def concept_regularisation(self) -> float:
        """α, with the default filled in."""
        return self.concept_l2 if self.concept_l2 is not None else (1e-2 if self.is_linear else 1e-3)

    @property
    def label_regularisation(self) -> float:
        """β, with the default filled in."""
        return self.label_l2 if self.label_l2 is not None else (1e-2 if self.bottleneck == "logits" else 1e-3)

    @property
    def peak_learning_rate(self) -> float:
        """The learning rate, with the default filled in."""
        return self.learning_rate or (1e-2 if self.backbone == "convnet" else 1e-3)

    def replace(self, **changes: Any) -> Recipe:
        """The same recipe with some fields changed."""
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values. A backbone given as a module is recorded as ``"custom"``."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        if isinstance(self.backbone, nn.Module):
            fields["backbone"] = "custom"
        if isinstance(self.pos_weight, Mapping):
            fields["pos_weight"] = dict(self.pos_weight)
        fields["hidden"] = list(self.hidden)
        return fields

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any], backbone: nn.Module | None = None) -> Recipe:
        """Inverse of :meth:`to_dict`; ``backbone`` supplies the module of a custom one."""
        known = {field.name for field in dataclasses.fields(cls)}
        for name in fields:
            if name not in known:
                raise unknown_name("recipe field", name, known)
        values = dict(fields)
        if values.get("backbone") == "custom":
            if backbone is None:
                raise InputError("this recipe has a custom backbone; pass the module as backbone=")
            values["backbone"] = backbone
        if "hidden" in values:
            values["hidden"] = tuple(values["hidden"])
        return cls(**values)
