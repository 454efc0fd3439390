"""The steps that training is made of, each a function of values: features, convex heads, what the label head reads.

Editing repeats single steps on edited data, so each stands on its own.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ecbm import parallel
from ecbm.devices import device_of
from ecbm.errors import InputError
from ecbm.read.concept_types import ConceptLayout
from ecbm.read.dataset import Dataset
from ecbm.read.inputs import Inputs, TensorInputs, rows_at_once
from ecbm.train.heads.activations import activate
from ecbm.train.heads.label import solve_label_head
from ecbm.train.heads.mixed import solve_heads
from ecbm.train.heads.newton import ConvexSolution
from ecbm.train.heads.objectives import with_ones
from ecbm.train.heads.precondition import FeatureBasis
from ecbm.train.recipe import Recipe
from ecbm.train.terms import ConceptTerms, standardisation

__all__ = [
    "check_trainable",
    "extract_features",
    "feature_design",
    "fill_missing",
    "fit_concept_head",
    "fit_label_head",
    "label_inputs",
    "logit_range",
]

# How far below the stated tolerance the solvers aim (Recipe.head_tolerance).
_AIM = 1e-3


def check_trainable(data: Dataset, recipe: Recipe) -> None:
    """Refuse, before any work, data that cannot be trained on; the message names split, class or concept."""
    sizes = data.split_sizes
    if "train" not in sizes:
        raise InputError(f"the train split is empty (splits: {', '.join(sizes) or 'none'}); nothing to train on")
    stops_early = recipe.patience is not None and (not recipe.is_linear or recipe.regime == "joint")
    if stops_early and "val" not in sizes:
        raise InputError("the val split is empty; early stopping needs it: add one or set patience=None")
    if stops_early and recipe.regime != "joint" and bool(data.split("val").concepts.isnan().all()):
        raise InputError("the val split has no concept label; early stopping needs some, or set patience=None")
    train = data.split("train")
    if data.predicts_number and recipe.class_balanced:
        raise InputError("class_balanced draws every class equally often, but the labels are numbers; leave it out")
    if not data.predicts_number:
        counts = torch.bincount(train.labels, minlength=len(data.class_names))
        for name, count in zip(data.class_names, counts.tolist(), strict=True):
            if count == 0:
                raise InputError(f"class {name!r} has no sample in the train split; add some or drop the class")
    gaps = isinstance(data.inputs, TensorInputs) and data.inputs.has_missing
    if gaps and recipe.backbone not in ("linear", "mlp"):
        raise InputError("features are missing in some samples; only the backbones 'linear' and 'mlp' replace them")
    colour = "colour" in (recipe.augment or ())
    if colour and (data.inputs.shape[0] != 3 or data.inputs.raw([0]).dtype != torch.uint8):
        raise InputError("augment='colour' needs pictures in red, green and blue of 0..255 (uint8); leave it out")
    if not data.concept_names:
        raise InputError("the dataset has no concepts; a concept bottleneck model needs at least one")
    for name, missing in zip(data.concept_names, train.concepts.isnan().all(0).tolist(), strict=True):
        if missing:
            raise InputError(f"concept {name!r} has no label in the train split; label some or drop the concept")


def extract_features(backbone: nn.Module, inputs: Inputs) -> Tensor:
    """Feature rows of all inputs in evaluation mode; processes share the work."""
    batch_size = rows_at_once(inputs.shape)
    backbone.eval()
    share = parallel.shard(len(inputs))
    parts = []
    with torch.no_grad():
        for start in range(share.start, share.stop, batch_size):
            parts.append(_features(backbone, inputs, range(start, min(start + batch_size, share.stop))))
        if not parts:  # more processes than samples
            parts.append(_features(backbone, inputs, range(1))[:0])
    rows = torch.cat(parts)
    return parallel.gather_rows(rows if rows.dtype == torch.float64 else rows.float(), len(inputs))


def _features(backbone: nn.Module, inputs: Inputs, rows: range) -> Tensor:
    """Feature rows of some inputs, computed where the backbone lies, on the CPU."""
    features: Tensor = backbone(inputs.take(rows).to(device_of(backbone)))
    return features.cpu()


def feature_design(backbone: nn.Module, inputs: Inputs) -> Tensor:
    """Features with a column of ones in float64: what the concept head is solved on.

    Filled piece by piece, for a copy of many wide rows takes as long as computing them.
    """
    if parallel.world_size() > 1 or not len(inputs):
        return with_ones(extract_features(backbone, inputs))
    backbone.eval()
    batch_size, design = rows_at_once(inputs.shape), torch.empty(0)
    with torch.no_grad():
        for start in range(0, len(inputs), batch_size):
            stop = min(start + batch_size, len(inputs))
            rows = _features(backbone, inputs, range(start, stop))
            if start == 0:
                design = torch.ones(len(inputs), rows.shape[1] + 1, dtype=torch.float64)
            design[start:stop, :-1] = rows if rows.dtype == torch.float64 else rows.float()
    return design


def fit_concept_head(
    design: Tensor,
    terms: ConceptTerms,
    l2: float,
    tolerance: float,
    start: Tensor | None = None,
    basis: FeatureBasis | None = None,
) -> ConvexSolution:
    """Solve the concept head; each process solves its share of the concepts, where they are all binary."""
    k = terms.targets.shape[1]
    if terms.layout is not None:
        solution = solve_heads(
            design,
            terms.targets,
            terms.weights,
            l2,
            terms.layout,
            tolerance=_AIM * tolerance,
            accept=tolerance,
            start=start,
            basis=basis,
        )
        parallel.broadcast(solution.parameters)
        return solution
    share = parallel.shard(k)
    columns = slice(share.start, share.stop)
    mine = solve_heads(
        design,
        terms.targets[:, columns],
        terms.weights[:, columns],
        l2,
        tolerance=_AIM * tolerance * math.sqrt(max(len(share), 1) / k),
        accept=tolerance * math.sqrt(max(len(share), 1) / k),
        start=None if start is None else start[columns],
        basis=basis,
    )
    if parallel.world_size() == 1:
        return mine
    figures = torch.tensor([mine.gradient_norm**2, mine.objective, float(mine.work)], dtype=torch.float64)
    parallel.all_reduce_sum(figures)
    parameters = parallel.gather_rows(mine.parameters, k)
    return dataclasses.replace(
        mine,
        parameters=parameters,
        logits=design @ parameters.T,
        gradient_norm=math.sqrt(figures[0]),
        objective=float(figures[1]),
        work=int(figures[2]),
    )


def fit_label_head(
    design: Tensor,
    labels: Tensor,
    classes: int,
    l2: float,
    tolerance: float,
    start: Tensor | None = None,
    l1: float = 0.0,
) -> ConvexSolution:
    """Solve the label head. Every process does, and the first one's answer is kept, so that all are equal."""
    solution = solve_label_head(
        design, labels, None, classes, l2, tolerance=_AIM * tolerance, accept=tolerance, start=start, l1=l1
    )
    parallel.broadcast(solution.parameters)
    return solution


