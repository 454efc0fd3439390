"""The report of an edit: plain values, ready for JSON."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ecbm.edit.alignment import Alignment
from ecbm.edit.carry import carry
from ecbm.edit.certificate import Evidence, certify, spectral_bound
from ecbm.edit.heads import label_design
from ecbm.edit.methods.base import Outcome
from ecbm.edit.state import EditorState, Facts
from ecbm.edit.traces import traces_of
from ecbm.read.concept_types import ConceptLayout
from ecbm.read.inputs import TensorInputs
from ecbm.train import stages
from ecbm.train.backbones import Standardise
from ecbm.train.heads.activations import activate
from ecbm.train.heads.objectives import (
    ConceptObjective,
    LabelObjective,
    concept_losses,
    label_residual,
    rows_of,
)
from ecbm.train.model import ConceptBottleneck

__all__ = ["Measured", "concept_value", "json_ready", "logits_before", "report_of"]


def json_ready(value: Any) -> Any:
    """The same with ``None`` for numbers that JSON does not have: an unguarded step may end beyond all numbers."""
    if isinstance(value, dict):
        return {key: json_ready(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_ready(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def concept_value(model: ConceptBottleneck, alignment: Alignment, logits: Tensor) -> float:
    """J'_C over the edited training samples, from their concept logits: the L2 counts every parameter of g."""
    terms = alignment.terms_after
    data_term = float(concept_losses(logits, terms.targets, terms.weights, terms.layout).sum()) / len(logits)
    predictor = [*model.backbone.parameters(), *model.concept_head.parameters()]
    squares = sum(float(p.detach().double().square().sum()) for p in predictor)
    return data_term + 0.5 * model.recipe.concept_regularisation * squares


class Measured:
    """A model on the edited training samples: logits, objectives and gradients of the heads, each computed once.

    Parameters
    ----------
    model
        Under the new names.
    alignment
        The edit.
    logits
        Concept logits (n', k') of the edited training samples.
    """

    def __init__(self, model: ConceptBottleneck, alignment: Alignment, logits: Tensor) -> None:
        self.model, self.alignment, self.logits = model, alignment, logits
        self.bottleneck = label_design(model, alignment, logits)
        self._labels = LabelObjective(
            self.bottleneck,
            alignment.labels_after,
            None,
            model.recipe.label_regularisation,
            model.recipe.label_l1 or 0.0,
        )
        self._label_head = rows_of(model.label_head)
        self.class_logits = self.bottleneck @ self._label_head.T

    def objectives(self, facts: Facts | None = None) -> dict[str, float]:
        """J'_C and J'_Y; what ``facts`` of the model know is not computed again."""
        labels = float(self._labels.value(self._label_head, self.class_logits))
        if facts is not None and facts.heads is not None:
            return {"concepts": float(facts.heads.values.sum()), "labels": labels}
        return {"concepts": concept_value(self.model, self.alignment, self.logits), "labels": labels}

    @cached_property
    def label_residual(self) -> Tensor:
        return label_residual(self.class_logits, self.alignment.labels_after)

    @cached_property
    def label_gradient(self) -> Tensor:
        return self._labels.gradient_from(self.label_residual, self._label_head)

    def concept_gradient(self, design: Tensor) -> Tensor:
        """∇J'_C over the concept head (k', d)."""
        terms, l2 = self.alignment.terms_after, self.model.recipe.concept_regularisation
        objective = ConceptObjective(design, terms.targets, terms.weights, l2, terms.layout)
        return objective.gradient(self.logits, rows_of(self.model.concept_head))


def report_of(
    alignment: Alignment, state: EditorState, outcome: Outcome, method: str
) -> tuple[dict[str, Any], Facts]:
    """What an edit did: objectives before and after, what moved on validation samples, and the certificate.

    Features that had to be computed for it are returned too, with the other facts about the edited model.
    """
    model, carried = outcome.model, carry(alignment)
    facts = _known(outcome, alignment, state, carried)
    design, validation = facts.design, facts.validation
    assert design is not None
    assert validation is not None
    logits = facts.heads.logits.T if facts.heads is not None else design @ rows_of(model.concept_head).T
    edited = Measured(model, alignment, logits)
    before, after = _before(carried, alignment, state, facts), edited.objectives(facts)
    settings = dict(outcome.settings)
    if state.staleness:
        settings["curvature_staleness"] = dict(state.staleness)
    report: dict[str, Any] = {
        "method": method,
        "edit": alignment.edit.said_of(alignment.data),
        "changed": alignment.counts(),
        "settings": settings,
        "objective": {"before": before, "after": after},
        "statistics_refitted": _refitted_statistics(alignment.model, model),
        "not_covered": outcome.not_covered,
        "drift": _drift(
            alignment.model,
            model,
            alignment.model.concept_logits_from(state.validation[:, :-1]).detach(),
            model.concept_logits_from(validation[:, :-1]).detach(),
            "val" if "val" in alignment.data.split_sizes else "train",
        ),
    }
    report |= _certificate(edited, state, facts)
    traces = traces_of(alignment, carried, model, retrained=outcome.fresh, solved=outcome.solved)
    if traces is not None:
        report["traces"] = traces
    worse = [stage for stage in after if not after[stage] <= before[stage] * (1 + 1e-9)]
    if worse and outcome.unguarded:
        figures = " and ".join(f"{before[stage]:.4g} to {after[stage]:.4g} ({stage})" for stage in worse)
        report["warning"] = (
            f"the edited objective got worse: {figures}; the step is too long for this network: "
            "use method='auto', or more damping"
        )
    plain: dict[str, Any] = json_ready(report)
    # The features above are those of the old validation samples; where the edit changed these, they are not facts.
    return plain, Facts(design, validation if alignment.same_validation else None, facts.heads, after["labels"])


