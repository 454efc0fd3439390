"""The certificate: a proven bound on the distance of edited heads to the retrained optimum (docs/method.md, "The
certificate").

J' is μ-strongly convex in a head's parameters with μ ≥ its L2, so |θ' − θ*| ≤ |∇J'(θ')| / μ, however θ' was found.

Concept head, concept j:   ε_j = |∇_j| / α,  so |Δz_j(x)| ≤ ε_j |x̃|   (x̃: features with a one). A concept with
several columns is one problem with one ε_j for all of them. With an L1 term in J_Y, ∇J'_Y stands for its
subgradient of least norm: the L1 term does not depend on b, and the bound below holds as it is.

Label head. What retraining would fit it on is b*, not b; with |b*_i − b_i| ≤ δ_i its gradient at our φ is at most

    |∇J'_Y(φ; b*)| ≤ |∇J'_Y(φ; b)| + (1/n) Σ_i δ_i ( ½ |Φ|₂ (|b̃_i| + δ_i) + |p_i − e_{y_i}| )

since the softmax is ½-Lipschitz. That adds up the worst case of every sample; with all samples as matrices X̃, B̃,
P, Y and |B* − B| ≤ Δ = |X̃|₂ |ε| (Frobenius, |·|₂ spectral) the sum is also at most

    (1/n) Δ ( ½ |Φ|₂ (|B̃|₂ + Δ) + |P − Y| )

which is several times smaller: no one direction of W can be the worst for all samples. The smaller of the two,
divided by β, is ε_Y. A class margin l_c − l_d of an input whose
bottleneck b is itself off by δ then moves by at most |φ_c − φ_d| δ + √2 ε_Y (|b̃| + δ).

Labels that are numbers. The squared loss has slope 1 in place of ½ and b̃ φ − y in place of p − e_y; the rest
holds as it is. The number predicted for an input moves by at most s (|φ| δ + ε_Y (|b̃| + δ)), s being the scale of
the labels: mean and scale are those of the edited data, the same for us and for retraining.

Exact arithmetic is assumed in the bound itself; what rounding adds to a computed gradient is estimated and added. A
number that is not finite proves nothing: then the bounds are infinite and every prediction could differ.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import torch
from torch import Tensor

from ecbm.read.concept_types import ConceptLayout
from ecbm.train.heads.activations import steepest
from ecbm.train.model import ConceptBottleneck

__all__ = ["Certificate", "NumberCertificate", "certify", "spectral_bound"]

_UNIT = 2.0**-53
_WIDEST_GRAM = 512


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


def _rounding(sizes: Tensor) -> float:
    """How much rounding can add to the norm of a gradient row: n products of size ≤ |x̃| / n, summed pairwise."""
    return _UNIT * (2 + math.log2(len(sizes))) * float(sizes.mean())


def spectral_bound(design: Tensor) -> float:
    """|design|₂ from the eigenvalues of its Gram matrix; infinite where that would cost more than it tells."""
    if design.shape[1] > _WIDEST_GRAM:
        return math.inf
    gram = design.T @ design
    if not bool(gram.isfinite().all()):
        return math.inf
    return math.sqrt(float(torch.linalg.eigvalsh(gram)[-1])) * (1 + 1e-9)


def certify(
    model: ConceptBottleneck,
    sizes: Tensor,
    concept_gradient: Tensor,
    bottleneck: Tensor,
    label_residual: Tensor,
    label_gradient_norm: float,
    validation: Tensor,
    covers: str,
    concept_head_fixed: bool = False,
    design_norm: float = math.inf,
) -> Certificate:
    """Bound the distance to retraining.

    Parameters
    ----------
    model
        The edited model.
    sizes, concept_gradient
        Norms (n,) of the edited training features (with ones), and the gradient (k, d) of J'_C at the edited head.
    bottleneck, label_residual, label_gradient_norm
        What the label head was fitted on (with ones), softmax minus class (n, classes), and its gradient norm.
    validation
        Features of validation samples, with ones.
    covers
        In words, which parameters the bound is about.
    concept_head_fixed
        True where the concept head is given and not solved (the joint regime): then δ is 0.
    design_norm
        An upper bound on |X̃|₂, where one is known (:func:`spectral_bound`).
    """
    heads = [*model.concept_head.parameters(), *model.label_head.parameters()]
    norm = torch.tensor(label_gradient_norm)
    numbers = (sizes, concept_gradient, bottleneck, label_residual, validation, norm, *heads)
    if not all(bool(number.detach().isfinite().all()) for number in numbers):
        unknown = len(validation) * len(model.concept_names), len(validation)
        return Certificate(math.inf, math.inf, math.inf, math.inf, *unknown, len(validation), covers)
    alpha, beta = model.recipe.concept_regularisation, model.recipe.label_regularisation
    # Rows of a categorical or ordinal concept are one problem: its whole gradient bounds each of them.
    rounding = _rounding(sizes)
    concept_error = torch.stack(
        [
            (concept_gradient[list(one.columns)].norm() + len(one.columns) ** 0.5 * rounding) / alpha
            for one in model.layout.concepts
        ]
    )
    if concept_head_fixed:
        concept_error = torch.zeros_like(concept_error)
    error = float(concept_error.norm())
    row_error = concept_error[list(model.layout.owner)]
    slope = 1.0 if model.bottleneck == "logits" else steepest(model.layout)
    if model.recipe.regime != "independent":
        shift = slope * error * sizes
    elif model.bottleneck == "logits":
        # low and high are order statistics of the logits: they move at most as far as the farthest logit.
        shift = torch.full_like(sizes, error * float(sizes.max()))
    else:
        shift = torch.zeros_like(sizes)
    weight = model.label_head.weight.detach()
    spectral = float(torch.linalg.matrix_norm(weight, 2))
    lengths = bottleneck.norm(dim=1)
    # How fast the derivative of a sample's loss turns with its logits: a softmax, or a difference.
    turning = 1.0 if model.predicts_number else 0.5
    one_by_one = (shift * (turning * spectral * (lengths + shift) + label_residual.norm(dim=1))).mean()
    whole = float(shift.norm())
    if model.recipe.regime != "independent":
        whole = min(whole, slope * error * design_norm if error else 0.0)
    spread = spectral_bound(bottleneck) + whole
    together = (
        whole * (turning * spectral * spread + float(label_residual.norm())) / len(bottleneck) if whole else 0.0
    )
    # A residual of classes is at most √2; that of a number is as large as it is.
    summed = lengths * label_residual[:, 0].abs().clamp_min(1.0) if model.predicts_number else lengths
    label_error = (label_gradient_norm + _rounding(summed) + min(float(one_by_one), together)) / beta

    with torch.no_grad():
        concept_logits = model.concept_head(validation[:, :-1])
        values = model.bottleneck_from(concept_logits)
        class_logits = model.label_head(values)
    size = validation.norm(dim=1)
    concept_change = size[:, None] * row_error
    off = slope * error * size
    reach = torch.sqrt(values.square().sum(1) + 1) + off
    class_change = weight.norm(dim=1) * off[:, None] + label_error * reach[:, None]
    top = class_logits.argmax(1)
    margin = class_logits.gather(1, top[:, None]) - class_logits
    apart = torch.cdist(weight, weight)[top]
    # Written so that a comparison with something that is not a number counts as "could differ".
    safe = margin > apart * off[:, None] + math.sqrt(2) * label_error * reach[:, None]
    safe[torch.arange(len(top)), top] = True
    return Certificate(
        error,
        label_error,
        float(concept_change.max()) if len(validation) else 0.0,
        float(class_change.max()) if len(validation) else 0.0,
        _could_differ(model.layout, concept_logits, concept_change),
        int((~safe).any(1).sum()),
        len(validation),
        covers,
    )


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
