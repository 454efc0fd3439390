"""``auto`` for deep backbones: the most that a budget buys, cheapest first, and nothing that makes things worse.

1. Both heads exactly on the present features. In a wide network this alone is most of an edit.
2. A curvature step of the backbone. EK-FAC is block-diagonal, so every layer makes the whole correction on its own
   and the sum is far too long: the step is rescaled by the exact Gauss–Newton quadratic,
   length = gᵀΔ / Δᵀ(GGN + α)Δ, and damping and length are chosen by the edited objective on a sample of the data.
3. Gradient steps on the edited data, for the time that is left.

2 and 3 are left out where the backbone cannot feel the edit. After each of them the concept head is solved again on
the new features, and it is kept only if the edited training objective went down and the validation error did not
clearly go up. The label head reads the concepts of the last rung and is solved at the end.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import time
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ecbm.curvature import Vector
from ecbm.edit.heads import SolvedConcepts, rows_of, solve_concepts, solve_label
from ecbm.edit.influence import ConceptPart, add_step, concept_part, gradient_sum
from ecbm.edit.kept import Kept
from ecbm.edit.paper import edited_design
from ecbm.edit.refine import refine
from ecbm.edit.report import edited_concept_objective, edited_objectives
from ecbm.edit.situation import Situation, carry, has_statistics, restandardise
from ecbm.errors import EcbmError
from ecbm.read.inputs import rows_at_once
from ecbm.train import stages
from ecbm.train.convex import concept_objective, with_ones
from ecbm.train.model import ConceptBottleneck

__all__ = ["auto_edit", "retraining_seconds"]

_DAMPINGS = (0.01, 0.1, 1.0)
_LENGTHS = (1.0, 0.5, 0.25)
_SAMPLE = 768
# A fit of EK-FAC, an epoch of gradient steps, and a curvature step on a sample, in forward passes over their data.
_CURVATURE_COST, _EPOCH_COST, _STEP_COST = 8.0, 3.2, 20.0
_SMALLEST_REFINEMENT = 0.1
# Below this change of the gradient of some samples (see _pull) the backbone is not touched.
_PULL_SAMPLE, _FEELABLE = 256, 0.25
# Labels that two models disagree on fall to either as a coin does, if neither is better.
_DEVIATIONS = 2.0
# The learning rate of gradient steps as shares of the recipe's: for the shortest refinement, and from an epoch on.
_GENTLE, _FULL = 0.1, 0.25
# Solving the label head, in evaluations of both objectives.
_LABEL_COST = 36.0
# Solving the whole concept head, in evaluations of its gradient; and the power of the concepts' share with which
# that falls for some of them.
_CONCEPT_COST, _CONCEPTS_POWER = 30.0, 0.4
# The share of the time for the backbone that a first solve of the concept head may take.
_FIRST_SHARE = 0.25


def retraining_seconds(model: ConceptBottleneck, forward: float) -> float:
    """What retraining would cost, of which a budget is a share.

    What the model's own training took, if it knows; a model that was loaded from a folder does not, and its epochs
    are counted at the price of a forward pass here and now.
    """
    training = model.provenance.training
    if float(training.get("seconds", 0.0)) > 0:
        return float(training["seconds"])
    epochs = len(training.get("epochs", ())) or model.recipe.epochs
    return epochs * _EPOCH_COST * forward


@dataclasses.dataclass(frozen=True)
class _Rung:
    """A model on the ladder, with what decides whether it is kept."""

    name: str
    model: ConceptBottleneck
    logits: Tensor
    objective: float
    wrong: Tensor
    """For every known concept label of the validation split, whether it is predicted wrongly."""
    seconds: float

    def errs_more(self, other: _Rung) -> bool:
        """Whether more validation labels are wrong than under ``other``, by more than chance would have it."""
        differ = int((self.wrong != other.wrong).sum())
        return int(self.wrong.sum()) - int(other.wrong.sum()) > _DEVIATIONS * math.sqrt(differ)

    def row(self) -> dict[str, Any]:
        return {
            "what": self.name,
            "edited_objective": self.objective,
            "validation_error": float(self.wrong.sum()) / max(len(self.wrong), 1),
            "seconds": self.seconds,
        }


class _Ladder:
    def __init__(self, situation: Situation, kept: Kept, limit: float, started: float) -> None:
        self.situation, self.kept, self.limit, self.started = situation, kept, limit, started
        self.spent_before = sum(kept.seconds.values())
        self.rungs: list[_Rung] = []
        self.tried: list[dict[str, Any]] = []
        self.not_covered: dict[str, str] = {}

    @property
    def left(self) -> float:
        """Seconds left. Fitting what is kept for later edits is not counted."""
        fitting = sum(self.kept.seconds.values()) - self.spent_before
        return self.limit - (time.monotonic() - self.started - fitting)

    def judge(self, name: str, solved: SolvedConcepts, started: float, features: Tensor | None = None) -> _Rung:
        """What decides about a solved rung; ``features`` are the validation split's, where they are at hand."""
        objective = edited_concept_objective(solved.model, self.situation, solved.logits)
        wrong = self._wrong(solved.model, features)
        return _Rung(name, solved.model, solved.logits, objective, wrong, time.monotonic() - started)

    def _wrong(self, model: ConceptBottleneck, features: Tensor | None) -> Tensor:
        """Which known concept labels of the validation split are predicted wrongly; without a split, none.

        Errors and not the loss: exactly solved heads are surer of themselves on a better backbone, and the loss
        would charge the backbone for it.
        """
        edited = self.situation.edited
        if "val" not in edited.split_sizes:
            return torch.zeros(0, dtype=torch.bool)
        val = edited.split("val")
        known = ~val.concepts.isnan()
        logits = model.concept_logits(val.inputs) if features is None else model.concept_logits_from(features)
        return ((logits > 0) != (val.concepts >= 0.5))[known]

    def keep_if_better(self, rung: _Rung) -> bool:
        """Keep a rung whose edited objective is lower and whose validation error is not clearly higher."""
        last = self.rungs[-1] if self.rungs else None
        better = last is None or (rung.objective < last.objective and not rung.errs_more(last))
        self.tried.append({**rung.row(), "kept": better})
        if better:
            self.rungs.append(rung)
        return better


