"""The two objectives over linear heads: value, gradient and curvature, written here and nowhere else.

    J_C(W) = (1/n) Σ_ij w_ij BCE(z_ij, t_ij) + (α/2)|W|²        z = X Wᵀ, X with a column of ones
    J_Y(Φ) = (1/n) Σ_i  v_i CE(b_i Φᵀ, y_i)  + (β/2)|Φ|²        labels that are numbers: ½(b_i φ − y_i)² for CE

(docs/method.md, "The objectives"). Where concepts are not all binary, their types decide what stands in place
of the sigmoid and of BCE (:mod:`ecbm.train.heads.activations`). Given the features X and the bottleneck values
b both are strictly convex. Solvers, influence steps, bounds and the certificate take their pieces from this
file.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional

from ecbm.read.concept_types import ConceptLayout
from ecbm.train.heads.activations import activate, activation_curvature, pick, tie

__all__ = [
    "ConceptObjective",
    "LabelObjective",
    "add_up",
    "concept_curvature",
    "concept_losses",
    "concept_objective",
    "concept_residual",
    "label_objective",
    "label_residual",
    "least_subgradient",
    "longest_sum",
    "rows_of",
    "weighted_product",
    "with_ones",
]

_CACHED_ROWS = 512
"""Rows of a design that are multiplied by at once: both products of a Hessian then find them in the cache."""
_SUMMED_ROWS = 256
"""Rows that a gradient's sums are made of at once. Each number then goes through this many additions and one for
every piece, and not through one a sample: rounding is proven to be that much smaller, at no cost in time."""


def with_ones(features: Tensor) -> Tensor:
    """Features in float64 with a last column of ones, which folds the bias into the weights."""
    rows, width = features.shape
    design = torch.empty(rows, width + 1, dtype=torch.float64)
    design[:, :-1] = features
    design[:, -1] = 1.0
    return design


def rows_of(layer: nn.Linear) -> Tensor:
    """A head's parameters as rows with the bias in the last column, float64."""
    return torch.cat([layer.weight, layer.bias[:, None]], dim=1).detach().double()


# -- terms of J_C, one by one: samples and concepts may lie along either axis --------------------------------


def concept_losses(
    logits: Tensor, targets: Tensor, weights: Tensor, layout: ConceptLayout | None = None, dim: int = 1
) -> Tensor:
    """w BCE(z, t) of every term; a categorical concept's cross-entropy lies on the columns its targets name."""
    if layout is None or layout.plain:
        return weights * (functional.softplus(logits) - targets * logits)
    z, t = (pick(values, layout.bernoulli, dim) for values in (logits, targets))
    parts = [functional.softplus(z) - t * z]
    for columns in layout.softmax:
        z, t = (pick(values, columns, dim) for values in (logits, targets))
        parts.append(t * (z.logsumexp(dim, keepdim=True) - z))
    z, t = (pick(values, layout.squared, dim) for values in (logits, targets))
    return weights * pick(torch.cat([*parts, 0.5 * (z - t).square()], dim), layout.places, dim)


def concept_residual(
    logits: Tensor,
    targets: Tensor,
    weights: Tensor | None = None,
    layout: ConceptLayout | None = None,
    dim: int = 1,
) -> Tensor:
    """w (a(z) − t): the derivative of every term by its logit; a is the sigmoid of a binary concept."""
    residual = activate(logits, layout, dim).sub_(targets)
    return residual if weights is None else residual.mul_(weights)


def concept_curvature(
    logits: Tensor, weights: Tensor | None = None, layout: ConceptLayout | None = None, dim: int = 1
) -> Tensor:
    """w a(1 − a): the second derivative of every term by its own logit."""
    curvature = activation_curvature(activate(logits, layout, dim), layout, dim)
    return curvature if weights is None else curvature.mul_(weights)


def weighted_product(design: Tensor, weights: Tensor, vectors: Tensor) -> Tensor:
    """((V Xᵀ) ∘ C) X for V (k, d), C (k, n) and X (n, d): what a Hessian product of k logistic regressions is."""
    out = torch.zeros_like(vectors)
    for rows, part in zip(design.split(_CACHED_ROWS), weights.split(_CACHED_ROWS, 1), strict=True):
        out.addmm_(torch.mm(vectors, rows.T).mul_(part), rows)
    return out


