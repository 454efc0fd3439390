"""The solved concept heads of a model on frozen features, and how they follow an edit.

The linear backbone is a standardisation, so after an edit everything but the heads is known up to an affine map:
features of samples that stay, logits, sums of residuals and preconditioners are those before the edit. Only
concepts whose terms changed are solved again (:mod:`ecbm.edit.warm`).
"""

from __future__ import annotations

import dataclasses
from functools import cached_property

import torch
from torch import Tensor

from ecbm.edit.alignment import Alignment, Matching
from ecbm.edit.carry import restandardised
from ecbm.edit.warm import (
    Coordinates,
    KeptDesign,
    LeadingInverses,
    MovedConcepts,
    OldConcepts,
    solve_moved_concepts,
)
from ecbm.read.inputs import TensorInputs
from ecbm.train.backbones import Standardise
from ecbm.train.heads.activations import tie
from ecbm.train.heads.objectives import add_up, concept_curvature, concept_losses, concept_residual
from ecbm.train.heads.precondition import FeatureBasis
from ecbm.train.terms import ConceptTerms

__all__ = ["FrozenHeads", "KeptRows", "kept_rows", "move_heads"]

# A head whose kept gradient is above this is not solved (an influence step made it): every exact edit solves it.
_SOLVED = 1e-11


@dataclasses.dataclass(frozen=True, eq=False)
class FrozenHeads:
    """Concept heads on their training features; concepts are rows.

    Attributes
    ----------
    design
        (n, d) float64 features with ones.
    parameters, logits, sums
        (k, d) heads, (k, n) their logits and (k, d) sums over samples of their residuals, all float64.
    terms
        (n, k) targets and weights.
    basis, leading
        What preconditions: an eigenbasis of (about) these features, and inverses within its leading directions.
    kept_diagonal
        The Hessians' diagonals in the basis, where they are known; NaN rows are stale.
    sizes
        (n,) norms of the design's rows.
    values
        (k,) J_C of every concept.
    """

    design: Tensor
    parameters: Tensor
    logits: Tensor
    sums: Tensor
    terms: ConceptTerms
    l2: float
    basis: FeatureBasis
    leading: LeadingInverses
    kept_diagonal: Tensor
    sizes: Tensor
    values: Tensor

    @classmethod
    def of(
        cls, design: Tensor, parameters: Tensor, terms: ConceptTerms, l2: float, basis: FeatureBasis
    ) -> FrozenHeads:
        """Everything computed from the features."""
        logits = parameters @ design.T
        sums = add_up(_residual(logits, terms), design)
        curvature = concept_curvature(logits.T, terms.weights, terms.layout).div_(len(design)).float()
        diagonal = basis.diagonal(curvature, l2)
        inverses = basis.leading_inverses(curvature, l2)
        count = inverses.shape[1]
        others = diagonal[:, :-count] if count < diagonal.shape[1] else diagonal
        leading = LeadingInverses(basis.vectors[:, -count:].contiguous(), inverses, others.mean(1))
        values = _values(logits, terms, parameters, l2)
        sizes = design.norm(dim=1)
        return cls(design, parameters, logits, sums, terms, l2, basis, leading, diagonal, sizes, values)

    def residuals(self, concepts: Tensor) -> Tensor:
        """(concepts, n) of some concepts."""
        return _residual(self.logits[concepts], _of(self.terms, concepts))

    def values_under(self, concepts: Matching, touched: Tensor, terms: ConceptTerms) -> Tensor:
        """J'_C of the concepts that are left, at these heads under new terms of the same samples."""
        values, old = self.values[concepts.origin], concepts.origin[touched]
        values[touched] = _values(self.logits[old], _of(terms, touched), self.parameters[old], self.l2)
        return values

    @cached_property
    def curvature(self) -> Tensor:
        """(k, n) float32, divided by n."""
        weights, layout = self.terms.weights.T, self.terms.layout
        return concept_curvature(self.logits.float(), weights, layout, 0).div_(len(self.design))

    @property
    def gradient(self) -> Tensor:
        """∇J_C (k, d)."""
        return tie(self.sums / len(self.design) + self.l2 * self.parameters, self.terms.layout)

    @cached_property
    def unsolved(self) -> Tensor:
        norms: Tensor = self.gradient.norm(dim=1)
        return norms > _SOLVED

    @cached_property
    def diagonal(self) -> Tensor:
        """The diagonal of every Hessian in the basis."""
        stale = self.kept_diagonal[:, 0].isnan()
        if not bool(stale.any()):
            return self.kept_diagonal
        diagonal = self.kept_diagonal.clone()
        diagonal[stale] = self.basis.diagonal(self.curvature[stale].T, self.l2)
        return diagonal

    def moved(self, concepts: Matching, touched: Tensor, parameters: Tensor, terms: ConceptTerms) -> FrozenHeads:
        """Heads on the same features for the concepts that are left, some of them with other parameters.

        Logits and sums of ``touched`` concepts are computed anew in float64, so that nothing adds up over many
        edits; their preconditioners stay, for those may be off.
        """
        origin = concepts.origin
        logits, sums, diagonal = self.logits[origin], self.sums[origin], self.kept_diagonal[origin].clone()
        diagonal[touched] = torch.nan
        logits[touched] = parameters[touched] @ self.design.T
        changed = _of(terms, touched)
        sums[touched] = add_up(_residual(logits[touched], changed), self.design)
        values = self.values[origin]
        values[touched] = _values(logits[touched], changed, parameters[touched], self.l2)
        return dataclasses.replace(
            self,
            parameters=parameters,
            logits=logits,
            sums=sums,
            terms=terms,
            leading=self.leading.of(origin),
            kept_diagonal=diagonal,
            values=values,
        )


