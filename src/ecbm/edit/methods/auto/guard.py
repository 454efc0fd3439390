"""Which of two models is better for the edited data: nothing is kept that makes things worse."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import torch
from torch import Tensor

from ecbm.edit.alignment import Alignment
from ecbm.edit.heads import SolvedConcepts
from ecbm.train.heads.objectives import concept_losses, rows_of
from ecbm.train.model import ConceptBottleneck

__all__ = ["Rung", "judge", "wrong_predictions"]

# Labels that two models disagree on fall to either as a coin does, if neither is better: two deviations of that.
_DEVIATIONS = 2.0


@dataclasses.dataclass(frozen=True)
class Rung:
    """A model on the ladder, with what decides whether it is kept.

    Attributes
    ----------
    objective
        Data term of J'_C and the L2 of the head. The L2 of the backbone is not in it: in front of a normalisation
        weights have no scale, and theirs grows by itself.
    wrong
        For every known concept label of the validation split, whether it is predicted wrongly. Errors and not the
        loss: exactly solved heads are surer of themselves on a better backbone, and the loss would charge the
        backbone for it.
    """

    name: str
    model: ConceptBottleneck
    design: Tensor
    logits: Tensor
    objective: float
    wrong: Tensor
    settings: dict[str, Any]
    work: float

    def better_than(self, other: Rung) -> bool:
        """Whether the edited objective fell and validation errors did not rise beyond chance."""
        differ = int((self.wrong != other.wrong).sum())
        more = int(self.wrong.sum()) - int(other.wrong.sum())
        return self.objective < other.objective and not more > _DEVIATIONS * math.sqrt(differ)

    def row(self, kept: bool) -> dict[str, Any]:
        """For the report."""
        error = float(self.wrong.sum()) / max(len(self.wrong), 1)
        figures = {"edited_objective": self.objective, "validation_error": error, "work": self.work}
        return {"what": self.name, **self.settings, **figures, "kept": kept}


def judge(
    name: str,
    solved: SolvedConcepts,
    alignment: Alignment,
    design: Tensor,
    validation: Tensor | None,
    settings: dict[str, Any],
    work: float,
) -> Rung:
    """A solved model with its figures; ``validation`` are features of the edited validation samples, if any."""
    model, terms = solved.model, alignment.terms_after
    losses = concept_losses(solved.logits, terms.targets, terms.weights, terms.layout)
    data_term = float(losses.sum()) / len(solved.logits)
    head = 0.5 * model.recipe.concept_regularisation * float(rows_of(model.concept_head).square().sum())
    wrong = torch.zeros(0, dtype=torch.bool)
    if validation is not None:
        truth = alignment.edited.split("val").concepts
        logits = model.concept_logits_from(validation[:, :-1]).detach()
        wrong = wrong_predictions(model, logits, truth)[~truth.isnan()]
    return Rung(name, model, design, solved.logits, data_term + head, wrong, settings, work)


def wrong_predictions(model: ConceptBottleneck, logits: Tensor, truth: Tensor) -> Tensor:
    """(n, k) whether each label is predicted wrongly; a continuous one by more than half of its scale."""
    wrong = (logits > 0) != (truth >= 0.5)
    for columns in model.layout.softmax:
        best = logits[:, columns].argmax(1, keepdim=True)
        wrong[:, columns] = (torch.arange(len(columns)) == best) != (truth[:, columns] >= 0.5)
    squared = model.layout.squared
    if len(squared):
        wrong[:, squared] = (logits - model.concept_values(truth))[:, squared].abs() > 0.5
    return wrong
