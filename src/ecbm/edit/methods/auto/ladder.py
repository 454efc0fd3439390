"""The ladder that ``auto`` climbs on a deep backbone.

1. Both heads exactly on the present features. In a wide network this alone is most of an edit, and it is what every
   later rung is compared with.
2. Moves of the backbone (:mod:`ecbm.edit.methods.auto.moves`), as far as the budget goes and only where the edit
   moves predictions more than another seed would. After each the concept head is solved again on the new features,
   and the rung is kept only if it is better (:mod:`ecbm.edit.methods.auto.guard`).
3. The label head, which reads the concepts of the last rung, at the end.

Work is counted (:mod:`ecbm.edit.methods.auto.cost`), never timed, unless a clock was asked for.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ecbm.edit.alignment import Alignment
from ecbm.edit.carry import carry, has_statistics
from ecbm.edit.heads import SolvedConcepts, solve_concepts, solve_label, step_label, unsolved_concepts
from ecbm.edit.methods.auto.cost import CostModel
from ecbm.edit.methods.auto.guard import Rung, judge
from ecbm.edit.methods.auto.leave import CLIMB_FROM, pull, wandering
from ecbm.edit.methods.auto.rungs import Move
from ecbm.edit.methods.base import Options, Outcome
from ecbm.edit.state import EditorState, Facts
from ecbm.train import stages
from ecbm.train.model import ConceptBottleneck

__all__ = ["Ladder", "climb"]

# While climbing, concept heads are solved to this gradient: no prediction that decides anything changes below it.
_LOOSE = 1e-4
_LABEL_STEPS = 2
# Closing solves to the end may take the first share of a budget, a loose solve of the concept head the second.
# Beyond that the backbone makes more of the work: on CUB (112 concepts, 200 classes) solving both would take 20 %
# of retraining.
_THOROUGH, _SOLVED = 0.25, 0.3


class Ladder:
    """One climb: the rungs so far and the work that is left."""

    def __init__(self, alignment: Alignment, state: EditorState, options: Options, cost: CostModel) -> None:
        self.alignment, self.state, self.cost = alignment, state, cost
        self.spent = 0.0
        self.deadline: float | None = None
        self.limit = options.budget * cost.retraining
        if options.seconds is not None:
            self.deadline = time.monotonic() + options.seconds
            self.limit = options.seconds * _operations_per_second(alignment, cost)
        self.rungs: list[Rung] = []
        self.tried: list[dict[str, Any]] = []
        self.not_covered: dict[str, str] = {}

    @property
    def last(self) -> Rung:
        return self.rungs[-1]

    @property
    def left(self) -> float:
        """Work that is left for moving the backbone: solving the heads on what it then gives is set aside."""
        cost = self.cost
        labels = cost.polishing + cost.labels if self.thorough else cost.label_steps(_LABEL_STEPS)
        concepts = cost.solving if self.solves else cost.concept_work(2 * cost.concepts)
        return self.limit - self.spent - concepts - labels

    @property
    def solves(self) -> bool:
        """Whether the concept head is solved again after a move, or left as the move's own steps trained it."""
        return self.cost.solving <= _SOLVED * self.limit

    @property
    def thorough(self) -> bool:
        """Whether the heads of a moved backbone are solved to the recipe's tolerance, or as far as is cheap."""
        return self.cost.solving + self.cost.polishing + self.cost.labels <= _THOROUGH * self.limit

    @property
    def _loose(self) -> float:
        """While climbing; a joint model's heads are solved together, to the end."""
        return max(_LOOSE, self.alignment.model.recipe.head_tolerance)

    def start(self) -> None:
        """The first rung: the concept head exactly, on the present features."""
        alignment, state = self.alignment, self.state
        carried = carry(alignment)
        design = state.edited_design(alignment, carried)
        tolerance, basis = self._loose, state.basis.for_design(design)
        solved = solve_concepts(carried, alignment, design, basis=basis, tolerance=tolerance)
        work = self.cost.concept_work(solved.work)
        validation = self._validation(carried.backbone, same=True)
        self._add(
            judge("heads exactly", solved, alignment, design, validation, {"tolerance": tolerance}, work), True
        )

    def move(self, move: Move, work: float) -> bool:
        """Try a move of the backbone for some work; the rung is kept if it is better than the last one."""
        found = move.run(self, work)
        if found is None:
            return False
        last, alignment = self.last.model, self.alignment
        moved = copy.copy(last)
        moved._modules = dict(last._modules)
        moved.backbone, moved.concept_head = found.part.backbone.eval(), found.part.concept_head.cpu()
        design, validation = found.design, found.validation
        if design is None:
            design = stages.feature_design(moved.backbone, alignment.after.inputs)
            validation = self._validation(moved.backbone)
        if not bool(design.isfinite().all()):
            self.spent += found.work
            self.tried.append({"what": move.name, **found.settings, "edited_objective": None, "kept": False})
            return False
        tolerance = self._loose if self.solves else None
        solved, closing = self._closed(moved, design, tolerance)
        settings = found.settings | {"tolerance": tolerance}
        rung = judge(move.name, solved, alignment, design, validation, settings, found.work + closing)
        return self._add(rung, rung.better_than(self.last))

    def _closed(
        self, moved: ConceptBottleneck, design: Tensor, tolerance: float | None
    ) -> tuple[SolvedConcepts, float]:
        """The concept head on moved features, and the work."""
        if tolerance is None:
            solved = unsolved_concepts(moved, self.alignment, design)
            return solved, self.cost.concept_work(solved.work)
        solved = solve_concepts(moved, self.alignment, design, features_moved=True, tolerance=tolerance)
        return solved, self.cost.basis + self.cost.concept_work(solved.work)

    def finish(self) -> tuple[ConceptBottleneck, str, bool]:
        """The last rung's model with both heads closed, in words how far they were solved, and whether to the end.

        On the present features always to the recipe's tolerance, whatever the budget: that much an edit is worth.
        """
        alignment, best = self.alignment, self.last
        inverses, moved = self.state.label_inverses(alignment), len(self.rungs) > 1
        if moved and not self.thorough and inverses is not None:
            stepped = step_label(best.model, alignment, best.logits, inverses, _LABEL_STEPS)
            self.spent += self.cost.label_work(stepped.work)
            tolerance = best.settings["tolerance"]
            concepts = "as trained" if tolerance is None else f"solved to a gradient of {tolerance:g}"
            steps = stepped.newton_steps
            words = f"concepts {concepts}, {steps} steps of the label head: no work was left for more"
            return stepped.model, words, False
        model, logits, tolerance = best.model, best.logits, best.model.recipe.head_tolerance
        if model.recipe.regime != "joint" and self._loose > tolerance:
            basis = None if moved else self.state.basis.for_design(best.design)
            solved = solve_concepts(
                model, alignment, best.design, basis=basis, features_moved=moved, tolerance=tolerance
            )
            self.spent += self.cost.concept_work(solved.work) + (self.cost.basis if moved else 0.0)
            model, logits = solved.model, solved.logits
        labels = solve_label(model, alignment, logits, inverses)
        self.spent += self.cost.label_work(labels.work)
        return labels.model, f"both solved to the end (concepts to a gradient of {tolerance:g})", True

    def _add(self, rung: Rung, kept: bool) -> bool:
        self.spent += rung.work
        self.tried.append(rung.row(kept))
        if kept:
            self.rungs.append(rung)
        return kept

    def _validation(self, backbone: nn.Module, *, same: bool = False) -> Tensor | None:
        """Features of the edited validation samples; kept ones where neither they nor the backbone changed."""
        alignment = self.alignment
        if "val" not in alignment.edited.split_sizes:
            return None
        if same and alignment.same_validation and (alignment.samples.complete or not has_statistics(backbone)):
            return self.state.validation
        return stages.feature_design(backbone, alignment.edited.split("val").inputs)