def _before(carried: ConceptBottleneck, alignment: Alignment, state: EditorState, facts: Facts) -> dict[str, float]:
    """J'_C and J'_Y of the unedited model, from kept values where only some concept labels changed."""
    labels_stay = carried.recipe.regime != "independent" and not alignment.edit.correct_labels
    known = facts.heads is not None and state.label_value is not None
    if known and labels_stay and alignment.same_terms:
        touched = alignment.touched_concepts()
        values = state.frozen.values_under(alignment.concepts, touched, alignment.terms_after)
        return {"concepts": float(values.sum()), "labels": float(state.label_value or 0.0)}
    return Measured(carried, alignment, logits_before(carried, alignment, state)).objectives()


def _known(outcome: Outcome, alignment: Alignment, state: EditorState, carried: ConceptBottleneck) -> Facts:
    """Features of the edited training samples and of the unedited validation samples under the edited model."""
    model, facts, data = outcome.model, outcome.facts, alignment.data
    design = facts.design
    if design is None and _same_parameters(model, carried):
        design = state.edited_design(alignment, model)
    if design is None:
        design = _features(model, alignment.after.inputs)
    if _same_parameters(model, alignment.model):
        return Facts(design, state.validation, facts.heads)
    watched = data.split("val") if "val" in data.split_sizes else data.split("train")
    return Facts(design, _features(model, watched.inputs), facts.heads)


def _features(model: ConceptBottleneck, inputs: Any) -> Tensor:
    return stages.feature_design(model.backbone, inputs)


def _same_parameters(first: ConceptBottleneck, second: ConceptBottleneck) -> bool:
    a, b = first.backbone.state_dict(), second.backbone.state_dict()
    return a.keys() == b.keys() and all(bool((a[name] == b[name]).all()) for name in a)


def logits_before(carried: ConceptBottleneck, alignment: Alignment, state: EditorState) -> Tensor:
    """Concept logits of the unedited model under the new names; those of samples that stay are kept."""
    samples, concepts = alignment.samples, alignment.concepts
    logits = concepts.carry(samples.carry(state.logits).T).T
    if len(samples.come):
        added = alignment.after.select(samples.come)
        logits[samples.come] = carried.concept_logits(added.inputs).double()
    return logits


def _certificate(edited: Measured, state: EditorState, facts: Facts) -> dict[str, Any]:
    model, alignment, design, validation = edited.model, edited.alignment, facts.design, facts.validation
    assert design is not None
    assert validation is not None
    gradient = facts.heads.gradient if facts.heads is not None else edited.concept_gradient(design)
    joint = model.recipe.regime == "joint"
    covers = "both heads"
    if joint:
        covers = "the label head, given the concept head (the joint objective couples them)"
    if not model.recipe.is_linear:
        covers += ", given the backbone's features"
    evidence = Evidence(
        facts.heads.sizes if facts.heads is not None else design.norm(dim=1),
        edited.logits,
        alignment.terms_after,
        gradient,
        edited.bottleneck,
        edited.label_residual,
        float(edited.label_gradient.norm()),
        validation,
        _design_norm(alignment, state, model, design),
    )
    bound = certify(model, evidence, covers, concept_head_fixed=joint)
    scaling = model.target_scaling
    said = bound if scaling is None else bound.of_number(float(scaling[1]))
    out: dict[str, Any] = {"certificate": said.to_dict()}
    if not model.recipe.is_linear:
        out["no_certificate_for_backbone"] = (
            "its objective is not convex, so a small gradient proves nothing about the distance to retraining"
        )
    out["residual"] = {"concept_head": float(gradient.norm()), "label_head": float(edited.label_gradient.norm())}
    return out


