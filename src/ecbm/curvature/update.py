"""Adding samples to a fitted curvature and taking them away, without another pass over the rest of the data.

n Λ* is a sum over samples, so in a fixed eigenbasis terms can be added and subtracted exactly: the result is what
a new second pass over the edited data would give. What goes stale is the basis itself. On request the factors are
updated as well; Λ* then moves to the new basis as the diagonal it has there,

    Λ' = (Q'_Γᵀ Q_Γ)² Λ (Q_Ωᵀ Q'_Ω)²     (squares taken elementwise),

which is exact for the old matrix's diagonal and an approximation of a refit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from ecbm.curvature.blocks import Plan, make_plan
from ecbm.curvature.fitting import FitJob, Settings
from ecbm.curvature.kronecker import Block, DenseBlock, KroneckerBlock, overlap
from ecbm.curvature.losses import Loss
from ecbm.curvature.sources import Source
from ecbm.errors import InputError
from ecbm.matrices import symmetric_eigen

__all__ = ["block_drift", "update_blocks"]


class _Change:
    """The sums of some samples under some loss, with a sign."""

    def __init__(self, sign: int, job: FitJob, blocks: Sequence[Block], factors: bool) -> None:
        self.sign, self.samples = sign, len(job.source)
        bases: dict[str, Tensor] = {}
        for block in blocks:
            if isinstance(block, KroneckerBlock):
                bases[f"left|{block.name}"], bases[f"right|{block.name}"] = block.left, block.right
        self.squares = job.eigenvalues(bases).total
        self.columns = job.columns
        self.covariances: dict[str, dict[str, Tensor]] = {}
        if factors or any(isinstance(block, DenseBlock) for block in blocks):
            self.covariances = job.covariances(keep=False).total


def update_blocks(
    blocks: Sequence[Block],
    settings: Settings,
    module: nn.Module,
    source: Source,
    subtract: Loss | None,
    add: Loss | None,
    factors: bool,
    keys: Tensor | None,
) -> tuple[list[Block], int, dict[str, Any]]:
    """New blocks, the new number of samples, and what to report."""
    if subtract is None and add is None:
        raise InputError("nothing to update: give subtract=, add= or both")
    names = [name for block in blocks for name in block.parameters]
    changes = []
    for sign, loss in ((-1, subtract), (1, add)):
        if loss is None:
            continue
        if len(loss) != len(source):
            raise InputError(f"{len(source)} inputs but the loss has {len(loss)} rows; they must match")
        plan: Plan = make_plan(module, names)
        changes.append(_Change(sign, FitJob(module, plan, source, loss, settings, keys, None), blocks, factors))
    count = blocks[0].count + sum(change.sign * change.samples for change in changes)
    if count < 1:
        raise InputError(
            f"subtracting {len(source)} of {blocks[0].count} samples leaves none; fit the new data instead"
        )
    result: list[Block] = []
    negative = 0.0
    for block in blocks:
        if isinstance(block, DenseBlock):
            total = block.sum_matrix()
            for change in changes:
                total = total + change.sign * _symmetric(change.covariances[block.name]["fisher"])
            result.append(DenseBlock.from_sum(block.layer, total, count))
            continue
        sums = block.sums.clone()
        for change in changes:
            sums += change.sign * change.squares[block.name]["squares"]
        scale = float(block.sums.abs().sum().clamp_min(1e-300))
        negative = max(negative, float(-sums.clamp_max(0).sum()) / scale)
        updated = replace(block, sums=sums.clamp_min_(0), count=count)
        result.append(_move_basis(block, updated, changes) if factors else updated)
    if negative > 1e-3:
        raise InputError(
            "the samples to subtract have more curvature than the fitted data: they were not part of the fit, "
            "or had other targets; give the terms exactly as they were fitted"
        )
    touched = sum(change.samples for change in changes)
    entry = {
        "subtracted": len(source) if subtract is not None else 0,
        "added": len(source) if add is not None else 0,
        "factors": factors,
        "samples": count,
        "share": touched / blocks[0].count,
        "change": block_drift(blocks, result)["total"],
    }
    return result, count, entry


def _symmetric(matrix: Tensor) -> Tensor:
    return (matrix + matrix.T) / 2


def _move_basis(old: KroneckerBlock, updated: KroneckerBlock, changes: Sequence[_Change]) -> KroneckerBlock:
    gamma, omega = old.factor_matrices()
    positions = old.positions * old.count
    gamma, omega = gamma * max(positions, 1.0), omega * old.count
    for change in changes:
        group = change.covariances[old.name]
        omega += change.sign * _whole(old.layer.input_sum_matrix(group))
        gamma += change.sign * _whole(old.layer.output_sum_matrix(group))
        positions += change.sign * float(group["positions"]) / change.columns
    positions /= updated.count
    dtype = old.layer.dtype
    left_values, left = symmetric_eigen(gamma / (updated.count * max(positions, 1.0)), dtype)
    right_values, right = symmetric_eigen(omega / updated.count, dtype)
    return replace(
        updated,
        left=left,
        right=right,
        left_values=left_values,
        right_values=right_values,
        sums=updated.in_basis(left, right),
        positions=positions,
    )


def _whole(upper: Tensor) -> Tensor:
    return torch.triu(upper) + torch.triu(upper, 1).transpose(-1, -2)


def block_drift(first: Sequence[Block], second: Sequence[Block]) -> dict[str, Any]:
    """|A − B| / |B| of the whole matrices in the Frobenius norm, for each layer and in total."""
    layers: dict[str, float] = {}
    distance = size = 0.0
    others = {block.name: block for block in second}
    for block in first:
        mine, inner, other = overlap(block, others[block.name])
        gap = max(mine - 2 * inner + other, 0.0)
        layers[block.name] = (gap / max(other, 1e-300)) ** 0.5
        distance, size = distance + gap, size + other
    return {"total": (distance / max(size, 1e-300)) ** 0.5, "layers": layers}