def auto_edit(situation: Situation, kept: Kept, budget: float) -> tuple[ConceptBottleneck, dict[str, Any]]:
    """Climb the ladder within ``budget``: a share of the cost of retraining, or seconds."""
    started = time.monotonic()
    carried = carry(situation, refit_statistics=True)
    forward = _forward_seconds(carried, situation)
    limit = budget if budget >= 1 else budget * retraining_seconds(kept.model, forward)
    ladder = _Ladder(situation, kept, limit, started)
    design = edited_design(situation, kept, carried)
    unsolved = SolvedConcepts(carried, design @ rows_of(carried.concept_head).T, 0)
    # A rung ends with a pass over both splits and the concept head; the label head is solved after the last one.
    label_seconds = _label_seconds(unsolved, situation)
    ladder.limit -= label_seconds
    watched = situation.edited.split_sizes.get("val", 0) / len(situation.after)
    solving = _concept_seconds(unsolved, situation, design)
    closing = (1 + watched) * forward + solving

    def solve_first() -> None:
        mark = time.monotonic()
        concepts = solve_concepts(carried, situation, design, tolerance=carried.recipe.head_tolerance)
        ladder.keep_if_better(ladder.judge("heads exactly", concepts, mark, _validation_features(ladder)))

    if later := _better_solved_once(ladder, solving, closing, _SMALLEST_REFINEMENT * _EPOCH_COST * forward):
        ladder.keep_if_better(ladder.judge("as it was", unsolved, time.monotonic(), _validation_features(ladder)))
    else:
        solve_first()
    why = _climb(ladder, forward, closing)
    if later and len(ladder.rungs) == 1:
        ladder.rungs.clear()  # exact heads are kept whatever the model before the edit was like
        solve_first()
    ladder.limit += label_seconds
    best = ladder.rungs[-1]
    inverses = kept.label_inverses_for(situation.columns, len(carried.concept_names))
    model = solve_label(best.model, situation, best.logits, inverses, 0).model
    settings = {
        "why": why,
        "budget_seconds": ladder.limit,
        "ladder": ladder.tried,
        "kept_rung": best.name,
    }
    if any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.backbone.modules()):
        ladder.not_covered["BatchNorm statistics"] = "frozen in every edit; they hold traces of removed samples"
    settings["not covered"] = ladder.not_covered
    return model, settings