def _of(terms: ConceptTerms, concepts: Tensor) -> ConceptTerms:
    return terms.part(slice(None), concepts)


def _residual(logits: Tensor, terms: ConceptTerms) -> Tensor:
    """(k, n) residuals of (k, n) logits."""
    return concept_residual(logits, terms.targets.T, terms.weights.T, terms.layout, 0)


def _values(logits: Tensor, terms: ConceptTerms, parameters: Tensor, l2: float) -> Tensor:
    losses = concept_losses(logits, terms.targets.T, terms.weights.T, terms.layout, 0).sum(1) / logits.shape[1]
    return losses + 0.5 * l2 * parameters.square().sum(1)


@dataclasses.dataclass(frozen=True)
class KeptRows:
    """Kept rows followed by those of new samples; ``base`` is the place there of every edited training row."""

    heads: FrozenHeads
    design: KeptDesign
    logits: Tensor
    base: Tensor | None
    statistics: Standardise | None

    def spread(self, terms: Tensor) -> Tensor:
        """(n', k) terms of the edited rows as (k, rows); 0 where a sample is gone."""
        if self.base is None:
            return terms.T
        out = terms.new_zeros(terms.shape[1], self.logits.shape[1])
        out[:, self.base] = terms.T
        return out

    def residuals(self, concepts: Tensor) -> Tensor:
        """(concepts, rows) of the old terms; 0 where a sample is new."""
        old = self.heads.residuals(concepts)
        return torch.cat([old, old.new_zeros(len(old), self.logits.shape[1] - old.shape[1])], 1)

    def gone(self, before: int) -> Tensor:
        """Kept rows, of ``before``, that the edited objective is no sum over."""
        left = torch.ones(before, dtype=torch.bool)
        if self.base is not None:
            left[self.base[self.base < before]] = False
        return left.nonzero().flatten()

    def gather(self, logits: Tensor) -> Tensor:
        """(k, rows) as (k, n')."""
        return logits if self.base is None else logits[:, self.base]


def kept_rows(alignment: Alignment, heads: FrozenHeads) -> KeptRows:
    """The rows that an edited objective is a sum over, from those of the heads before it."""
    samples = alignment.samples
    exact, single = heads.design, heads.basis.design
    if samples.unchanged:
        return KeptRows(heads, KeptDesign(exact, single), heads.logits, None, None)
    backbone, logits = alignment.model.backbone, heads.logits
    # Statistics come from the samples that are left and from no others: nothing of a removed one stays in them.
    moved = None if samples.complete else restandardised(alignment.model, alignment.after)
    base = samples.origin.clone()
    come = samples.come if moved is None else _come(alignment)
    base[come] = samples.before + torch.arange(len(come))
    if len(come):
        given = alignment.after.inputs.take(come)
        if moved is not None:
            given = torch.where(given.isnan(), moved.statistics.mean, given.double())
        with torch.no_grad():
            added = backbone(given)
        added = torch.cat([added, torch.ones(len(added), 1, dtype=torch.float64)], 1)
        exact, single = torch.cat([exact, added]), torch.cat([single, added.float()])
        logits = torch.cat([logits, heads.parameters @ added.T], 1)
    if samples.complete:
        return KeptRows(heads, KeptDesign(exact, single), logits, base, None)
    assert moved is not None
    coordinates = Coordinates(moved.ratio, moved.offset)
    return KeptRows(heads, KeptDesign(exact, single, coordinates), logits, base, moved.statistics)


def _come(alignment: Alignment) -> Tensor:
    """New rows: of samples that came, and of samples with missing values, which now have other means there."""
    samples, inputs = alignment.samples, alignment.after.inputs
    if not (isinstance(inputs, TensorInputs) and inputs.has_missing):
        return samples.come
    missing = inputs.tensor[samples.new].isnan().any(1)
    return torch.cat([samples.come, samples.new[missing]])


def _leading(heads: FrozenHeads, rows: KeptRows, samples: Matching, concepts: Tensor) -> LeadingInverses:
    """Kept inverses of some concepts, without samples that are gone and with new ones."""
    kept = heads.leading.of(concepts)
    if rows.base is None:
        return kept
    gone, count = rows.gone(samples.before), samples.before
    kept = kept.after(rows.design.single[gone], heads.curvature[concepts][:, gone], -1)
    added = concept_curvature(rows.logits[concepts, count:].float()).div_(count)
    return kept.after(rows.design.single[count:], added, 1)


def move_heads(
    alignment: Alignment, heads: FrozenHeads, rows: KeptRows, touched: Tensor, tolerance: float
) -> MovedConcepts | None:
    """Solve the ``touched`` concepts (none of them new) on the edited terms; ``None`` if that does not converge."""
    at, terms = alignment.concepts.origin[touched], alignment.terms_after
    return solve_moved_concepts(
        rows.design,
        rows.spread(terms.targets[:, touched]),
        rows.spread(terms.weights[:, touched]),
        alignment.samples.after,
        heads.l2,
        OldConcepts(heads.parameters[at], rows.logits[at], rows.residuals(at), heads.sums[at]),
        _leading(heads, rows, alignment.samples, at),
        tolerance,
    )
