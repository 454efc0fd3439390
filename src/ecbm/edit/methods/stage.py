"""The concept predictor g as an influence step sees it: on frozen features, or with its backbone.

Both kinds answer the same questions: how does the gradient change with the terms, of which objective is the
curvature taken, and what is the model after a step. Only terms that changed need a backward pass:

    ∇J' − ∇J = (1/n')(Σ_changed ∇ℓ'_i − Σ_changed ∇ℓ_i) + (n/n' − 1)(∇J − αθ)

A step is taken over the union of old and new concepts, so that one formula serves every kind of edit: a removed
concept is a head row whose weights become 0 and that is dropped afterwards, a new one a row whose weights were 0
before. Old concepts come first, in their order.
"""

from __future__ import annotations

import copy
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from ecbm.curvature import EKFAC, ConceptLoss, Vector, gauss_newton_quadratic
from ecbm.edit.alignment import Alignment
from ecbm.edit.carry import carry, restandardise, with_heads
from ecbm.edit.frozen import KeptRows, kept_rows
from ecbm.edit.gradients import ConceptPart, add_step, dot, gradient_sum
from ecbm.edit.methods.typed_steps import categorical_step, ordinal_step
from ecbm.edit.state import EditorState, Facts
from ecbm.read.concept_types import ConceptLayout, layout_of
from ecbm.read.inputs import Inputs
from ecbm.train import stages
from ecbm.train.heads.activations import TiedLinear, tie, tied_weight
from ecbm.train.heads.objectives import concept_curvature, concept_residual, rows_of
from ecbm.train.heads.precondition import FeatureBasis
from ecbm.train.model import ConceptBottleneck, linear_from
from ecbm.train.terms import ConceptTerms

__all__ = ["DeepStage", "FrozenStage", "Stage"]

WEIGHT, BIAS = "concept_head.weight", "concept_head.bias"
# Samples that lengths and dampings are compared on: each candidate costs about four forward passes over them.
_SAMPLE, _BATCH = 256, 256


class Stage(Protocol):
    """What an influence step needs to know of g and an edit."""

    state: EditorState
    widened: bool
    """Whether there are new concepts: the old terms know no curvature of theirs, so that of the new ones is taken.
    """
    widened_curvature: EKFAC | None
    """That curvature, once somebody has fitted it."""

    @property
    def part(self) -> ConceptPart:
        """g over the union of concepts."""
        ...

    def change(self, form: str) -> Vector:
        """∇J'_C(θ) − ∇J_C(θ), or with ``form="full"`` ∇J'_C(θ)."""
        ...

    def present(self) -> tuple[Inputs | Tensor, ConceptLoss]:
        """Inputs and loss whose curvature is meant."""
        ...

    def still(self, step: Vector, change: Vector) -> Vector:
        """The step without what cannot move."""
        ...

    def apply(self, step: Vector, *, precise: bool) -> tuple[ConceptBottleneck, Tensor, Facts]:
        """The model at θ − step under the new names, its concept logits (n', k'), and what is known of it.

        Without ``precise`` logits may be off by float32's rounding.
        """
        ...


class _Union:
    """Terms over the union of concepts."""

    def __init__(self, alignment: Alignment) -> None:
        concepts = alignment.concepts
        self.width = concepts.before + len(concepts.come)
        self.place = torch.empty(concepts.after, dtype=torch.long)
        """The row in the union of every new column."""
        self.place[concepts.new] = concepts.old
        self.place[concepts.come] = torch.arange(concepts.before, self.width)
        self.layout = self._layout(alignment)

    @staticmethod
    def _layout(alignment: Alignment) -> ConceptLayout | None:
        old, new = alignment.data, alignment.edited
        if old.layout.plain and new.layout.plain:
            return None
        names = [*old.concept_names, *(new.concept_names[place] for place in alignment.concepts.come.tolist())]
        return layout_of(names, {**old.layout.declared, **new.layout.declared})

    def of(self, rows: Tensor) -> ConceptLayout | None:
        """The types of some rows, which are all those of their concepts."""
        return None if self.layout is None else self.layout.select(rows)

    def tied(self, step: Vector) -> Vector:
        """A step whose rows of one ordinal concept share their slope, as the head's do."""
        if self.layout is None or not self.layout.tied:
            return step
        return {**step, WEIGHT: tied_weight(step[WEIGHT], self.layout)}

    def loss(self, targets: Tensor, weights: Tensor) -> ConceptLoss:
        return ConceptLoss(targets, weights, self.layout)

    def before(self, terms: Tensor) -> Tensor:
        """(n, k) old terms."""
        return torch.cat([terms, terms.new_zeros(len(terms), self.width - terms.shape[1])], 1)

    def after(self, terms: Tensor) -> Tensor:
        """(n', k') new terms."""
        wide = terms.new_zeros(len(terms), self.width)
        wide[:, self.place] = terms
        return wide