def _better_solved_once(ladder: _Ladder, solving: float, closing: float, least: float) -> bool:
    """Whether solving the concept head before the backbone moves would take much of the time that is left for that.

    It is solved after the backbone in any case. Solving it before tells what the heads alone give.
    """
    situation = ladder.situation
    if situation.model.recipe.regime == "joint":
        return False
    touched = len(situation.touched_columns()) / len(situation.edited.concept_names)
    room = ladder.left - closing
    return room > least and solving * touched**_CONCEPTS_POWER > _FIRST_SHARE * room


def _concept_seconds(concepts: SolvedConcepts, situation: Situation, design: Tensor) -> float:
    """What solving the whole concept head on moved features will take, from one gradient of it."""
    started, terms = time.monotonic(), situation.terms_after
    head = rows_of(concepts.model.concept_head)
    concept_objective(
        design, terms.targets.double(), terms.weights.double(), head, situation.model.recipe.concept_regularisation
    )
    return _CONCEPT_COST * (time.monotonic() - started)


def _label_seconds(concepts: SolvedConcepts, situation: Situation) -> float:
    """What solving the label head will take, from one gradient of it."""
    started = time.monotonic()
    edited_objectives(concepts.model, situation, concepts.logits)
    return _LABEL_COST * (time.monotonic() - started)


def _validation_features(ladder: _Ladder) -> Tensor | None:
    """Kept ones, where the edit moved neither them nor the samples."""
    situation = ladder.situation
    if has_statistics(situation.model.backbone) and not situation.same_samples:
        return None
    edit = situation.edit
    untouched = not edit.remove_samples and edit.add_samples is None
    return ladder.kept.validation[:, :-1] if untouched else None


def _forward_seconds(model: ConceptBottleneck, situation: Situation) -> float:
    """A forward pass over the edited training samples, timed on some of them."""
    count = min(512, len(situation.after))
    sample = situation.after.inputs.subset(range(count))
    sample.take(range(count))  # pictures are decoded once, and that is not part of a pass
    started = time.monotonic()
    stages.extract_features(model.backbone, sample)
    return (time.monotonic() - started) * len(situation.after) / count


def _climb(ladder: _Ladder, forward: float, closing: float) -> str:
    situation = ladder.situation
    if situation.model.recipe.regime == "joint":
        return "both heads, jointly; the backbone of a joint model is left as it is"
    if situation.aligned and len(situation.touched_columns()) == 0:
        return "both heads exactly; the edit changes nothing that the backbone was trained on"
    fitted = ladder.kept.has_curvature("true")
    sampled = min(1.0, _SAMPLE / len(ladder.situation.after))
    step_cost = closing + _STEP_COST * sampled * forward
    if ladder.left < closing + _SMALLEST_REFINEMENT * _EPOCH_COST * forward:
        return "both heads exactly; the budget leaves no room for the backbone"
    pull = _pull(ladder)
    if pull < _FEELABLE:
        return (
            f"both heads exactly; the edit changes the backbone's gradient on {_PULL_SAMPLE} samples by {pull:.2f} "
            "of its size, which is drawing noise, so the backbone is left as it is"
        )
    words = ["both heads exactly"]
    # In every case measured so far gradient steps paid more by the second, so the step may take a sixth at most.
    if ladder.left > 6 * step_cost + (0.0 if fitted else _CURVATURE_COST * forward):
        rung = _curvature_rung(ladder, words)
        if rung is None or not ladder.keep_if_better(rung):
            words.append("a rescaled curvature step did not pay")
        else:
            words.append("a rescaled curvature step")
    available = ladder.left - closing
    if available < _SMALLEST_REFINEMENT * _EPOCH_COST * forward:
        return "; ".join([*words, "the rest of the budget is too short for gradient steps"])
    if not ladder.keep_if_better(_refinement_rung(ladder, available, available / (_EPOCH_COST * forward))):
        return "; ".join([*words, "gradient steps did not pay and were dropped: what was there is as good"])
    return "; ".join([*words, "gradient steps for the time that was left"])


