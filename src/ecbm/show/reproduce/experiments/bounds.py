"""The corrected bounds of an influence step (docs/method.md, "Bounds for influence steps") against its true error.

Features are the first principal directions of those that the heads read, scaled to rows of norm 1 in the mean.
Concept heads lose samples, the label head loses concepts; both problems are solved to machine precision.
"""

from __future__ import annotations

import statistics
from typing import Any

import torch
from torch import Tensor

from ecbm.edit.bounds import InfluenceBound, concept_bound, concept_pieces, label_bound, label_pieces
from ecbm.read.dataset import Dataset
from ecbm.show.reproduce.case import Case
from ecbm.show.reproduce.pieces import Piece
from ecbm.train import stages
from ecbm.train.heads.concept import solve_concept_head
from ecbm.train.heads.label import solve_label_head
from ecbm.train.heads.objectives import with_ones

_TOLERANCE = 1e-12
# Share of the samples that goes where damping is what changes.
_REMOVED = 0.05


def pieces(case: Case) -> list[Piece]:
    """One a repetition."""
    return [Piece("bounds", repetition, {}) for repetition in case.repetitions]


def models(case: Case, piece: Piece) -> list[tuple[Dataset, int]]:
    """The model whose features are taken."""
    return [(case.data, piece.repetition)]


def compute(case: Case, piece: Piece) -> dict[str, Any]:
    """Bound and true distance for every damping, share of removed samples and number of removed concepts."""
    train, model = case.data.split("train"), case.model(case.data, piece.repetition)
    design = _scaled(stages.feature_design(model.backbone, train.inputs)[:, :-1], int(case.setting("directions")))
    concepts = train.concepts.double().nan_to_num(0.0)[:, : int(case.setting("concepts"))]
    order = torch.randperm(len(design), generator=torch.Generator().manual_seed(case.draw(piece.repetition)))
    l2 = float(case.setting("l2"))
    rows = []
    for damping in case.setting("dampings"):
        stays = order[round(_REMOVED * len(order)) :]
        rows.append({"of": "damping", "at": damping, **_concepts(design, concepts, stays, l2, damping)})
    for share in case.setting("removed_shares"):
        stays = order[round(share * len(order)) :]
        rows.append({"of": "removed samples", "at": share, **_concepts(design, concepts, stays, l2, 0.0)})
    shown = train.labels < int(case.setting("classes"))
    bottleneck = _scaled(model.concept_logits(train.inputs)[shown].double(), None)[:, : concepts.shape[1]]
    inputs = with_ones(bottleneck)
    for count in case.setting("removed_concepts"):
        if count < bottleneck.shape[1]:
            found = _label(inputs, train.labels[shown], int(count), l2)
            rows.append({"of": "removed concepts", "at": count, **found})
    return {"rows": rows}


def _scaled(features: Tensor, directions: int | None) -> Tensor:
    """Centred features (their leading directions, with a column of ones), of norm 1 in the mean."""
    centred: Tensor = features.double() - features.double().mean(0)
    if directions is not None:
        _, _, vectors = torch.linalg.svd(centred, full_matrices=False)
        centred = centred @ vectors[:directions].T
    centred = centred / centred.norm(dim=1).mean().clamp_min(1e-12)
    if directions is None:
        return centred
    return with_ones(centred)


def _measured(bound: InfluenceBound, influence: Tensor, newton: Tensor, best: Tensor) -> dict[str, float]:
    return {
        "bound": bound.influence_to_retrained,
        "distance": float((influence - best).norm()),
        "newton_bound": bound.newton_to_retrained,
        "newton_distance": float((newton - best).norm()),
    }


def _steps(at: Tensor, old: tuple[Tensor, Tensor], new: tuple[Tensor, Tensor], damping: float) -> list[Tensor]:
    """The influence step (old Hessian) and the Newton step (new Hessian)."""
    change, shift = new[0] - old[0], damping * torch.eye(len(at)).to(at)
    return [at - torch.linalg.solve(matrix + shift, change) for matrix in (old[1], new[1])]


def _concepts(design: Tensor, targets: Tensor, stays: Tensor, l2: float, damping: float) -> dict[str, Any]:
    """Means over concepts that lose samples, and in how many the bound holds."""
    weights = torch.ones_like(targets)
    first = solve_concept_head(design, targets, weights, l2, tolerance=_TOLERANCE, accept=1e-9).parameters
    left = design[stays], targets[stays], weights[stays]
    best = solve_concept_head(*left, l2, tolerance=_TOLERANCE, accept=1e-9).parameters
    found = []
    for column in range(targets.shape[1]):
        before = design, targets[:, column], weights[:, column]
        after = left[0], left[1][:, column], left[2][:, column]
        at = first[column]
        pieces_of = concept_pieces(at, *before, l2), concept_pieces(at, *after, l2)
        influence, newton = _steps(at, *pieces_of, damping)
        bound = concept_bound(at, before, after, l2, damping)
        found.append(_measured(bound, influence, newton, best[column]))
    return _mean(found)


def _label(inputs: Tensor, labels: Tensor, count: int, l2: float) -> dict[str, Any]:
    """The label head that loses its first concepts: a removed input is 0."""
    classes = int(labels.max()) + 1
    after = inputs.clone()
    after[:, :count] = 0.0
    options: dict[str, Any] = {"tolerance": _TOLERANCE, "accept": 1e-9}
    at = solve_label_head(inputs, labels, None, classes, l2, **options).parameters
    best = solve_label_head(after, labels, None, classes, l2, **options).parameters
    old, new = label_pieces(at, inputs, labels, l2), label_pieces(at, after, labels, l2)
    influence, newton = _steps(at.flatten(), old, new, 0.0)
    bound = label_bound(at, (inputs, labels), (after, labels), l2)
    return _mean([_measured(bound, influence, newton, best.flatten())])


def _mean(found: list[dict[str, float]]) -> dict[str, Any]:
    held = sum(one["bound"] >= one["distance"] and one["newton_bound"] >= one["newton_distance"] for one in found)
    means = {key: statistics.fmean(one[key] for one in found) for key in found[0]}
    return {**means, "held": held, "of_cases": len(found)}