def _widened(part: ConceptPart, union: _Union) -> ConceptPart:
    """g with zero rows for new concepts behind the others."""
    other, rows = copy.deepcopy(part), rows_of(part.concept_head)
    if union.width > len(rows):
        wide = torch.cat([rows, rows.new_zeros(union.width - len(rows), rows.shape[1])])
        head = linear_from(wide).to(part.concept_head.weight.dtype)
        other.concept_head = TiedLinear.of(head, union.layout)
    return other


class FrozenStage:
    """g on frozen features: independent heads, everything about which is kept."""

    def __init__(self, alignment: Alignment, state: EditorState) -> None:
        self.alignment, self.state, self._union = alignment, state, _Union(alignment)
        self.widened = len(alignment.concepts.come) > 0
        self.widened_curvature: EKFAC | None = None
        self.heads = state.frozen
        self.rows: KeptRows = kept_rows(alignment, self.heads)
        extra = self._union.width - alignment.concepts.before
        self._parameters = _padded(self.heads.parameters, extra)
        self._logits = _padded(self.rows.logits, extra)
        self._touched = self._touched_rows()

    @cached_property
    def part(self) -> ConceptPart:
        return _widened(self.state.part, self._union)

    def _touched_rows(self) -> Tensor:
        """Rows of the union whose terms changed."""
        concepts = self.alignment.concepts
        if not self.alignment.samples.complete:
            return torch.arange(self._union.width)
        moved = self._union.place[self.alignment.touched_concepts()]
        touched: Tensor = torch.cat([moved, concepts.gone]).unique()
        return touched

    def _spread(self, terms: Tensor) -> Tensor:
        return self.rows.spread(self._union.after(terms)[:, self._touched])

    def change(self, form: str) -> Vector:
        alignment, heads, l2, here = self.alignment, self.heads, self.state.concept_l2, self._touched
        terms, count = alignment.terms_after, alignment.samples.after
        extra = self._union.width - alignment.concepts.before
        new = self._spread(terms.targets), self._spread(terms.weights)
        residuals = concept_residual(self._logits[here], *new, self._union.of(here), 0)
        known = here < alignment.concepts.before
        residuals[known] -= self.rows.residuals(here[known])
        changed = (residuals != 0).any(0).nonzero().flatten()
        sums = _padded(heads.sums, extra).clone()
        before = sums / alignment.samples.before + l2 * self._parameters
        sums[here] += residuals[:, changed] @ self.rows.design.exact[changed]
        gradient = sums / count + l2 * self.rows.design.penalty(self._parameters)
        if self.rows.design.coordinates is not None:
            gradient = self.rows.design.coordinates.gradient_to_new(gradient)
        rows = tie(gradient if form == "full" else gradient - before, self._union.layout)
        return {WEIGHT: rows[:, :-1].contiguous(), BIAS: rows[:, -1].contiguous()}

    def present(self) -> tuple[Inputs | Tensor, ConceptLoss]:
        alignment, union = self.alignment, self._union
        if not self.widened:
            terms = alignment.terms_before
            return self.state.inputs, union.loss(union.before(terms.targets), union.before(terms.weights))
        terms = alignment.terms_after
        features = self.rows.design.exact[:, :-1]
        features = features if self.rows.base is None else features[self.rows.base]
        return features, union.loss(union.after(terms.targets), union.after(terms.weights))

    def still(self, step: Vector, change: Vector) -> Vector:
        """Heads are independent: one whose terms did not change has no step, though a drawn Γ of EK-FAC and
        conjugate
        gradients over all heads would give it a small one.
        """
        resting = (change[WEIGHT] == 0).all(1) & (change[BIAS] == 0)
        return {
            name: value.masked_fill(resting.view(-1, *[1] * (value.ndim - 1)), 0.0)
            for name, value in self._union.tied(step).items()
        }

    def diagonal_step(self, change: Vector, damping: float, relative: bool) -> Vector:
        """EK-FAC's step of independent logistic heads, in expectation over the drawn targets.

        Targets of different concepts are drawn independently, so Γ of the true Fisher is diagonal and Q_Γ the
        identity; off its diagonal a drawn Γ holds noise alone. Λ* is then the Hessian's own diagonal in Q_Ω.
        """
        heads, l2 = self.heads, self.state.concept_l2
        diagonal = heads.diagonal
        if self.widened:
            new = torch.arange(len(diagonal), self._union.width)
            weights, layout = self._new_weights(new), self._union.of(new)
            curvature = concept_curvature(self._logits[new], weights, layout, 0).div_(self.alignment.samples.after)
            there = FeatureBasis(heads.basis.vectors, self.rows.design.single)
            diagonal = torch.cat([diagonal, there.diagonal(curvature.T, l2)])
        rows = torch.cat([change[WEIGHT], change[BIAS][:, None]], 1)
        unit = float((diagonal - l2).mean()) if relative else 1.0
        step = torch.zeros_like(rows)
        here = self._touched
        step[here] = heads.basis.precondition(diagonal[here] + damping * unit, rows[here])
        self._step_groups(step, rows, damping * unit)
        return {WEIGHT: step[:, :-1].contiguous(), BIAS: step[:, -1].contiguous()}

    def _new_weights(self, columns: Tensor) -> Tensor:
        return self.rows.spread(self._union.after(self.alignment.terms_after.weights)[:, columns])

    def _step_groups(self, step: Tensor, rows: Tensor, damping: float) -> None:
        """Put the steps of touched concepts whose rows belong together in place of the rows' own."""
        layout, heads, l2 = self._union.layout, self.heads, self.state.concept_l2
        touched = set(self._touched.tolist())
        for concept in () if layout is None else layout.of_type("categorical", "ordinal"):
            columns = torch.tensor(concept.columns)
            if concept.columns[0] not in touched:
                continue
            if concept.columns[0] < self.alignment.concepts.before:
                weights, count, basis = heads.terms.weights.T[columns], len(heads.design), heads.basis
                logits = heads.logits[columns]
            else:
                weights, count = self._new_weights(columns), self.alignment.samples.after
                basis, logits = FeatureBasis(heads.basis.vectors, self.rows.design.single), self._logits[columns]
            if concept.type == "categorical":
                step[columns] = categorical_step(rows[columns], logits, weights[0], basis, count, l2, damping)
            else:
                curvature = concept_curvature(logits.float(), weights).div_(count)
                step[columns] = ordinal_step(rows[columns], curvature, basis, l2, damping)

    def apply(self, step: Vector, *, precise: bool) -> tuple[ConceptBottleneck, Tensor, Facts]:
        alignment, here = self.alignment, self._touched
        moves = torch.cat([step[WEIGHT], step[BIAS][:, None]], 1)
        parameters = tie(self.rows.design.to_new(self._parameters) - moves, self._union.layout)
        carried = carry(alignment, refit_statistics=False)
        if self.rows.statistics is not None:
            carried.backbone = self.rows.statistics
        model = with_heads(carried, parameters[self._union.place], None, carried.low, carried.high)
        if self.rows.design.coordinates is not None:
            design = self.state.edited_design(alignment, model)
            logits = design @ rows_of(model.concept_head).T
            return _with_range(model, alignment, logits, None), logits, Facts(design=design)
        wide = self._logits.clone()
        wide[here] -= self.rows.design.logits(moves[here] if precise else moves[here].float())
        logits = self.rows.gather(wide)[self._union.place].T
        touched = alignment.touched_concepts() if alignment.samples.unchanged else None
        return _with_range(model, alignment, logits, touched), logits, Facts()


