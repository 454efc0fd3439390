"""Curvature of the objective: EK-FAC fitted in one or two passes, and the exact operators it approximates."""

from ecbm.curvature.ekfac import EKFAC, Vector
from ecbm.curvature.exact import ExactOperator, Solution
from ecbm.curvature.losses import ConceptLoss, LabelLoss, Loss
from ecbm.curvature.quadratic import gauss_newton_quadratic

__all__ = [
    "EKFAC", "ConceptLoss", "ExactOperator", "LabelLoss", "Loss", "Solution", "Vector", "gauss_newton_quadratic",
]  # fmt: skip