def add_up(residuals: Tensor, design: Tensor) -> Tensor:
    """Σ_i r_i x_iᵀ (k, d) of residuals (k, n) and rows (n, d), in pieces."""
    out = design.new_zeros(len(residuals), design.shape[1])
    for part, rows in zip(residuals.split(_SUMMED_ROWS, 1), design.split(_SUMMED_ROWS), strict=True):
        out.addmm_(part, rows)
    return out


def longest_sum(count: int) -> int:
    """How many additions a number that :func:`add_up` gives for so many samples goes through at most."""
    return min(count, _SUMMED_ROWS) + -(-count // _SUMMED_ROWS)


class ConceptObjective:
    """J_C of k heads over one design; logits are (n, k). Heads of binary and continuous concepts are independent.

    Parameters
    ----------
    design
        (n, d) float64 features with a column of ones.
    targets, weights
        (n, k); a weight of 0 drops the term, whatever the target holds.
    l2
        α, on weights and bias alike.
    layout
        Types of the concepts; ``None``: all binary.
    """

    def __init__(
        self,
        design: Tensor,
        targets: Tensor,
        weights: Tensor,
        l2: float,
        layout: ConceptLayout | None = None,
    ) -> None:
        self.design, self.l2, self.layout = design, l2, layout
        self.shares = weights.double() / len(design)
        self.targets = torch.where(weights == 0, 0.0, targets.double())

    def _of(self, rows: Tensor | None) -> tuple[Tensor, Tensor]:
        if rows is None or len(rows) == self.shares.shape[1]:
            return self.targets, self.shares
        return self.targets[:, rows], self.shares[:, rows]

    def _layout(self, rows: Tensor | None) -> ConceptLayout | None:
        if self.layout is None or rows is None or len(rows) == self.shares.shape[1]:
            return self.layout
        return self.layout.select(rows)

    def values(self, parameters: Tensor, logits: Tensor) -> Tensor:
        """J_C of every concept (k,)."""
        losses = concept_losses(logits, self.targets, self.shares, self.layout)
        return losses.sum(0) + 0.5 * self.l2 * parameters.square().sum(1)

    def gradient(self, logits: Tensor, parameters: Tensor, rows: Tensor | None = None) -> Tensor:
        """∇J_C (k, d), of the concepts ``rows`` that logits and parameters are those of."""
        residual = concept_residual(logits, *self._of(rows), self._layout(rows))
        gradient = add_up(residual.T, self.design).add_(parameters, alpha=self.l2)
        return tie(gradient, self._layout(rows))

    def curvature(self, logits: Tensor, rows: Tensor | None = None) -> Tensor:
        """(n, k): the Hessian of concept j is Xᵀ diag(c_j) X + α."""
        return concept_curvature(logits, self._of(rows)[1], self._layout(rows))

    def levelled(self, move: Tensor, gradient: Tensor, rows: Tensor) -> Tensor:
        """A Newton step as it is: independent rows share nothing."""
        return move

    def slopes(self, logits: Tensor, change: Tensor, rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """First and second derivative of every concept's loss along a change of its logits."""
        first = (change * concept_residual(logits, *self._of(rows), self._layout(rows))).sum(0)
        return first, (change.square() * self.curvature(logits, rows)).sum(0)


# -- J_Y -----------------------------------------------------------------------------------------------------


def label_residual(logits: Tensor, labels: Tensor) -> Tensor:
    """softmax(l) − e_y: the derivative of every sample's cross-entropy by its class logits; l − y of numbers."""
    if labels.is_floating_point():
        return logits - labels.to(logits.dtype)[:, None]
    residual = torch.softmax(logits, 1)
    residual[torch.arange(len(labels)), labels] -= 1
    return residual


def least_subgradient(gradient: Tensor, parameters: Tensor, l1: float) -> Tensor:
    """The subgradient of least norm of a smooth objective with λ|W|₁, from its gradient; the last column is free.

    Its norm is the distance of 0 to the subdifferential.
    """
    at_zero = gradient.sign() * (gradient.abs() - l1).clamp_min(0.0)
    least = torch.where(parameters != 0, gradient + l1 * parameters.sign(), at_zero)
    least[:, -1] = gradient[:, -1]
    return least


class LabelObjective:
    """J_Y of one multinomial head; logits are (n, classes). Of numbers one least-squares head: they are (n, 1).

    Parameters
    ----------
    design
        (n, d) float64 bottleneck values with a column of ones.
    labels, weights
        (n,) classes, or standardised numbers (floating point), and weights (``None``: ones).
    l2
        β.
    l1
        λ of an L1 term over the weights, biases left out. Gradients are then the subgradient of least norm.
    """

    def __init__(self, design: Tensor, labels: Tensor, weights: Tensor | None, l2: float, l1: float = 0.0) -> None:
        self.design, self.labels, self.l2, self.l1 = design, labels, l2, l1
        self.squared = labels.is_floating_point()
        ones = torch.ones(len(design), dtype=torch.float64) if weights is None else weights.double()
        self.shares = ones[:, None] / len(design)
        self._equal = float(self.shares[0, 0]) if bool((ones == ones[0]).all()) else None

    def value(self, parameters: Tensor, logits: Tensor) -> Tensor:
        """J_Y, a number."""
        if self.squared:
            losses = 0.5 * (logits[:, 0] - self.labels).square()
        else:
            losses = functional.cross_entropy(logits, self.labels, reduction="none")
        value = (self.shares[:, 0] * losses).sum() + 0.5 * self.l2 * parameters.square().sum()
        return value + self.l1 * parameters[:, :-1].abs().sum() if self.l1 else value

    def gradient(self, logits: Tensor, parameters: Tensor) -> Tensor:
        """∇J_Y (classes, d)."""
        return self.gradient_from(label_residual(logits, self.labels), parameters)

    def gradient_from(self, residual: Tensor, parameters: Tensor) -> Tensor:
        """∇J_Y from :func:`label_residual` of the logits."""
        smooth = self._smooth_gradient(residual, parameters)
        return least_subgradient(smooth, parameters, self.l1) if self.l1 else smooth

    def _smooth_gradient(self, residual: Tensor, parameters: Tensor) -> Tensor:
        if self._equal is None:
            return add_up((residual * self.shares).T, self.design) + self.l2 * parameters
        return add_up(residual.T, self.design).mul_(self._equal).add_(parameters, alpha=self.l2)

    def curvature(self, probabilities: Tensor) -> Tensor:
        """(n, classes): the Hessian's diagonal block of class c is Bᵀ diag(c_c) B + β."""
        if self.squared:
            return self.shares.to(probabilities.dtype)
        return self.shares.to(probabilities.dtype) * probabilities * (1 - probabilities)

    def levelled(self, move: Tensor, gradient: Tensor, rows: Tensor) -> Tensor:
        """A Newton step as it is: all rows belong together."""
        return move

    def slopes(self, logits: Tensor, change: Tensor) -> tuple[Tensor, Tensor]:
        """First and second derivative of the loss along a change of logits, as sums over classes."""
        if self.squared:
            first = (self.shares * change * label_residual(logits, self.labels)).sum(0)
            return first, (self.shares * change.square()).sum(0)
        expected = torch.softmax(logits, 1).mul_(change)
        mean = expected.sum(1, keepdim=True)
        second = (self.shares * (change - mean) * expected).sum(0)
        return (self.shares * change * label_residual(logits, self.labels)).sum(0), second

    def product(self, design: Tensor, probabilities: Tensor, vector: Tensor) -> Tensor:
        """The Hessian times (classes, d), in the precision of its arguments."""
        out = torch.zeros_like(vector)
        for rows, chances, shares in self._pieces(design, probabilities):
            image = rows @ vector.T
            if not self.squared:
                image.mul_(chances)
                image.addcmul_(chances, image.sum(1, keepdim=True), value=-1.0)
            out.addmm_(image.T if self._equal is not None else image.mul_(shares).T, rows)
        return out.mul_(self._equal or 1.0).add_(vector, alpha=self.l2)

    def _pieces(self, design: Tensor, probabilities: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        wholes = design, probabilities, self.shares.to(design.dtype)
        return zip(*(whole.split(_CACHED_ROWS) for whole in wholes), strict=True)


# -- both at given parameters --------------------------------------------------------------------------------


def concept_objective(
    design: Tensor,
    targets: Tensor,
    weights: Tensor,
    parameters: Tensor,
    l2: float,
    layout: ConceptLayout | None = None,
) -> tuple[Tensor, Tensor]:
    """J_C of every concept (k,) and its gradient (k, d)."""
    objective, logits = ConceptObjective(design, targets, weights, l2, layout), design @ parameters.T
    return objective.values(parameters, logits), objective.gradient(logits, parameters)


def label_objective(
    design: Tensor, labels: Tensor, weights: Tensor | None, parameters: Tensor, l2: float
) -> tuple[Tensor, Tensor]:
    """J_Y () and its gradient (classes, d)."""
    objective, logits = LabelObjective(design, labels, weights, l2), design @ parameters.T
    return objective.value(parameters, logits), objective.gradient(logits, parameters)
