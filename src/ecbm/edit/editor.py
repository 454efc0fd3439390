"""The :class:`Editor`: one engine that applies any edit by any method and reports what it did."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ecbm.curvature.losses import Fisher
from ecbm.edit.auto import auto_edit
from ecbm.edit.certificate import certify, spectral_bound
from ecbm.edit.changes import Changes, changes_of
from ecbm.edit.edit import Edit
from ecbm.edit.frozen import solve_frozen
from ecbm.edit.heads import solve_heads
from ecbm.edit.kept import Kept
from ecbm.edit.notebook import editor_html, result_html, result_words
from ecbm.edit.paper import InfluenceOptions, edited_design, influence_edit
from ecbm.edit.report import (
    EditedObjectives,
    drift_between,
    edited_objectives,
    head_gradient,
    json_ready,
    refitted_statistics,
)
from ecbm.edit.situation import Situation, carry, situation_of
from ecbm.errors import InputError, unknown_name
from ecbm.read.dataset import Dataset
from ecbm.train import stages
from ecbm.train.backbones import Standardise
from ecbm.train.convex import with_ones
from ecbm.train.model import ConceptBottleneck
from ecbm.train.train import train

__all__ = ["METHODS", "EditResult", "Editor"]

METHODS = ("auto", "exact", "ekfac", "hessian", "retrain")


@dataclasses.dataclass(frozen=True)
class EditResult:
    """A new model, a new dataset and the report (plain JSON values); the editor's own are untouched."""

    model: ConceptBottleneck
    data: Dataset
    report: dict[str, Any]

    def __repr__(self) -> str:
        return f"<EditResult: {result_words(self.report)}>"

    def _repr_html_(self) -> str:
        return result_html(self.report)


