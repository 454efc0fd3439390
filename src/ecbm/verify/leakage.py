"""Concept leakage: does the bottleneck carry information about the class beyond the concepts?

If it does, the label head can be right for reasons that no concept names, and an intervention or an edit of
concepts does not reach them (Mahinpei et al. 2021; Margeloiu et al. 2021). Three label heads of the same kind are
fitted on the training split and compared on another: on the true concepts, on the bottleneck, and on both. What
"both" gains over the true concepts alone can only come from leakage.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from ecbm.errors import InputError
from ecbm.read.dataset import Dataset
from ecbm.train.heads.label import solve_label_head
from ecbm.train.heads.objectives import with_ones
from ecbm.train.model import ConceptBottleneck
from ecbm.verify.evaluate import align_concepts

__all__ = ["Leakage", "concept_leakage"]

_RESAMPLES = 1000


@dataclasses.dataclass(frozen=True)
class Leakage:
    """Class accuracies of three label heads, and what the bottleneck adds to the true concepts."""

    from_true_concepts: float
    from_bottleneck: float
    from_both: float
    leakage: float
    interval: tuple[float, float]
    """95 % bootstrap interval of ``leakage``; leakage is shown if it lies above 0."""


def concept_leakage(
    model: ConceptBottleneck, data: Dataset, split: str = "test", *, l2: float = 1e-3, seed: int = 0
) -> Leakage:
    """Measure leakage of a model: fitted on ``train``, compared on ``split``.

    Inputs of the three heads are standardised on the training split, so that one ``l2`` means the same for all.
    Missing concept labels are replaced by the training mean.
    """
    if model.predicts_number:
        raise InputError("concept leakage is measured by class accuracy, and this model predicts a number")
    train, other = data.split("train"), data.split(split)
    means = align_concepts(model, train).double().nanmean(0)

    def true_concepts(part: Dataset) -> Tensor:
        values = align_concepts(model, part).double()
        return torch.where(values.isnan(), means, values)

    def predicted(part: Dataset) -> Tensor:
        return model.bottleneck_from(model.concept_logits(part).cpu())

    truth = true_concepts(train), true_concepts(other)
    read = predicted(train), predicted(other)
    sources = {
        "truth": truth,
        "bottleneck": read,
        "both": (torch.cat([truth[0], read[0]], 1), torch.cat([truth[1], read[1]], 1)),
    }
    right: dict[str, Tensor] = {}
    for name, (fit_on, judge_on) in sources.items():
        mean, scale = fit_on.mean(0), fit_on.std(0).clamp_min(1e-8)
        weights = torch.ones(len(fit_on))
        design = with_ones((fit_on - mean) / scale)
        solved = solve_label_head(design, train.labels, weights, len(data.class_names), l2, tolerance=1e-6)
        classes = (with_ones((judge_on - mean) / scale) @ solved.parameters.T).argmax(1)
        right[name] = (classes == other.labels).double()
    gain = right["both"] - right["truth"]
    generator = torch.Generator().manual_seed(seed)
    resampled = torch.stack(
        [gain[torch.randint(len(gain), (len(gain),), generator=generator)].mean() for _ in range(_RESAMPLES)]
    )
    low, high = torch.quantile(resampled, torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return Leakage(
        float(right["truth"].mean()),
        float(right["bottleneck"].mean()),
        float(right["both"].mean()),
        float(gain.mean()),
        (low, high),
    )
