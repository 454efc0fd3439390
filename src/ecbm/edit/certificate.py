"""The certificate: a proven bound on the distance of edited heads to the retrained optimum (docs/method.md, "The
certificate").

J' is μ-strongly convex in a head's parameters with μ ≥ its L2, so |θ' − θ*| ≤ |∇J'(θ')| / μ, however θ' was found.

Concept head, concept j:   |Δz_j(x)| ≤ ε_j |x̃|,  ε_j = |∇_j| / α   (x̃: features with a one). A concept with
several columns is one problem with one ε_j for all of them. With an L1 term in J_Y, ∇J'_Y stands for its
subgradient of least norm: the L1 term does not depend on b, and the bound below holds as it is.

Label head. What retraining would fit it on is b*, not b. |∇J'_Y(φ; b*)| is at most |∇J'_Y(φ; b)| and the least of

- :func:`~ecbm.edit.concept_error.label_gradient_change`, the sharpest where heads are solved;
- with |b*_i − b_i| ≤ δ_i, as the softmax is ½-Lipschitz, (1/n) Σ_i δ_i ( ½ |Φ|₂ (|b̃_i| + δ_i) + |p_i − e_{y_i}| );
- with all samples as matrices X̃, B̃, P, Y and |B* − B| ≤ Δ = |X̃|₂ |ε| (Frobenius, |·|₂ spectral)
  (1/n) Δ ( ½ |Φ|₂ (|B̃|₂ + Δ) + |P − Y| ): no one direction of W can be the worst for all samples.

That divided by β is ε_Y. A class margin l_c − l_d of an input whose bottleneck b is itself off by δ then
moves by at most |φ_c − φ_d| δ + √2 ε_Y (|b̃| + δ).

Labels that are numbers. The squared loss has slope 1 in place of ½ and b̃ φ − y in place of p − e_y; the rest
holds as it is. The number predicted for an input moves by at most s (|φ| δ + ε_Y (|b̃| + δ)), s being the scale of
the labels: mean and scale are those of the edited data, the same for us and for retraining.

What rounding can have added to a computed gradient or logit is bounded and counted
(:mod:`ecbm.edit.rounding`). A number that is not finite proves nothing: then the bounds are infinite and every
prediction could differ.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import torch
from torch import Tensor

from ecbm.edit.concept_error import ConceptError, concept_error, label_gradient_change
from ecbm.edit.rounding import UNIT, gamma, label_rounding
from ecbm.read.concept_types import ConceptLayout
from ecbm.train.heads.activations import steepest
from ecbm.train.heads.objectives import rows_of
from ecbm.train.model import ConceptBottleneck
from ecbm.train.terms import ConceptTerms

__all__ = ["Certificate", "Evidence", "NumberCertificate", "certify", "spectral_bound"]

# Processor time with 6,000 rows: 0.1 s at 512 columns, 0.2 s at 769, 0.4 s at 1024, 1.6 s at 2048.
_WIDEST_GRAM = 1024


@dataclasses.dataclass(frozen=True)
class Certificate:
    """Bounds on the distance to the retrained optimum, and what they mean for predictions on validation data."""

    concept_distance: float
    label_distance: float
    largest_concept_logit_change: float
    largest_class_logit_change: float
    concept_predictions_that_could_differ: int
    class_predictions_that_could_differ: int
    validation_samples: int
    covers: str

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def of_number(self, scale: float) -> NumberCertificate:
        """The same where a number with this scale is predicted, and no class."""
        return NumberCertificate(
            self.concept_distance,
            self.label_distance,
            self.largest_concept_logit_change,
            scale * self.largest_class_logit_change,
            self.concept_predictions_that_could_differ,
            self.validation_samples,
            self.covers,
        )


@dataclasses.dataclass(frozen=True)
class NumberCertificate:
    """A :class:`Certificate` where a number is predicted: no prediction on validation data is farther than
    ``largest_prediction_change``, in its unit, from that of the retrained optimum.
    """

    concept_distance: float
    label_distance: float
    largest_concept_logit_change: float
    largest_prediction_change: float
    concept_predictions_that_could_differ: int
    validation_samples: int
    covers: str

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Evidence:
    """What a certificate is computed from: solved heads on the edited training samples.

    Attributes
    ----------
    sizes
        Norms (n,) of the training features, with ones.
    logits, terms, concept_gradient
        (n, k) concept logits, what they were fitted to, and the gradient (k, d) of J'_C at the edited head.
    bottleneck, label_residual, label_gradient_norm
        What the label head was fitted on (with ones), softmax minus class (n, classes), and its gradient norm.
    validation
        Features of validation samples, with ones.
    design_norm
        An upper bound on |X̃|₂, where one is known (:func:`spectral_bound`).
    """

    sizes: Tensor
    logits: Tensor
    terms: ConceptTerms
    concept_gradient: Tensor
    bottleneck: Tensor
    label_residual: Tensor
    label_gradient_norm: float
    validation: Tensor
    design_norm: float = math.inf

    def finite(self) -> bool:
        """Whether all of it are numbers."""
        parts = (self.sizes, self.logits, self.concept_gradient, self.bottleneck, self.label_residual)
        known = math.isfinite(self.label_gradient_norm)
        return known and all(bool(part.detach().isfinite().all()) for part in (*parts, self.validation))


def spectral_bound(design: Tensor) -> float:
    """|design|₂ from the eigenvalues of its Gram matrix; infinite where that would cost more than it tells."""
    rows, width = design.shape
    if width > _WIDEST_GRAM:
        return math.inf
    gram = design.T @ design
    if not bool(gram.isfinite().all()):
        return math.inf
    # Rounding of the sums and of the eigenvalues, relative to the sum of all squares.
    lost = gamma(rows + 8 * width) * float(gram.trace())
    return math.sqrt(float(torch.linalg.eigvalsh(gram)[-1]) + lost) * (1 + 1e-9)


def certify(
    model: ConceptBottleneck, evidence: Evidence, covers: str, concept_head_fixed: bool = False
) -> Certificate:
    """Bound the distance to retraining.

    Parameters
    ----------
    model
        The edited model.
    evidence
        Its heads on the edited data.
    covers
        In words, which parameters the bound is about.
    concept_head_fixed
        True where the concept head is given and not solved (the joint regime): then δ is 0.
    """
    validation = evidence.validation
    heads = [*model.concept_head.parameters(), *model.label_head.parameters()]
    if not evidence.finite() or not all(bool(part.detach().isfinite().all()) for part in heads):
        unknown = len(validation) * len(model.concept_names), len(validation)
        return Certificate(math.inf, math.inf, math.inf, math.inf, *unknown, len(validation), covers)
    concepts = concept_error(
        model, evidence.sizes, evidence.logits, evidence.terms, evidence.concept_gradient, concept_head_fixed
    )
    distance, off_by = float(concepts.distance.norm()), float(concepts.rounding.norm())
    label_error = _label_error(model, evidence, concepts)

    with torch.no_grad():
        concept_logits = model.concept_head(validation[:, :-1])
        values = model.bottleneck_from(concept_logits)
        class_logits = model.label_head(values)
    size = validation.norm(dim=1)
    concept_change = size[:, None] * (concepts.distance + concepts.rounding)[list(model.layout.owner)]
    slope = 1.0 if model.bottleneck == "logits" else steepest(model.layout)
    off = slope * (distance + off_by) * size
    reach = torch.sqrt(values.square().sum(1) + 1) + off
    head = rows_of(model.label_head)
    # A class logit is itself rounded: that is as if the label head were this much off.
    label_off = label_error + gamma(head.shape[1] + 1) * float(head.norm())
    weight = head[:, :-1]
    class_change = weight.norm(dim=1) * off[:, None] + label_off * reach[:, None]
    top = class_logits.argmax(1)
    margin = class_logits.gather(1, top[:, None]) - class_logits
    apart = torch.cdist(weight, weight)[top]
    # Written so that a comparison with something that is not a number counts as "could differ".
    safe = margin > apart * off[:, None] + math.sqrt(2) * label_off * reach[:, None]
    safe[torch.arange(len(top)), top] = True
    return Certificate(
        distance,
        label_error,
        float(concept_change.max()) if len(validation) else 0.0,
        float(class_change.max()) if len(validation) else 0.0,
        _could_differ(model.layout, concept_logits, concept_change),
        int((~safe).any(1).sum()),
        len(validation),
        covers,
    )


def _label_error(model: ConceptBottleneck, evidence: Evidence, concepts: ConceptError) -> float:
    """ε_Y: how far the label head is from what retraining would fit on what its concept head gives."""
    sizes, bottleneck, residual = evidence.sizes, evidence.bottleneck, evidence.label_residual
    distance, off_by = float(concepts.distance.norm()), float(concepts.rounding.norm())
    independent = model.recipe.regime == "independent"
    slope = 1.0 if model.bottleneck == "logits" else steepest(model.layout)
    shift = slope * (distance + off_by) * sizes
    if independent and model.bottleneck == "logits":
        # low and high are order statistics of the logits: they move at most as far as the farthest logit.
        shift = torch.full_like(sizes, float(shift.max()))
    elif independent:
        shift = torch.zeros_like(sizes)
    head = rows_of(model.label_head)
    spectral = float(torch.linalg.matrix_norm(head[:, :-1], 2))
    lengths = bottleneck.norm(dim=1)
    # How fast the derivative of a sample's loss turns with its logits: a softmax, or a difference.
    turning = 1.0 if model.predicts_number else 0.5
    one_by_one = float((shift * (turning * spectral * (lengths + shift) + residual.norm(dim=1))).mean())
    whole = float(shift.norm())
    if not independent:
        whole = min(whole, slope * (distance * evidence.design_norm + off_by * float(sizes.norm())))
    spread = spectral_bound(bottleneck) + whole
    together = whole * (turning * spectral * spread + float(residual.norm())) / len(bottleneck) if whole else 0.0
    carried = min(one_by_one, together)
    if not independent:
        logits, weights, norm = evidence.logits, evidence.terms.weights, evidence.design_norm
        sharp = label_gradient_change(model, concepts, sizes, logits, weights, bottleneck, residual, norm)
        carried = min(carried, sharp)
    rounding = label_rounding(residual, lengths, float(head.norm()), head.shape[1], turning)
    # What the label head reads is computed from logits, and rounded once more.
    rounding += 16 * UNIT * float((lengths * (turning * spectral * lengths + residual.norm(dim=1))).mean())
    return (evidence.label_gradient_norm + rounding + carried) / model.recipe.label_regularisation


def _could_differ(layout: ConceptLayout, logits: Tensor, change: Tensor) -> int:
    """How many predictions of concepts could differ if no logit moves by more than ``change`` of its concept:
    signs, most likely values (two logits of a concept move apart by at most √2 of it), grades. A continuous
    value has none.
    """
    could = ~(logits.abs() > change)
    if layout.plain:
        return int(could.sum())
    could[:, layout.squared] = False
    for columns in layout.softmax:
        best = logits[:, columns].topk(2, dim=1).values
        could[:, columns] = False
        could[:, columns[0]] = ~(best[:, 0] - best[:, 1] > math.sqrt(2) * change[:, columns[0]])
    return int(could.sum())