def _finish(ladder: _Ladder, name: str, part: ConceptPart, started: float) -> _Rung:
    """Put a moved backbone into the last rung's model and solve the concept head, from the moved one, on it."""
    last = ladder.rungs[-1].model
    moved = copy.copy(last)
    moved._modules = dict(last._modules)
    moved.backbone, moved.concept_head = part.backbone.eval(), part.concept_head
    design = with_ones(stages.extract_features(moved.backbone, ladder.situation.after.inputs))
    tolerance = moved.recipe.head_tolerance
    solved = solve_concepts(moved, ladder.situation, design, features_moved=True, tolerance=tolerance)
    return ladder.judge(name, solved, started)


# -- the curvature step --------------------------------------------------------------------------------------


def _curvature_rung(ladder: _Ladder, words: list[str]) -> _Rung | None:
    started = time.monotonic()
    situation, kept = ladder.situation, ladder.kept
    last = ladder.rungs[-1].model
    part = concept_part(last)
    try:
        curvature = kept.concept_curvature("true")
    except EcbmError as error:
        words.append(f"no curvature: {error}")
        return None
    rows = _some_rows(ladder, _SAMPLE)
    new, old = _backbone_gradients(part, situation, kept, rows)
    gradient = {name: value - old[name] for name, value in new.items()}
    ladder.not_covered |= curvature.report()["uncovered"]
    covered = curvature.restrict(gradient)
    if not covered:
        return None
    inputs = situation.after.inputs.take(rows)
    terms = situation.terms_after[rows]
    alpha = kept.concept_l2

    def objective(candidate: ConceptPart) -> float:
        with torch.no_grad():
            loss = functional.binary_cross_entropy_with_logits(
                _logits(candidate, inputs), terms.targets, weight=terms.weights, reduction="sum"
            )
            squares = sum(float(p.double().square().sum()) for p in candidate.backbone.parameters())
        return float(loss) / len(rows) + 0.5 * alpha * squares

    least, found, chosen = objective(part), None, (0.0, 0.0)
    for damping, direction in zip(_DAMPINGS, curvature.solve_many(covered, _DAMPINGS, relative=True), strict=True):
        bend = _gauss_newton_form(part, inputs, terms.weights, direction) + alpha * _dot(direction, direction)
        if not bend > 0:
            continue
        unit = _dot(gradient, direction) / bend
        for share in _LENGTHS:
            trial = copy.deepcopy(part)
            add_step(trial, direction, -share * unit)
            value = objective(trial)
            if value < least:
                least, found, chosen = value, trial, (damping, share * unit)
    if found is None:
        return None
    name = f"curvature step of the backbone (damping {chosen[0]:g}, length {chosen[1]:.3g}), heads exactly"
    return _finish(ladder, name, found, started)


def _some_rows(ladder: _Ladder, count: int) -> Tensor:
    generator = torch.Generator().manual_seed(ladder.situation.model.recipe.seed)
    return torch.randperm(len(ladder.situation.after), generator=generator)[:count].sort().values


