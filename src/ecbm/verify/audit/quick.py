"""The quick check: is the model what its report says, by figures that are computed again from model and data?

Both heads are strongly convex given the features, so the gradient of the objective at the model's own weights tells
whether they are those that training on this very data gives, and how far off they can be (docs/method.md, "The
certificate"). Weights that somebody has moved have a gradient, however small the move.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from ecbm.edit.alignment import Alignment, align
from ecbm.edit.carry import carry
from ecbm.edit.certificate import Evidence, certify, spectral_bound
from ecbm.edit.edit import Edit
from ecbm.edit.editor import Editor
from ecbm.edit.report import Measured, json_ready
from ecbm.edit.state import EditorState
from ecbm.read.dataset import Dataset
from ecbm.train import stages
from ecbm.train.extraction import seen_through
from ecbm.train.heads.activations import activate
from ecbm.train.heads.objectives import rows_of
from ecbm.train.model import ConceptBottleneck

__all__ = ["Check", "Parent", "Recorded", "check_quickly", "known_seed_noise", "released_with_noise"]

# Gradient norms above which a head is not solved. Features of a frozen backbone come out the same to float64
# rounding everywhere; those of a deep one are float32 and differ between machines.
_SOLVED, _SOLVED_DEEP = 1e-8, 1e-4
# How far recorded figures may be from those that are computed again.
_AGREES, _AGREES_DEEP = 1e-6, 1e-3


@dataclasses.dataclass(frozen=True)
class Recorded:
    """What is on record about a version: how it was made, and figures of its report or training.

    ``solved`` says that both heads were solved to the end.
    """

    method: str
    solved: bool
    residual: Mapping[str, float] | None = None
    objective: Mapping[str, float] | None = None
    drift: Mapping[str, Any] | None = None
    changed: Mapping[str, int] | None = None
    traces: Mapping[str, Any] | None = None


@dataclasses.dataclass(frozen=True)
class Parent:
    """The version before an edit, and the edit."""

    model: ConceptBottleneck
    data: Dataset
    edit: Edit


@dataclasses.dataclass(frozen=True)
class Check:
    """One figure, what it may be at most, and whether it is."""

    name: str
    value: float | None
    limit: float | None
    passed: bool
    words: str

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def check_quickly(
    model: ConceptBottleneck,
    data: Dataset,
    recorded: Recorded | None = None,
    parent: Parent | None = None,
    *,
    seed_noise: float | None = None,
    further: list[Check] | None = None,
) -> dict[str, Any]:
    """Compute again what a report says about a model on its data.

    Parameters
    ----------
    model, data
        The version.
    recorded
        What is on record; ``None`` takes both heads to be solved.
    parent
        The version before, where it is still there: then doing nothing is a control, and drift is measured.
    seed_noise
        How far predictions (rms) move with another seed, where it is known.
    further
        Checks of somebody else that count too.

    Returns
    -------
    dict
        ``verdict``, ``why``, ``edit`` and ``controls`` (with residuals; no membership test is made, so AUCs are
        ``None``), ``checks``, ``certificate``, ``residual``, ``objective``, ``drift``.
    """
    recorded = recorded or Recorded("unknown", solved=True)
    state = Editor(model, data).state
    here = align(state.model, state.data, Edit(), state.data, state.terms)
    figures = _measured(state, here, model)
    deep = not model.recipe.is_linear
    checks = [*(further or []), *_heads(model, figures, recorded, deep), *_agree(figures, recorded, deep)]
    control = None if parent is None else _noop(parent, data)
    failed = [check for check in checks if not check.passed]
    verdict, why = "passed", _passed_words(recorded, model)
    if failed:
        verdict, why = "failed", "; ".join(check.words for check in failed)
    elif not any(check.limit is not None for check in checks):
        verdict = "inconclusive"
        why = "nothing is on record that could be computed again: this test could not have seen it"
    elif control is not None and not control["caught"]:
        verdict = "inconclusive"
        why = "the unedited model would have passed as well: this test could not have seen it"
    nothing = {"auc": None, "low": None, "high": None}
    own = figures["residual"]
    found: dict[str, Any] = json_ready(
        {
            "verdict": verdict,
            "why": why,
            "edit": nothing | {"residual": own},
            "controls": {
                "noop": nothing | (control or {"residual": None, "caught": None}),
                # Retraining to convergence has no gradient by definition, and passes.
                "retrain": nothing | {"residual": {"concept_head": 0.0, "label_head": 0.0}, "caught": False},
            },
            "checks": [check.to_dict() for check in checks],
            **figures,
            "drift": _drift(model, data, recorded, parent, seed_noise),
            "traces": dict(recorded.traces) if recorded.traces is not None else None,
        }
    )
    return found


def _measured(state: EditorState, alignment: Alignment, model: ConceptBottleneck) -> dict[str, Any]:
    """Residuals, objectives and certificate of a model on the data of an alignment, from the data itself."""
    # The editor may have put the network elsewhere; a linear backbone is the model's own.
    design = stages.feature_design(model.backbone, alignment.after.inputs)
    watched = alignment.edited.split("val" if "val" in alignment.edited.split_sizes else "train")
    validation = stages.feature_design(model.backbone, watched.inputs)
    measured = Measured(model, alignment, design @ rows_of(model.concept_head).T)
    gradient = measured.concept_gradient(design)
    joint = model.recipe.regime == "joint"
    evidence = Evidence(
        design.norm(dim=1),
        measured.logits,
        alignment.terms_after,
        gradient,
        measured.bottleneck,
        measured.label_residual,
        float(measured.label_gradient.norm()),
        validation,
        spectral_bound(design),
    )
    covers = "both heads" if model.recipe.is_linear and not joint else "the heads, given the backbone's features"
    bound = certify(model, evidence, covers, concept_head_fixed=joint)
    scaling = model.target_scaling
    said = bound if scaling is None else bound.of_number(float(scaling[1]))
    return {
        "residual": {"concept_head": float(gradient.norm()), "label_head": float(measured.label_gradient.norm())},
        "objective": measured.objectives(),
        "certificate": said.to_dict(),
    }


def _heads(model: ConceptBottleneck, figures: Mapping[str, Any], recorded: Recorded, deep: bool) -> list[Check]:
    """Solved heads have no gradient, unless they were released with noise."""
    if not recorded.solved or released_with_noise(model):
        return []
    limit = _SOLVED_DEEP if deep else _SOLVED
    found = []
    for head, value in figures["residual"].items():
        if head == "concept_head" and model.recipe.regime == "joint":
            continue  # the joint objective couples it with the label head: its own gradient is not 0
        if head == "concept_head" and deep and not model.recipe.resolve_concept_head:
            continue
        fine = value <= max(limit, model.recipe.head_tolerance)
        words = f"{head.replace('_', ' ')}: gradient {value:.1e} at the kept weights"
        words += "" if fine else f", above {limit:.0e}: these are not the weights that its data gives"
        found.append(Check(f"{head} is solved", value, limit, fine, words))
    return found


def _agree(figures: Mapping[str, Any], recorded: Recorded, deep: bool) -> list[Check]:
    """Recorded figures come out again."""
    share, found = _AGREES_DEEP if deep else _AGREES, []
    floor = {"residual": _SOLVED_DEEP if deep else _SOLVED, "objective": share}
    for name, known in (("residual", recorded.residual), ("objective", recorded.objective)):
        for part, was in (known or {}).items():
            value = figures[name].get(part)
            if was is None or value is None:
                continue
            limit = floor[name] + share * abs(was)
            gap = abs(value - was) if math.isfinite(value) else math.inf
            words = f"{name} of {part.replace('_', ' ')}: on record {was:.6g}, computed again {value:.6g}"
            found.append(Check(f"{name} of {part} agrees", gap, limit, gap <= limit, words))
    return found


def _noop(parent: Parent, data: Dataset) -> dict[str, Any] | None:
    """The unedited model by the same measure on the edited data; ``None`` where the edit changes no training
    term.
    """
    state = Editor(parent.model, parent.data).state
    seen = seen_through(parent.model.front, data)
    alignment = align(state.model, state.data, parent.edit, seen, state.terms)
    if not alignment.counts()["terms"]:
        return None
    model = carry(alignment)
    residual = _measured(state, alignment, model)["residual"]
    limit = _SOLVED if model.recipe.is_linear else _SOLVED_DEEP
    return {"residual": residual, "caught": bool(max(residual.values()) > limit)}


def _drift(
    model: ConceptBottleneck,
    data: Dataset,
    recorded: Recorded,
    parent: Parent | None,
    seed_noise: float | None,
) -> dict[str, Any] | None:
    """How far predictions moved, beside what another seed would do to them."""
    known = dict(recorded.drift) if recorded.drift is not None else None
    if parent is None and known is None:
        return None
    noise = 0.0 if model.recipe.is_linear and model.recipe.regime != "joint" else seed_noise
    words = "another seed changes nothing: both heads have one optimum" if noise == 0 else None
    out: dict[str, Any] = {"reported": known, "seed_noise_rms": noise}
    if parent is not None and parent.model.concept_names == model.concept_names:
        watched = data.split("val" if "val" in data.split_sizes else "train")
        pair = [activate(one.concept_logits(watched).double(), one.layout) for one in (parent.model, model)]
        out["rms"] = float((pair[0] - pair[1]).square().mean().sqrt())
        if noise:
            above = out["rms"] > noise
            words = f"predictions moved {'more' if above else 'less'} than another seed would move them"
    out["words"] = words or "how far another seed would move predictions is not known"
    return out


def _passed_words(recorded: Recorded, model: ConceptBottleneck) -> str:
    words = "model, data and record agree"
    if recorded.solved and not released_with_noise(model):
        joint = model.recipe.regime == "joint"
        words += f"; {'the label head is' if joint else 'both heads are'} what training on this data gives"
        given = ["the concept head"] * joint + ["the backbone's features"] * (not model.recipe.is_linear)
        words += f", given {' and '.join(given)}" if given else ""
    traces = recorded.traces
    if traces is not None and (traces["as_before"] or traces["trained_on_without_them"]):
        words += f"; {traces['words']}"
    return words


def released_with_noise(model: ConceptBottleneck) -> bool:
    """Whether the recipe promises certified removal, for which noise is put on solved heads."""
    return getattr(model.recipe, "certified", None) is not None


def known_seed_noise(state: EditorState) -> float | None:
    """What ``auto`` found out about another seed, where it has been kept."""
    return state._figures.get("wandering")