def _padded(rows: Tensor, extra: int) -> Tensor:
    return torch.cat([rows, rows.new_zeros(extra, rows.shape[1])]) if extra else rows


def _with_range(
    model: ConceptBottleneck, alignment: Alignment, logits: Tensor, touched: Tensor | None
) -> ConceptBottleneck:
    """The model with the intervention logits of its concepts, or only of ``touched`` ones, found anew."""
    here = slice(None) if touched is None else touched
    layout = alignment.edited.layout if touched is None else alignment.edited.layout.select(touched)
    concepts = alignment.after.concepts[:, here]
    model.low[here], model.high[here] = stages.logit_range(logits[:, here], concepts, layout)
    return model


class DeepStage:
    """g with its backbone: gradients by backward passes, old training rows first and new samples behind them."""

    def __init__(self, alignment: Alignment, state: EditorState) -> None:
        self.alignment, self.state, self._union = alignment, state, _Union(alignment)
        self.widened = len(alignment.concepts.come) > 0
        self.widened_curvature: EKFAC | None = None
        self.part = _widened(state.part, self._union)

    def _mean_data_gradient(self) -> Vector:
        """∇J − αθ as one of the widened g: new head rows are 0."""
        matched = {}
        for name, value in self.state.gradient.items():
            target = torch.zeros_like(self.part.get_parameter(name))
            data = value - self.state.concept_l2 * self.state.part.get_parameter(name).detach()
            target[tuple(slice(0, size) for size in value.shape)] = data
            matched[name] = target
        return matched

    def change(self, form: str) -> Vector:
        alignment, union, part = self.alignment, self._union, self.part
        l2, n, n_new = self.state.concept_l2, alignment.samples.before, alignment.samples.after
        new_terms, old_terms = alignment.terms_after, alignment.terms_before
        after = ConceptTerms(union.after(new_terms.targets), union.after(new_terms.weights), union.layout)
        if form == "full":
            total = gradient_sum(part, alignment.after.inputs, after, torch.arange(n_new))
            return {name: value / n_new + l2 * part.get_parameter(name).detach() for name, value in total.items()}
        before = ConceptTerms(union.before(old_terms.targets), union.before(old_terms.weights), union.layout)
        old, new = alignment.changed_samples()
        # The change of the terms is itself one weighted loss: w'(p − t') − w(p − t), but its weights may be
        # negative; two sums say the same and stay within the loss's domain.
        new_sum = gradient_sum(part, alignment.after.inputs, after, new)
        old_sum = gradient_sum(part, alignment.before.inputs, before, old)
        change = {name: (new_sum[name] - old_sum[name]) / n_new for name in new_sum}
        if n_new != n:
            for name, value in self._mean_data_gradient().items():
                change[name] += (n / n_new - 1) * value
        return change

    def present(self) -> tuple[Inputs | Tensor, ConceptLoss]:
        alignment, union = self.alignment, self._union
        if self.widened:
            terms = alignment.terms_after
            return alignment.after.inputs, union.loss(union.after(terms.targets), union.after(terms.weights))
        terms = alignment.terms_before
        return alignment.before.inputs, union.loss(union.before(terms.targets), union.before(terms.weights))

    def still(self, step: Vector, change: Vector) -> Vector:
        return self._union.tied(step)

    @cached_property
    def _sample(self) -> tuple[Inputs, ConceptTerms]:
        """Some edited training samples, evenly spread: what lengths and dampings are compared on."""
        count = self.alignment.samples.after
        rows = torch.linspace(0, count - 1, min(count, _SAMPLE)).round().long()
        terms = self.alignment.terms_after[rows]
        wide = self._union.after(terms.targets), self._union.after(terms.weights)
        union = ConceptTerms(*wide, self._union.layout)
        return self.alignment.after.inputs.subset(rows.tolist()), union

    def length(self, step: Vector, change: Vector) -> float:
        """Where the quadratic model along ``step`` is least: ⟨change, step⟩ / ⟨step, (G' + α) step⟩."""
        inputs, terms = self._sample
        loss = ConceptLoss(terms.targets, terms.weights, terms.layout)
        bend = gauss_newton_quadratic(self.part, inputs, loss, step, l2=self.state.concept_l2)
        return dot(change, step) / bend if bend > 0 else 0.0

    def sample_objective(self, step: Vector, length: float) -> float:
        """J'_C of those samples at θ − length · step."""
        part, (inputs, terms) = copy.deepcopy(self.part).eval(), self._sample
        add_step(part, step, -length)
        total = 0.0
        with torch.no_grad():
            for rows in torch.arange(len(terms.targets)).split(_BATCH):
                total += float(terms[rows].loss(part(inputs.take(rows)).float()))
        squares = sum(float(part.get_parameter(name).detach().double().square().sum()) for name in part.trained)
        return total / len(terms.targets) + 0.5 * self.state.concept_l2 * squares

    def apply(self, step: Vector, *, precise: bool) -> tuple[ConceptBottleneck, Tensor, Facts]:
        part, alignment = copy.deepcopy(self.part), self.alignment
        add_step(part, step, -1.0)
        carried = carry(alignment, refit_statistics=False)
        rows = tie(rows_of(part.concept_head).cpu(), self._union.layout)[self._union.place]
        model = with_heads(carried, rows, None, carried.low, carried.high)
        model.backbone = part.backbone
        if not alignment.samples.complete:
            model = restandardise(model, alignment.after)
        design = stages.feature_design(model.backbone, alignment.after.inputs)
        logits = design @ rows_of(model.concept_head).T
        return _with_range(model, alignment, logits, None), logits, Facts(design=design)