class Editor:
    """Edits a trained model. Features and curvature are computed on first use and kept for later edits.

    Parameters
    ----------
    model
        A trained model.
    data
        The dataset it was trained on (checked by fingerprint).

    Examples
    --------
    >>> import ecbm
    >>> data = ecbm.datasets.breast_cancer()
    >>> model = ecbm.train(data, ecbm.Recipe(backbone="linear"))
    >>> sample = data.split("train").ids[0]
    >>> result = ecbm.Editor(model, data).apply(ecbm.Edit(remove_samples=[sample]))
    >>> result.report["certificate"]["class_predictions_that_could_differ"]
    0
    """

    def __init__(self, model: ConceptBottleneck, data: Dataset) -> None:
        _check_kinds(model, data)
        if model.provenance.data_fingerprint and model.provenance.data_fingerprint != data.fingerprint:
            raise InputError(
                "the model was trained on other data (fingerprints differ); pass the dataset it was trained on, or "
                "result.data after an edit"
            )
        if model.concept_names != data.concept_names or model.class_names != data.class_names:
            raise InputError(
                "concepts or classes of the model and the data differ; pass the data it was trained on"
            )
        self.model, self.data = model, data
        self.kept = Kept(model, data)

    def __repr__(self) -> str:
        return f"Editor({self.model!r}, {self.data!r}, kept: {', '.join(self.kept.seconds) or 'nothing yet'})"

    def _repr_html_(self) -> str:
        return editor_html(self.model, self.data, list(self.kept.seconds))

    # -- the public verbs ----------------------------------------------------------------------------------

    def apply(
        self,
        edit: Edit | Sequence[Edit],
        method: str = "auto",
        *,
        budget: float = 0.05,
        fisher: Fisher = "true",
        damping: float | None = None,
        relative: bool = True,
        gradient: str = "difference",
        warm_start: bool = False,
    ) -> EditResult:
        """Apply an edit, or several as one step.

        Parameters
        ----------
        edit
            An :class:`Edit`, or a sequence of edits that are applied one after another and solved once.
        method
            ``"auto"``: the best we know within ``budget``. ``"exact"``: both heads to machine precision, the
            backbone untouched. ``"ekfac"``, ``"hessian"``: the paper's influence steps. ``"retrain"``: the ground
            truth.
        budget
            For ``auto`` with a deep backbone: a share of the cost of retraining (below 1), or seconds (1 and more).
        fisher, damping, relative, gradient
            For the influence methods (:class:`~ecbm.edit.paper.InfluenceOptions`).
        warm_start
            For ``retrain``: start from the present backbone instead of fresh weights.
        """
        if method not in METHODS:
            raise unknown_name("method", method, METHODS)
        if not isinstance(budget, int | float) or not 0 < budget < math.inf:
            raise InputError(f"budget must be positive and finite (a share below 1, or seconds), got {budget!r}")
        options = InfluenceOptions(fisher, damping, relative, gradient)
        started = time.monotonic()
        edited, changes = self._edited(edit)
        situation = situation_of(self.model, self.data, changes.edit, edited, self.kept.terms)
        seconds: dict[str, float] = {"prepare": time.monotonic() - started}
        if not changes.edit:
            return self._nothing(situation, method, seconds, changes)
        before = dict(self.kept.seconds)
        mark = time.monotonic()
        settings: dict[str, Any] = {}
        if method == "retrain":
            model = train(
                edited, self.model.recipe_for(edited.concept_names), start=carry(situation) if warm_start else None
            )
            settings = {"warm_start": warm_start}
        elif method == "exact" or (method == "auto" and self.model.recipe.is_linear):
            model, settings = self._exact(situation)
        elif method == "auto":
            model, settings = auto_edit(situation, self.kept, budget)
        else:
            model, settings = influence_edit(method, situation, self.kept, options)
        fitted = {name: cost - before.get(name, 0.0) for name, cost in self.kept.seconds.items()}
        fitted = {name: cost for name, cost in fitted.items() if cost > 0}
        seconds |= {f"fit {name} (kept for later edits)": cost for name, cost in fitted.items()}
        seconds["edit"] = time.monotonic() - mark - sum(fitted.values())
        report = self._report(situation, model, method, settings, seconds) | {"notes": changes.notes()}
        model.provenance = dataclasses.replace(model.provenance, data_fingerprint=edited.fingerprint)
        return EditResult(model, edited, report)

    def preview(self, edit: Edit | Sequence[Edit], method: str = "auto", **options: Any) -> dict[str, Any]:
        """The report of :meth:`apply`, without keeping anything."""
        return self.apply(edit, method, **options).report

    def follow(self, result: EditResult) -> Editor:
        """An editor for the next edit, on what the last one gave (periodic editing).

        Curvature that was fitted is taken over as long as it is not stale (:class:`~ecbm.edit.kept.Kept`).
        """
        editor = Editor(result.model, result.data)
        editor.kept = self.kept.follow(result.model, result.data)
        return editor

    # -- methods -------------------------------------------------------------------------------------------

    def _edited(self, edit: Edit | Sequence[Edit]) -> tuple[Dataset, Changes]:
        if isinstance(edit, Edit):
            return edit.apply_to(self.data), changes_of(edit, self.data)
        edited = self.data
        for one in _edits(edit):
            edited = one.apply_to(edited)
        return edited, changes_of(Edit.between(self.data, edited), self.data)

    def _exact(self, situation: Situation) -> tuple[ConceptBottleneck, dict[str, Any]]:
        why = "frozen backbone: both heads are convex, so the edit can equal retraining"
        if self.model.recipe.regime == "joint":
            why = "both heads together, to the nearest minimum of the joint objective, which is not convex"
        if self.model.recipe.is_linear:
            warm = solve_frozen(situation, self.kept)
            if warm is not None:
                return warm.model, {"why": why, "newton_steps": warm.newton_steps}
        carried = carry(situation)
        design = edited_design(situation, self.kept, carried)
        basis = self.kept.basis.for_rows(situation.rows, design)
        inverses = self.kept.label_inverses_for(situation.columns, len(carried.concept_names))
        leading = self.kept.leading_for(situation.columns, len(carried.concept_names))
        solved = solve_heads(carried, situation, design, basis=basis, leading=leading, inverses=inverses)
        if not self.model.recipe.is_linear and self.model.recipe.regime != "joint":
            why = "heads only: both re-solved exactly on the present backbone's features"
        return solved.model, {"why": why, "newton_steps": solved.newton_steps}

    def _nothing(
        self, situation: Situation, method: str, seconds: dict[str, float], changes: Changes
    ) -> EditResult:
        """An edit that changes nothing is the identity, bit for bit, whatever the method."""
        why = changes.notes() or ["the edit is empty: nothing was done"]
        report = {
            "method": method,
            "edit": str(situation.edit),
            "changed": {"terms": 0, "samples": 0, "concepts": 0},
            "settings": {"why": why[0]},
            "notes": changes.notes(),
            "seconds": seconds,
        }
        return EditResult(self.model, self.data, report)

    # -- the report ----------------------------------------------------------------------------------------

    def _report(
        self,
        situation: Situation,
        model: ConceptBottleneck,
        method: str,
        settings: dict[str, Any],
        seconds: dict[str, float],
    ) -> dict[str, Any]:
        mark = time.monotonic()
        kept = self.kept
        carried = carry(situation)
        same_backbone = _same_parameters(model, carried)
        design = self._design_for(model, situation, reuse=same_backbone)
        before = edited_objectives(carried, situation, self._logits_before(carried, situation)).values
        logits = model.concept_logits_from(design[:, :-1]).detach()
        reached = edited_objectives(model, situation, logits)
        after = reached.values
        split = "val" if "val" in self.data.split_sizes else "train"
        watched = self.data.split(split)
        validation = with_ones(stages.extract_features(model.backbone, watched.inputs))
        with_old = kept.validation if split == "val" else kept.design
        drift = drift_between(
            self.model,
            model,
            self.model.concept_logits_from(with_old[:, :-1]).detach(),
            model.concept_logits_from(validation[:, :-1]).detach(),
            split,
        )
        not_covered = settings.pop("not covered", {})
        if kept.staleness:
            settings["curvature_staleness"] = dict(kept.staleness)
        report: dict[str, Any] = {
            "method": method,
            "edit": str(situation.edit),
            "changed": situation.counts(),
            "settings": settings,
            "objective": {"before": before, "after": after},
            "statistics_refitted": refitted_statistics(self.model, model),
            "not_covered": not_covered,
            "drift": drift,
        }
        report |= self._certificate(situation, model, design, logits, reached, validation)
        worse = [stage for stage in after if not after[stage] <= before[stage] * (1 + 1e-9)]
        if worse and method in ("ekfac", "hessian"):
            figures = " and ".join(f"{before[stage]:.4g} to {after[stage]:.4g} ({stage})" for stage in worse)
            report["warning"] = (
                f"the edited objective got worse: {figures}; the step is too long for this network: "
                "use method='auto', or more damping"
            )
        seconds["report"] = time.monotonic() - mark
        report["seconds"] = seconds
        plain: dict[str, Any] = json_ready(report)
        return plain

    def _logits_before(self, carried: ConceptBottleneck, situation: Situation) -> Tensor:
        """Concept logits of the unedited model under the new names; those of samples that stay are kept."""
        (rows_old, rows_new), (old, new) = situation.rows, situation.columns
        if situation.aligned:
            return self.kept.logits
        logits = torch.zeros(len(situation.after), len(carried.concept_names), dtype=torch.float64)
        logits[rows_new[:, None], new[None, :]] = self.kept.logits[rows_old[:, None], old[None, :]]
        fresh = torch.ones(len(logits), dtype=torch.bool)
        fresh[rows_new] = False
        if bool(fresh.any()):
            logits[fresh] = carried.concept_logits(
                situation.after.select(fresh.nonzero().flatten()).inputs
            ).double()
        return logits

    def _design_for(self, model: ConceptBottleneck, situation: Situation, reuse: bool) -> Tensor:
        if reuse:
            return edited_design(situation, self.kept, model)
        return with_ones(stages.extract_features(model.backbone, situation.after.inputs))

    def _certificate(
        self,
        situation: Situation,
        model: ConceptBottleneck,
        design: Tensor,
        logits: Tensor,
        reached: EditedObjectives,
        validation: Tensor,
    ) -> dict[str, Any]:
        gradient = head_gradient(design, logits, situation, model)
        label_gradient = reached.label_gradient
        joint = model.recipe.regime == "joint"
        covers = "both heads"
        if joint:
            covers = "the label head, given the concept head (the joint objective couples them)"
        if not model.recipe.is_linear:
            covers += ", given the backbone's features"
        bound = certify(
            model,
            design,
            gradient,
            reached.read,
            situation.after.labels,
            float(label_gradient.norm()),
            validation,
            covers,
            concept_head_fixed=joint,
            design_norm=self._design_norm(situation, model, design),
        )
        out: dict[str, Any] = {"certificate": bound.to_dict()}
        if not model.recipe.is_linear:
            out["no_certificate_for_backbone"] = (
                "its objective is not convex, so a small gradient proves nothing about the distance to retraining"
            )
        out["residual"] = {"concept_head": float(gradient.norm()), "label_head": float(label_gradient.norm())}
        return out

    def _design_norm(self, situation: Situation, model: ConceptBottleneck, design: Tensor) -> float:
        """An upper bound on the spectral norm of the edited training features, from kept ones if they are wide."""
        old, new = self.model.backbone, model.backbone
        if not (isinstance(old, Standardise) and isinstance(new, Standardise)):
            return spectral_bound(design)
        kept = self.kept
        fresh = torch.ones(len(design), dtype=torch.bool)
        fresh[situation.rows[1]] = False
        ratio, offset = old.scale / new.scale, (old.mean - new.mean) / new.scale
        # Rows that stay are x' = ratio · x + offset of kept ones; removing rows lowers the norm.
        stay = math.sqrt(len(kept.design) * kept.basis.largest) * max(float(ratio.max()), 1.0)
        stay += math.sqrt(len(design)) * float(offset.norm())
        return math.hypot(stay, float(design[fresh].norm())) * (1 + 1e-9)


def _check_kinds(model: Any, data: Any) -> None:
    if not isinstance(model, ConceptBottleneck) or not isinstance(data, Dataset):
        given = f"{type(model).__name__} and {type(data).__name__}"
        raise InputError(f"Editor: expected a model and the dataset it was trained on, got {given}")


def _edits(given: Any) -> list[Edit]:
    edits = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else [given]
    for one in edits:
        if not isinstance(one, Edit):
            raise InputError(f"expected an Edit or a list of them, got {type(one).__name__}")
    return edits


def _same_parameters(first: ConceptBottleneck, second: ConceptBottleneck) -> bool:
    a, b = first.backbone.state_dict(), second.backbone.state_dict()
    return a.keys() == b.keys() and all(bool((a[name] == b[name]).all()) for name in a)
