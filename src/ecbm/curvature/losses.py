"""What a model is fitted to: the two losses of a concept bottleneck, as values curvature can be taken of.

Sample i has logits z_i. Its loss is

    concepts   ℓ_i = Σ_j w_ij BCE(z_ij, t_ij)        labels   ℓ_i = v_i CE(z_i, y_i)

and the objective is (1/n) Σ_i ℓ_i + (l2/2)|θ|² (docs/method.md, "The objectives"). Each loss also gives the output
gradients whose second moment is the matrix asked for:

- ``true``: targets drawn from the model, √w (p − t̂). Its mean over draws is the Gauss-Newton matrix, weights
  included, because E[(p − t̂)²] = p(1 − p) and the weight enters the curvature once, not squared.
- ``empirical``: the data's targets, w (p − t).
- ``exact``: one column of a square root of the loss's Hessian an output. No sampling; k backward passes.

References: Martens, "New insights and perspectives on the natural gradient method", JMLR 2020;
Kunstner, Balles and Hennig, "Limitations of the empirical Fisher approximation", NeurIPS 2019.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
import torch.nn.functional as functional
from torch import Tensor

from ecbm.errors import InputError
from ecbm.read.concept_types import ConceptLayout
from ecbm.train.heads.activations import activate, activation_curvature
from ecbm.train.heads.objectives import concept_losses

__all__ = ["FISHER_TYPES", "ConceptLoss", "Fisher", "LabelLoss", "Loss"]

Fisher = Literal["true", "empirical", "exact"]
FISHER_TYPES: tuple[Fisher, ...] = ("true", "empirical", "exact")


class Loss(Protocol):
    """A loss of n samples; ``rows`` picks the samples that ``logits`` belong to."""

    def __len__(self) -> int: ...

    @property
    def draws(self) -> int:
        """Uniform numbers a sample needs to draw its targets."""
        ...

    def check_outputs(self, outputs: int) -> None:
        """Raise :class:`InputError` unless a model with ``outputs`` logits fits."""
        ...

    def values(self, logits: Tensor, rows: slice | Tensor) -> Tensor:
        """ℓ_i of each sample, differentiable in the logits."""
        ...

    def output_gradients(
        self, logits: Tensor, rows: slice | Tensor, fisher: Fisher, uniforms: Tensor | None
    ) -> list[Tensor]:
        """Gradients at the logits whose outer products, summed over the list, make the Fisher matrix."""
        ...

    def subset(self, rows: Tensor) -> Loss: ...

    def digest(self) -> str:
        """A hash of everything in the loss."""
        ...


def _check_weights(weights: Tensor, shape: tuple[int, ...], what: str) -> Tensor:
    weights = torch.as_tensor(weights)
    if tuple(weights.shape) != shape:
        raise InputError(
            f"{what}: weights have shape {tuple(weights.shape)}; expected {shape}, one weight a target"
        )
    if weights.is_complex():
        raise InputError(f"{what}: weights are complex; give real numbers")
    weights = weights.to(torch.float64)
    if not bool(torch.isfinite(weights).all()) or bool((weights < 0).any()):
        raise InputError(f"{what}: weights must be finite and at least 0; use 0 for a missing or removed target")
    return weights


def _digest(*tensors: Tensor) -> str:
    state = hashlib.sha256()
    for tensor in tensors:
        state.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
        state.update(tensor.contiguous().cpu().numpy().tobytes())
    return state.hexdigest()


@dataclass(frozen=True, eq=False)
class ConceptLoss:
    """Weighted binary cross-entropy with logits, summed over concepts.

    Parameters
    ----------
    targets
        n × k values in [0, 1]; NaN where the label is missing.
    weights
        n × k numbers ≥ 0; a missing label has weight 0. ``None``: 1 where the target is known.
    layout
        Types of the concepts (docs/method.md, "Concepts of other types"); ``None``: all binary. Thresholds of
        an ordinal concept are binary terms here; a categorical concept's columns are one softmax, whose targets
        are drawn together; a continuous one has ½(z − t)², whose targets are drawn from a normal distribution
        of variance 1.

    Examples
    --------
    >>> loss = ConceptLoss(torch.tensor([[1.0, float("nan")], [0.0, 1.0]]))
    >>> loss.weights
    tensor([[1., 0.],
            [1., 1.]], dtype=torch.float64)
    """

    targets: Tensor
    weights: Tensor
    layout: ConceptLayout | None
    _plain: bool

    def __init__(self, targets: Tensor, weights: Tensor | None = None, layout: ConceptLayout | None = None) -> None:
        targets = torch.as_tensor(targets)
        if targets.is_complex():
            raise InputError("concept targets are complex; give values in [0, 1]")
        if targets.dim() != 2:
            raise InputError(f"concept targets have shape {tuple(targets.shape)}; expected samples × concepts")
        targets = targets.to(torch.float64)
        missing = torch.isnan(targets)
        if weights is None:
            weights = (~missing).to(torch.float64)
        weights = _check_weights(weights, tuple(targets.shape), "concept loss")
        wrong = missing & (weights > 0)
        if bool(wrong.any()):
            row, column = wrong.nonzero()[0].tolist()
            raise InputError(
                f"concept target of row {row}, column {column} is missing but has weight "
                f"{weights[row, column].item():g}; set that weight to 0"
            )
        filled = targets.masked_fill(missing, 0.0)
        wrong = (filled < 0) | (filled > 1)
        layout = None if layout is None or layout.plain else layout
        if layout is not None:
            wrong[:, layout.squared] = False
        if bool(wrong.any()):
            row, column = wrong.nonzero()[0].tolist()
            raise InputError(
                f"concept target of row {row}, column {column} is {filled[row, column].item():g}; "
                "expected a value in [0, 1], or NaN where it is missing"
            )
        object.__setattr__(self, "targets", filled)
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "layout", layout)
        object.__setattr__(self, "_plain", bool((weights == 1).all()))

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def draws(self) -> int:
        return self.targets.shape[1]

    def check_outputs(self, outputs: int) -> None:
        if outputs != self.targets.shape[1]:
            raise InputError(
                f"the model gives {outputs} logits but the loss has {self.targets.shape[1]} concepts; "
                "give one target column a logit"
            )

    def _rows(self, logits: Tensor, rows: slice | Tensor) -> tuple[Tensor, Tensor]:
        return self.targets[rows].to(logits), self.weights[rows].to(logits)

    def values(self, logits: Tensor, rows: slice | Tensor) -> Tensor:
        targets, weights = self._rows(logits, rows)
        if self.layout is not None:
            return concept_losses(logits, targets, weights, self.layout).sum(1)
        terms = functional.binary_cross_entropy_with_logits(logits, targets, reduction="none")
        return (weights * terms).sum(1)

    def output_gradients(
        self, logits: Tensor, rows: slice | Tensor, fisher: Fisher, uniforms: Tensor | None
    ) -> list[Tensor]:
        if self.layout is not None:
            return self._typed_gradients(logits, rows, fisher, uniforms, self.layout)
        probabilities = torch.sigmoid(logits)
        if fisher == "true" and self._plain:
            assert uniforms is not None
            return [probabilities - (uniforms < probabilities).to(logits.dtype)]
        weights = self.weights[rows].to(logits)
        if fisher == "empirical":
            return [weights * (probabilities - self.targets[rows].to(logits))]
        if fisher == "exact":
            # σ(z)σ(−z) keeps its precision where 1 − σ(z) would round to 0
            roots = (weights * probabilities * torch.sigmoid(-logits)).sqrt()
            columns = []
            for concept in range(logits.shape[1]):
                column = torch.zeros_like(logits)
                column[:, concept] = roots[:, concept]
                columns.append(column)
            return columns
        assert uniforms is not None
        drawn = (uniforms < probabilities).to(logits.dtype)
        return [weights.sqrt() * (probabilities - drawn)]

    def _typed_gradients(
        self, logits: Tensor, rows: slice | Tensor, fisher: Fisher, uniforms: Tensor | None, layout: ConceptLayout
    ) -> list[Tensor]:
        targets, weights = self._rows(logits, rows)
        values = activate(logits, layout)
        if fisher == "empirical":
            return [weights * (values - targets)]
        if fisher == "exact":
            roots = (weights * activation_curvature(values, layout)).sqrt()
            grouped = {column for columns in layout.softmax for column in columns.tolist()}
            columns = []
            for concept in range(logits.shape[1]):
                column = torch.zeros_like(logits)
                if concept in grouped:
                    # Σ_c q_c (q − e_c)(q − e_c)ᵀ = diag(q) − qqᵀ
                    group = next(one for one in layout.softmax if concept in one)
                    column[:, group] = values[:, group]
                    column[:, concept] -= 1
                    column *= (weights[:, concept] * values[:, concept]).sqrt()[:, None]
                else:
                    column[:, concept] = roots[:, concept]
                columns.append(column)
            return columns
        assert uniforms is not None
        drawn = (uniforms < values).to(logits.dtype)
        for group in layout.softmax:
            below = values[:, group].double().cumsum(1)[:, :-1]
            chosen = (uniforms[:, group[:1]] >= below).sum(1)
            drawn[:, group] = functional.one_hot(chosen, len(group)).to(logits.dtype)
        squared = layout.squared
        if len(squared):
            normal = torch.special.ndtri(uniforms[:, squared].double().clamp(1e-12, 1 - 1e-12)).to(logits.dtype)
            drawn[:, squared] = values[:, squared] + normal
        return [weights.sqrt() * (values - drawn)]

    def subset(self, rows: Tensor) -> ConceptLoss:
        return ConceptLoss(self.targets[rows], self.weights[rows], self.layout)

    def digest(self) -> str:
        types = "" if self.layout is None else hashlib.sha256(repr(self.layout).encode()).hexdigest()
        return "concepts-" + _digest(self.targets, self.weights) + types


@dataclass(frozen=True, eq=False)
class LabelLoss:
    """Weighted cross-entropy of class labels.

    Parameters
    ----------
    labels
        n class numbers.
    weights
        n numbers ≥ 0; 0 where the label is missing (the label itself is then not looked at). ``None``: 1,
        and 0 where the label is negative.
    """

    labels: Tensor
    weights: Tensor

    def __init__(self, labels: Tensor, weights: Tensor | None = None) -> None:
        labels = torch.as_tensor(labels)
        if labels.dim() != 1 or labels.is_floating_point() or labels.is_complex():
            raise InputError(
                f"class labels have shape {tuple(labels.shape)} and dtype {labels.dtype}; "
                "expected one whole number a sample"
            )
        labels = labels.to(torch.int64)
        if weights is None:
            weights = (labels >= 0).to(torch.float64)
        weights = _check_weights(weights, tuple(labels.shape), "label loss")
        wrong = (labels < 0) & (weights > 0)
        if bool(wrong.any()):
            row = int(wrong.nonzero()[0])
            raise InputError(f"class label of row {row} is {int(labels[row])}; use weight 0 for a missing label")
        object.__setattr__(self, "labels", labels.masked_fill(weights == 0, 0))
        object.__setattr__(self, "weights", weights)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def draws(self) -> int:
        return 1

    def check_outputs(self, outputs: int) -> None:
        top = int(self.labels.max()) if len(self.labels) else 0
        if top >= outputs:
            raise InputError(
                f"class label {top} (row {int(self.labels.argmax())}) does not exist: "
                f"the model gives {outputs} logits; labels run from 0 to {outputs - 1}"
            )

    def _rows(self, logits: Tensor, rows: slice | Tensor) -> tuple[Tensor, Tensor]:
        return self.labels[rows].to(logits.device), self.weights[rows].to(logits)

    def values(self, logits: Tensor, rows: slice | Tensor) -> Tensor:
        labels, weights = self._rows(logits, rows)
        return weights * functional.cross_entropy(logits, labels, reduction="none")

    def output_gradients(
        self, logits: Tensor, rows: slice | Tensor, fisher: Fisher, uniforms: Tensor | None
    ) -> list[Tensor]:
        labels, weights = self._rows(logits, rows)
        weights = weights[:, None]
        probabilities = torch.softmax(logits, 1)
        classes = logits.shape[1]
        if fisher == "empirical":
            return [weights * (probabilities - functional.one_hot(labels, classes).to(logits.dtype))]
        if fisher == "exact":
            # Σ_c p_c (p − e_c)(p − e_c)ᵀ = diag(p) − ppᵀ
            roots = (weights * probabilities).sqrt()
            columns = []
            for chosen in range(classes):
                column = probabilities.clone()
                column[:, chosen] -= 1
                columns.append(column * roots[:, chosen : chosen + 1])
            return columns
        assert uniforms is not None
        below = probabilities.double().cumsum(1)[:, :-1]
        drawn = (uniforms >= below).sum(1)
        return [weights.sqrt() * (probabilities - functional.one_hot(drawn, classes).to(logits.dtype))]

    def subset(self, rows: Tensor) -> LabelLoss:
        return LabelLoss(self.labels[rows], self.weights[rows])

    def digest(self) -> str:
        return "labels-" + _digest(self.labels, self.weights)