def climb(
    alignment: Alignment, state: EditorState, options: Options, cost: CostModel, moves: Sequence[Move]
) -> Outcome:
    """Climb as far as the budget goes.

    Parameters
    ----------
    cost
        Prices, of which the budget is a share.
    moves
        Ways to move the backbone, in the order in which they are tried.
    """
    ladder = Ladder(alignment, state, options, cost)
    ladder.start()
    why = _climb(ladder, moves, forced=options.tail)
    best = ladder.last
    model, closing, solved = ladder.finish()
    settings: dict[str, Any] = {
        "why": why,
        "budget": options.budget if options.seconds is None else None,
        "work": {"retraining": cost.retraining, "allowed": ladder.limit, "spent": ladder.spent},
        "share_spent": ladder.spent / cost.retraining,
        "ladder": ladder.tried,
        "kept_rung": best.name,
        "heads": closing,
    }
    if options.seconds is not None:
        settings["seconds_allowed"] = options.seconds
        settings["replayable"] = (
            "no: the steps were chosen by a clock (seconds=); give budget= to be able to replay"
        )
    if any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.backbone.modules()):
        where = best.settings.get("cut")
        frozen = f"those in front of {where!r} are" if where else "they are"
        ladder.not_covered["BatchNorm statistics"] = f"{frozen} frozen and hold traces of removed samples"
    # Features from rounded maps are not those that the model gives.
    design = best.design if best.settings.get("maps") != "float16" else None
    return Outcome(model, settings, ladder.not_covered, Facts(design=design), solved=solved)


def _climb(ladder: Ladder, moves: Sequence[Move], *, forced: bool) -> str:
    """Try the moves, ``forced`` also where the edit's pull is small; says in words what was done and why."""
    alignment = ladder.alignment
    if alignment.model.recipe.regime == "joint":
        return "both heads, jointly; the backbone of a joint model is left as it is"
    if alignment.same_terms and len(alignment.touched_concepts()) == 0:
        return "both heads exactly; the edit changes nothing that the backbone was trained on"
    if not any(parameter.requires_grad for parameter in alignment.model.backbone.parameters()):
        return "both heads exactly; every parameter of the backbone is frozen"
    if ladder.left < min((move.least(ladder) for move in moves), default=0.0):
        return "both heads exactly; the budget leaves no room for the backbone"
    moved = 0.0 if forced else pull(alignment, ladder.state, ladder.last.model)
    wandered = 0.0 if forced else wandering(ladder.state)
    if not forced and not moved > CLIMB_FROM * wandered:
        return (
            f"both heads exactly; the edit moves validation probabilities by {moved:.2g} (rms), no more than "
            f"another seed would ({wandered:.2g}), so the backbone is left as it is"
        )
    words = ["both heads exactly"]
    for move in moves:
        if not move.worth_it(ladder):
            continue
        kept = ladder.move(move, ladder.left)
        words.append(move.name if kept else f"{move.name} did not pay and was dropped")
    return "; ".join(words)


def _operations_per_second(alignment: Alignment, cost: CostModel) -> float:
    """How fast this machine is now, from a forward pass over some samples."""
    count = min(512, cost.samples)
    sample = alignment.after.inputs.subset(range(count))
    sample.take(range(count))  # pictures are decoded once, and that is not part of a pass
    started = time.monotonic()
    with torch.no_grad():
        stages.extract_features(alignment.model.backbone, sample)
    return cost.passes(count) / max(time.monotonic() - started, 1e-9)