def _backbone_gradients(part: ConceptPart, situation: Situation, kept: Kept, rows: Tensor) -> tuple[Vector, Vector]:
    """Data gradients of J' and J over the backbone, as means over some edited training rows and the old ones that
    correspond: the same samples where they stay, so that noise of the drawing cancels, and as large a share of the
    removed ones. Both are taken in the coordinates of the edited data's standardisation.
    """
    new = gradient_sum(part, situation.after.inputs, situation.terms_after, rows)
    back = torch.full((len(situation.after),), -1)
    back[situation.rows[1]] = situation.rows[0]
    gone = torch.ones(len(kept.train), dtype=torch.bool)
    gone[situation.rows[0]] = False
    removed = gone.nonzero().flatten()
    share = round(len(removed) * len(rows) / len(situation.after))
    drawn = removed[torch.linspace(0, max(len(removed) - 1, 0), share).long()]
    present = torch.cat([back[rows][back[rows] >= 0], drawn])
    original = kept.part
    if not situation.same_samples and has_statistics(kept.model.backbone):
        original = concept_part(restandardise(kept.model, situation.after))
    old = gradient_sum(original, kept.train.inputs, kept.terms, present)

    def mean(total: Vector, count: int) -> Vector:
        return {name: value / max(count, 1) for name, value in total.items() if name.startswith("backbone.")}

    return mean(new, len(rows)), mean(old, len(present))


def _pull(ladder: _Ladder) -> float:
    """How strongly the edit pulls at the backbone: the change of its gradient, in units of the old one's.

    Both are of the same few samples. Training ended where the gradient of all samples is small, so that of a few
    is mostly the noise of drawing them: an edit that changes it by little is one the backbone cannot feel.
    """
    part = concept_part(ladder.rungs[-1].model)
    new, old = _backbone_gradients(part, ladder.situation, ladder.kept, _some_rows(ladder, _PULL_SAMPLE))
    change = {name: value - old[name] for name, value in new.items()}
    return math.sqrt(_dot(change, change) / max(_dot(old, old), 1e-300))


def _gauss_newton_form(part: ConceptPart, inputs: Tensor, weights: Tensor, direction: Vector) -> float:
    """Δᵀ GGN Δ on a sample: (1/n) Σ w p (1 − p) (JΔ)², with JΔ by a central difference of the logits."""
    size = _dot(direction, direction) ** 0.5
    scale = sum(float(part.get_parameter(name).detach().double().square().sum()) for name in direction) ** 0.5
    step = 1e-3 * max(scale, 1e-3) / max(size, 1e-30)
    ahead, behind = copy.deepcopy(part), copy.deepcopy(part)
    add_step(ahead, direction, step)
    add_step(behind, direction, -step)
    with torch.no_grad():
        slope = (_logits(ahead, inputs).double() - _logits(behind, inputs).double()) / (2 * step)
        p = torch.sigmoid(_logits(part, inputs).double())
    return float((weights * p * (1 - p) * slope.square()).sum()) / len(inputs)


def _logits(part: ConceptPart, inputs: Tensor) -> Tensor:
    """Of a sample, shown to the network in pieces."""
    return torch.cat([part(piece) for piece in inputs.split(rows_at_once(tuple(inputs.shape[1:])))])


def _dot(first: Vector, second: Vector) -> float:
    return sum(float((first[name].double() * value.double()).sum()) for name, value in second.items())


# -- gradient steps ------------------------------------------------------------------------------------------


def _refinement_rung(ladder: _Ladder, seconds: float, epochs: float) -> _Rung:
    """Gradient steps for some seconds, about so many epochs. A few steps at a high rate would only do damage."""
    started = time.monotonic()
    last = ladder.rungs[-1].model
    rate = (_GENTLE + (_FULL - _GENTLE) * min(epochs, 1.0)) * last.recipe.peak_learning_rate
    part, done = refine(last, ladder.situation, ladder.situation.after.inputs, seconds=seconds, learning_rate=rate)
    return _finish(ladder, f"{done:.2g} gradient epochs, heads exactly", part, started)
