"""``ekfac`` and ``hessian``: the paper's influence steps, with EK-FAC curvature (ECBM) or the exact Hessian
(CBM-IF).

    g:  θ' = θ − (H + δ)⁻¹(∇J'_C(θ) − ∇J_C(θ))        f:  φ' = φ − H_f⁻¹ ∇J'_Y(φ), with the inputs that g' gives

(docs/method.md, "The influence step"). They are applied as the paper writes them, unguarded: where a step makes the
edited objective worse, the report says so and the step is kept all the same. The objective stepped on is the one
that retraining would minimise, with the edited data's positive weights and, for the linear backbone, its
standardisation.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ecbm.curvature import EKFAC, ExactOperator, LabelLoss, Vector
from ecbm.edit.alignment import Alignment
from ecbm.edit.heads import label_design
from ecbm.edit.methods.base import Options, Outcome
from ecbm.edit.methods.stage import DeepStage, FrozenStage, Stage
from ecbm.edit.state import EditorState
from ecbm.errors import InputError
from ecbm.train.heads.label import block_step
from ecbm.train.heads.objectives import LabelObjective, rows_of
from ecbm.train.model import ConceptBottleneck, linear_from

__all__ = ["ekfac_edit", "hessian_edit"]

# Up to this many parameters the whole matrix is built; it costs as many Hessian products.
_DENSE = 400
_CG_ITERATIONS = 50
_CG_TOLERANCE = 1e-4


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
    damping = options.damping if options.damping is not None else (0.0 if linear else 0.1)
    settings: dict[str, Any] = {"damping": damping, "relative": options.relative, "gradient": options.gradient}
    solve = _ekfac_step if method == "ekfac" else _hessian_step
    step, chosen, not_covered = solve(stage, change, damping, options)
    model, logits, facts = stage.apply(step, precise=method == "hessian")
    model.label_head, label_settings = _label_step(method, model, alignment, state, logits, options, damping)
    return Outcome(model, settings | chosen | label_settings, not_covered, facts, unguarded=True)


def _ekfac_step(
    stage: Stage, change: Vector, damping: float, options: Options
) -> tuple[Vector, dict[str, Any], dict[str, str]]:
    settings = {"fisher": options.fisher}
    if isinstance(stage, FrozenStage) and options.fisher == "true":
        return stage.diagonal_step(change, damping, options.relative), settings, {}
    state = stage.state
    if stage.widened:
        inputs, loss = stage.present()
        l2, seed, names = state.concept_l2, state.model.recipe.seed, stage.part.trained
        part = stage.part.untied
        curvature = EKFAC.fit(part, inputs, loss, l2=l2, fisher=options.fisher, seed=seed, parameters=names)
    else:
        curvature = state.concept_curvature(options.fisher)
    step = curvature.solve(curvature.restrict(change), damping, relative=options.relative)
    return stage.still(step, change), settings, curvature.report()["uncovered"]


def _hessian_step(
    stage: Stage, change: Vector, damping: float, options: Options
) -> tuple[Vector, dict[str, Any], dict[str, str]]:
    """(H + δ)⁻¹ change; δ grows tenfold while the deep Hessian is indefinite."""
    state, (inputs, loss) = stage.state, stage.present()
    absolute = damping
    if options.relative and damping > 0:
        absolute = damping * _mean(state.concept_curvature("true"))
    preconditioner = None
    if not stage.widened and _size(change) > _DENSE:
        preconditioner = state.concept_curvature("true")
    names, l2 = stage.part.trained, state.concept_l2
    for kind in ("hessian", "gauss-newton"):
        operator = ExactOperator(stage.part, inputs, loss, kind=kind, l2=l2, batch_size=512, parameters=names)
        tried = absolute
        for _ in range(3):
            try:
                step, solver = _solve(operator, change, tried, preconditioner)
            except InputError:
                tried = max(10 * tried, 1e-3)
                continue
            return stage.still(step, change), {"matrix": kind, "absolute damping": tried, **solver}, {}
    raise InputError("the Hessian stays indefinite at every damping tried; use method='ekfac' or 'auto'")


def _solve(
    operator: ExactOperator, change: Vector, damping: float, preconditioner: EKFAC | None
) -> tuple[Vector, dict[str, Any]]:
    """(H + δ)⁻¹ change: by factoring H where it is small, by conjugate gradients otherwise."""
    if _size(change) <= _DENSE:
        shifted = operator.dense().double()
        shifted.diagonal().add_(damping)
        factor, trouble = torch.linalg.cholesky_ex(shifted)
        if int(trouble) != 0:
            raise InputError(f"the Hessian with damping {damping:g} is not positive definite")
        flat = torch.cat([change[name].reshape(-1) for name in operator.names]).double()
        parts = torch.cholesky_solve(flat[:, None], factor)[:, 0].split([change[n].numel() for n in operator.names])
        named = zip(operator.names, parts, strict=True)
        return {n: part.view_as(change[n]).to(change[n].dtype) for n, part in named}, {"solver": "dense"}
    solution = operator.solve(
        change, damping, preconditioner=preconditioner, tolerance=_CG_TOLERANCE, iterations=_CG_ITERATIONS
    )
    figures = {"cg iterations": solution.iterations, "cg residual": solution.residual}
    return solution.vector, {"solver": "conjugate gradients", **figures}


def _size(change: Vector) -> int:
    return sum(value.numel() for value in change.values())


def _mean(curvature: EKFAC) -> float:
    means = curvature.mean_eigenvalues()
    return sum(means.values()) / len(means)


def _label_step(
    method: str,
    model: ConceptBottleneck,
    alignment: Alignment,
    state: EditorState,
    logits: Tensor,
    options: Options,
    damping: float,
) -> tuple[nn.Linear, dict[str, Any]]:
    """φ − H_f⁻¹ ∇J'_Y(φ), with the edited inputs; at the solved label head the old gradient is zero."""
    design, labels = label_design(model, alignment, logits), alignment.after.labels
    head, beta, seed = rows_of(model.label_head), model.recipe.label_regularisation, model.recipe.seed
    # EK-FAC's own error is far above float32's.
    read, start = (design.float(), head.float()) if method == "ekfac" else (design, head)
    gradient = LabelObjective(read, labels, None, beta).gradient(read @ start.T, start).double()
    change = {"weight": gradient[:, :-1].contiguous(), "bias": gradient[:, -1].contiguous()}
    inputs, loss = design[:, :-1].contiguous(), LabelLoss(labels)
    known = alignment.concepts.complete

    def fitted(fisher: Any) -> EKFAC:
        if known:
            return state.label_curvature(fisher)
        return EKFAC.fit(model.label_head, inputs, loss, l2=beta, fisher=fisher, seed=seed)

    if method == "ekfac":
        wanted = options.label_curvature
        if wanted is None:
            wanted = "blocks" if model.recipe.is_linear and options.fisher == "true" else "ekfac"
        blocks = state.label_blocks if wanted == "blocks" else None
        if blocks is not None:
            unit = float(blocks.diagonal(dim1=1, dim2=2).mean()) if options.relative else 1.0
            inverses = state.label_inverses(alignment, exact=True, damping=damping * unit)
            assert inverses is not None
            return linear_from(head - block_step(gradient, inverses, beta)), {"label_curvature": "blocks"}
        step = fitted(options.fisher).solve(change, damping, relative=options.relative)
        used = {"label_curvature": "ekfac"}
    else:
        exact = ExactOperator(model.label_head, inputs, loss, kind="hessian", l2=beta, batch_size=1024)
        # Convex, with β: without a stated damping it needs none.
        absolute = options.damping or 0.0
        if absolute and options.relative:
            absolute *= _mean(fitted("true"))
        own = fitted("true") if known and _size(change) > _DENSE else None
        step, used = _solve(exact, change, absolute, own)[0], {"label_curvature": "hessian"}
    return linear_from(head - torch.cat([step["weight"], step["bias"][:, None]], 1)), used
