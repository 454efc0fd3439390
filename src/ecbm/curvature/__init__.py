"""Curvature of the objective: EK-FAC fitted in one or two passes, and the exact operators it approximates."""

from ecbm.curvature.ekfac import EKFAC, Vector
from ecbm.curvature.exact import ExactOperator, Solution
from ecbm.curvature.losses import ConceptLoss, LabelLoss, Loss

__all__ = ["EKFAC", "ConceptLoss", "ExactOperator", "LabelLoss", "Loss", "Solution", "Vector"]