def logit_range(
    concept_logits: Tensor, concepts: Tensor, layout: ConceptLayout | None = None
) -> tuple[Tensor, Tensor]:
    """The logits that stand for "absent" and "present" on a logit bottleneck: for concept values 0 and 1.

    Upper quartile of the training logits where a concept is present, lower quartile where it is absent. Quantiles
    over all samples (Koh et al. 2020 take the 5th and 95th) would make "present" a negative logit for a concept
    that fewer than one sample in twenty has. A concept that is never (or always) present takes them all the same.

    A value v of a continuous concept stands for (v − mean) / scale: the two logits are exactly that of 0 and of 1.
    """
    logits, known = concept_logits.double().numpy(), concepts.numpy()
    low, high = np.empty(logits.shape[1]), np.empty(logits.shape[1])
    for column, values in enumerate(logits.T):
        absent, present = known[:, column] < 0.5, known[:, column] >= 0.5
        if absent.any() and present.any():
            low[column], high[column] = _quantile(values[absent], 0.25), _quantile(values[present], 0.75)
        else:
            low[column], high[column] = _quantile(values, 0.05), _quantile(values, 0.95)
    for column in () if layout is None else layout.squared.tolist():
        mean, scale = standardisation(concepts[:, column])
        low[column], high[column] = -mean / scale, (1 - mean) / scale
    return torch.from_numpy(low), torch.from_numpy(high)


def _quantile(values: NDArray[np.float64], share: float) -> float:
    """Linear interpolation between order statistics. NumPy's own takes longer to be called than to compute, and
    torch's refuses more than 16 million values.
    """
    place = share * (len(values) - 1)
    below = math.floor(place)
    above = min(below + 1, len(values) - 1)
    sorted_there = np.partition(values, [below, above])
    first, second = float(sorted_there[below]), float(sorted_there[above])
    return first + (place - below) * (second - first)


def fill_missing(concepts: Tensor) -> Tensor:
    """Missing concept labels replaced by the mean of the concept's known ones, in float64."""
    values = concepts.double()
    return torch.where(values.isnan(), values.nanmean(0, keepdim=True), values)


def label_inputs(
    recipe: Recipe,
    concept_logits: Tensor,
    concepts: Tensor,
    low: Tensor,
    high: Tensor,
    layout: ConceptLayout | None = None,
) -> Tensor:
    """What the label head is trained on: the predicted bottleneck, or in the independent regime true concepts.

    On a logit bottleneck a true concept value t stands for the logit low + t (high − low), as it does when a
    person sets it by hand. A continuous concept is read standardised on either bottleneck.
    """
    if recipe.regime != "independent":
        return concept_logits if recipe.bottleneck == "logits" else activate(concept_logits, layout)
    values = fill_missing(concepts)
    read = low + (high - low) * values
    if recipe.bottleneck == "logits" or layout is None or not len(layout.squared):
        return read if recipe.bottleneck == "logits" else values
    values[:, layout.squared] = read[:, layout.squared]
    return values