def _design_norm(alignment: Alignment, state: EditorState, model: ConceptBottleneck, design: Tensor) -> float:
    """An upper bound on the spectral norm of the edited training features, from kept ones if they are wide."""
    old, new, samples = alignment.model.backbone, model.backbone, alignment.samples
    if not (isinstance(old, Standardise) and isinstance(new, Standardise)) or _has_missing(alignment):
        return spectral_bound(design)
    ratio, offset = old.scale / new.scale, (old.mean - new.mean) / new.scale
    # Rows that stay are x' = ratio · x + offset of kept ones; removing rows lowers the norm.
    stay = math.sqrt(samples.before * state.basis.largest) * max(float(ratio.max()), 1.0)
    stay += math.sqrt(samples.after) * float(offset.norm())
    return math.hypot(stay, float(design[samples.come].norm())) * (1 + 1e-9)


def _has_missing(alignment: Alignment) -> bool:
    """Whether training inputs have gaps: what is put there moves with the statistics, and rows with it."""
    return any(
        isinstance(part.inputs, TensorInputs) and part.inputs.has_missing
        for part in (alignment.before, alignment.after)
    )


def _drift(
    before: ConceptBottleneck, after: ConceptBottleneck, logits_before: Tensor, logits_after: Tensor, where: str
) -> dict[str, Any]:
    """How far predictions moved on the same samples: concepts that both models have, and classes."""
    shared, old, new = _shared(before, after)
    p, q = activate(logits_before, before.layout)[:, old], activate(logits_after, after.layout)[:, new]
    a, b = before.classify(logits_before), after.classify(logits_after)
    measured = [place for place, column in enumerate(old) if column in before.layout.squared.tolist()]
    # Values of continuous concepts in units of the scale they had: that may itself have moved.
    for place in measured:
        low, high = after.low[new[place]], after.high[new[place]]
        value = (q[:, place] - low) / (high - low)
        q[:, place] = before.low[old[place]] + (before.high[old[place]] - before.low[old[place]]) * value
    gap = (p - q).abs()
    present, now = _said(p, before.layout, old), _said(q, before.layout, old)
    flipped = (present != now).sum(0)
    order = flipped.argsort(descending=True, stable=True)[:10].tolist()
    return {
        "split": where,
        "samples": len(logits_before),
        "concept_probability_mean_change": float(gap.mean()) if gap.numel() else 0.0,
        "concept_probability_largest_change": float(gap.max()) if gap.numel() else 0.0,
        "concept_predictions_changed": int(flipped.sum()),
        **_output_drift(a, b, after),
        "most_changed_concepts": {shared[j]: int(flipped[j]) for j in order if int(flipped[j])},
    }


def _output_drift(before: Tensor, after: Tensor, model: ConceptBottleneck) -> dict[str, Any]:
    """How far classes moved, or the predicted number, in its unit."""
    gap = (before - after).abs()
    mean, largest = float(gap.mean()), float(gap.max()) if gap.numel() else 0.0
    if model.predicts_number:
        return {"prediction_mean_change": mean, "prediction_largest_change": largest, "unit": model.target_unit}
    return {
        "class_probability_mean_change": mean,
        "class_probability_largest_change": largest,
        "class_predictions_changed": int((before.argmax(1) != after.argmax(1)).sum()),
    }


def _said(values: Tensor, layout: ConceptLayout, columns: list[int]) -> Tensor:
    """What predictions say, in the columns of shared concepts: yes or no; which value, on its concept's first
    column; nothing of a measured one.
    """
    said = (values >= 0.5).long()
    places = {column: place for place, column in enumerate(columns)}
    for concept in layout.of_type("categorical", "continuous"):
        here = [places[column] for column in concept.columns if column in places]
        if here:
            best = values[:, here].argmax(1)
            said[:, here] = 0
            if concept.type == "categorical":
                said[:, here[0]] = best
    return said


def _shared(before: ConceptBottleneck, after: ConceptBottleneck) -> tuple[list[str], list[int], list[int]]:
    """Concepts that both models have, and where."""
    places = {name: place for place, name in enumerate(after.concept_names)}
    both = [(name, place) for place, name in enumerate(before.concept_names) if name in places]
    return [name for name, _ in both], [place for _, place in both], [places[name] for name, _ in both]


def _refitted_statistics(before: ConceptBottleneck, after: ConceptBottleneck) -> list[str]:
    """In words, which statistics outside the objectives were fitted again on the edited data."""
    words, known = [], dict(before.backbone.named_buffers())
    for name, buffer in after.backbone.named_buffers():
        old = known.get(name)
        fitted = name.endswith(("mean", "scale")) and "running" not in name
        if fitted and old is not None and old.shape == buffer.shape and not torch.equal(old, buffer):
            words.append(f"standardisation ({name})")
    _, old_columns, new_columns = _shared(before, after)
    if not torch.equal(before.positive_weights[old_columns], after.positive_weights[new_columns]):
        words.append("positive weights")
    if not torch.equal(before.low[old_columns], after.low[new_columns]):
        words.append("intervention logits")
    old_target, new_target = before.target_scaling, after.target_scaling
    if old_target is not None and new_target is not None and not torch.equal(old_target, new_target):
        words.append("mean and scale of the target")
    return words
