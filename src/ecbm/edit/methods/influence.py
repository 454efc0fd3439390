"""``ekfac`` and ``hessian``: the paper's influence steps, with EK-FAC curvature (ECBM) or the exact Hessian
(CBM-IF).

    g:  θ' = θ − s (H + δ)⁻¹(∇J'_C(θ) − ∇J_C(θ))        f:  φ' = φ − s H_f⁻¹ ∇J'_Y(φ), with the inputs that g' gives

(docs/method.md, "The influence step"). δ and the lengths s are chosen by the edited objectives, and no step is
taken that makes them worse (:mod:`ecbm.edit.methods.guarded`). With ``guarded=False`` s is 1 and the step is the
paper's, whatever it does: where it makes an objective worse the report says so. The objective stepped on is the one
that retraining would minimise, with the edited data's positive weights and, for the linear backbone, its
standardisation.
"""

from __future__ import annotations

from typing import Any

from ecbm.curvature import EKFAC, ExactOperator, Vector
from ecbm.edit.alignment import Alignment
from ecbm.edit.methods.base import Options, Outcome
from ecbm.edit.methods.guarded import DEEP_DAMPINGS, FROZEN_DAMPINGS, Solved, Taken, guarded_step
from ecbm.edit.methods.label_step import label_step
from ecbm.edit.methods.solve import DENSE, mean_eigenvalue, size_of, solve_exactly
from ecbm.edit.methods.stage import DeepStage, FrozenStage, Stage
from ecbm.edit.state import EditorState
from ecbm.errors import InputError

__all__ = ["ekfac_edit", "hessian_edit"]


def ekfac_edit(alignment: Alignment, state: EditorState, options: Options) -> Outcome:
    """The paper's ECBM: an influence step with EK-FAC curvature."""
    return _influence("ekfac", alignment, state, options)


def hessian_edit(alignment: Alignment, state: EditorState, options: Options) -> Outcome:
    """The paper's CBM-IF: an influence step with the (damped) exact Hessian."""
    return _influence("hessian", alignment, state, options)


def _influence(method: str, alignment: Alignment, state: EditorState, options: Options) -> Outcome:
    """One influence step on g, then one on f with the inputs that the edited g gives."""
    linear = state.model.recipe.is_linear
    stage: Stage = FrozenStage(alignment, state) if linear else DeepStage(alignment, state)
    change = stage.change(options.gradient)
    precise = method == "hessian"

    def solve(damping: float) -> Solved:
        found = _hessian_step if precise else _ekfac_step
        return found(stage, change, damping, options)

    if options.guarded:
        dampings: tuple[float, ...] = FROZEN_DAMPINGS if linear else DEEP_DAMPINGS
        # Another δ is nearly free in EK-FAC's eigenbasis and where the Hessian is small enough to be factored;
        # otherwise it costs conjugate gradients all over again, and the first that helps is taken.
        cheap = not precise or size_of(change) <= DENSE
        if not linear and not cheap:
            dampings = dampings[1:]
        dampings = dampings if options.damping is None else (options.damping,)
        taken = guarded_step(
            stage, alignment, state, change, solve, dampings, compare=cheap and not linear, precise=precise
        )
    else:
        damping = options.damping if options.damping is not None else (0.0 if linear else 0.1)
        solved = solve(damping)
        applied = stage.apply(solved.step, precise=precise)
        taken = Taken(*applied, solved.settings | {"damping": damping, "length": 1.0}, solved.not_covered)
    model = taken.model
    damping = taken.settings["damping"] or 0.0
    model.label_head, chosen = label_step(method, model, alignment, state, taken.logits, options, damping)
    settings: dict[str, Any] = {
        "guarded": options.guarded, "relative": options.relative, "gradient": options.gradient,
    }  # fmt: skip
    return Outcome(
        model, settings | taken.settings | chosen, taken.not_covered, taken.facts, unguarded=not options.guarded
    )


def _ekfac_step(stage: Stage, change: Vector, damping: float, options: Options) -> Solved:
    settings = {"fisher": options.fisher}
    if isinstance(stage, FrozenStage) and options.fisher == "true":
        return Solved(stage.diagonal_step(change, damping, options.relative), settings)
    state = stage.state
    curvature = _fitted(stage, options) if stage.widened else state.concept_curvature(options.fisher)
    step = curvature.solve(curvature.restrict(change), damping, relative=options.relative)
    return Solved(stage.still(step, change), settings, curvature.report()["uncovered"])


def _fitted(stage: Stage, options: Options) -> EKFAC:
    """EK-FAC over old and new concepts; once for all dampings."""
    if stage.widened_curvature is None:
        inputs, loss = stage.present()
        state, part = stage.state, stage.part.untied
        l2, seed = state.concept_l2, state.model.recipe.seed
        stage.widened_curvature = EKFAC.fit(
            part, inputs, loss, l2=l2, fisher=options.fisher, seed=seed, parameters=part.trained
        )
    return stage.widened_curvature


def _hessian_step(stage: Stage, change: Vector, damping: float, options: Options) -> Solved:
    """(H + δ)⁻¹ change; δ grows tenfold while the deep Hessian is indefinite."""
    state, (inputs, loss) = stage.state, stage.present()
    absolute = damping
    if options.relative and damping > 0:
        absolute = damping * mean_eigenvalue(state.concept_curvature("true"))
    preconditioner = None
    if not stage.widened and size_of(change) > DENSE:
        preconditioner = state.concept_curvature("true")
    names, l2 = stage.part.trained, state.concept_l2
    for kind in ("hessian", "gauss-newton"):
        operator = ExactOperator(stage.part, inputs, loss, kind=kind, l2=l2, batch_size=512, parameters=names)
        tried = absolute
        for _ in range(3):
            try:
                step, solver = solve_exactly(operator, change, tried, preconditioner)
            except InputError:
                tried = max(10 * tried, 1e-3)
                continue
            settings = {"matrix": kind, "absolute damping": tried, **solver}
            return Solved(stage.still(step, change), settings)
    raise InputError("the Hessian stays indefinite at every damping tried; use method='ekfac' or 'auto'")
