"""The influence step of the label head f: φ − H_f⁻¹ ∇J'_Y(φ), with the inputs that the edited g gives.

At the solved label head the old gradient is zero, so that the new one is the change. f is convex: its exact Hessian
is affordable, as the paper says, and by conjugate gradients much cheaper than it thinks.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ecbm.curvature import EKFAC, ExactOperator, LabelLoss
from ecbm.edit.alignment import Alignment
from ecbm.edit.heads import label_design, solve_label
from ecbm.edit.methods.base import Options
from ecbm.edit.methods.solve import DENSE, mean_eigenvalue, size_of, solve_exactly
from ecbm.edit.state import EditorState
from ecbm.train.heads.label import block_step, newton_step
from ecbm.train.heads.objectives import LabelObjective, rows_of
from ecbm.train.model import ConceptBottleneck, linear_from

__all__ = ["label_step"]

_HALVINGS = 20


def label_step(
    method: str,
    model: ConceptBottleneck,
    alignment: Alignment,
    state: EditorState,
    logits: Tensor,
    options: Options,
    damping: float,
) -> tuple[nn.Linear, dict[str, Any]]:
    """The label head after its step, and what was chosen; ``logits`` are the edited g's on the training samples."""
    if model.recipe.label_l1:
        # At the kinks of an L1 term there is no Hessian to divide by, and the proximal solve is affordable.
        return solve_label(model, alignment, logits, None).model.label_head, {"label_curvature": "solved"}
    if model.predicts_number:
        # J_Y is quadratic: a step with its exact Hessian, one ridge matrix, is its solution.
        return solve_label(model, alignment, logits, None).model.label_head, {"label_curvature": "ridge"}
    design, labels = label_design(model, alignment, logits), alignment.labels_after
    head, beta = rows_of(model.label_head), model.recipe.label_regularisation
    # The step's own error is far above float32's, but for the exact Hessian's.
    single = method == "ekfac"
    read, start = (design.float(), head.float()) if single else (design, head)
    gradient = LabelObjective(read, labels, None, beta).gradient(read @ start.T, start).double()
    wanted = _curvature(method, model, options, state)
    fitted = _Fitted(model, alignment, state, design, options)
    if wanted == "blocks":
        blocks = state.label_blocks
        assert blocks is not None
        unit = float(blocks.diagonal(dim1=1, dim2=2).mean()) if options.relative else 1.0
        inverses = state.label_inverses(alignment, exact=True, damping=damping * unit)
        assert inverses is not None
        step = block_step(gradient, inverses, beta)
    elif wanted == "ekfac":
        parts = fitted.ekfac(options.fisher).solve(_named(gradient), damping, relative=options.relative)
        step = _rows(parts)
    elif method == "ekfac" and not options.damping:
        step, _ = newton_step(design, labels, head, beta, inverses=state.label_inverses(alignment))
    else:
        step = fitted.exact_step(gradient, model)
    if not options.guarded:
        return linear_from(head - step), {"label_curvature": wanted}
    objective, length = LabelObjective(design, labels, None, beta), 1.0
    now, change = design @ head.T, design @ step.T
    before = float(objective.value(head, now))
    for _ in range(_HALVINGS):
        if float(objective.value(head - length * step, now - length * change)) <= before:
            return linear_from(head - length * step), {"label_curvature": wanted, "label_length": length}
        length /= 2
    return linear_from(head), {"label_curvature": wanted, "label_length": 0.0}


def _curvature(method: str, model: ConceptBottleneck, options: Options, state: EditorState) -> str:
    """What the step divides by. Blocks that are too large are EK-FAC's factors, or the Hessian, instead."""
    if method == "hessian":
        return "hessian"
    frozen = model.recipe.is_linear
    wanted = options.label_curvature
    if wanted is None:
        wanted = "blocks" if frozen and options.fisher == "true" else "hessian" if options.guarded else "ekfac"
    if wanted == "blocks" and state.label_blocks is None:
        return "ekfac"
    return wanted


def _named(rows: Tensor) -> dict[str, Tensor]:
    return {"weight": rows[:, :-1].contiguous(), "bias": rows[:, -1].contiguous()}


def _rows(parts: dict[str, Tensor]) -> Tensor:
    return torch.cat([parts["weight"], parts["bias"][:, None]], 1).double()


class _Fitted:
    """Curvature of the label head over the edited inputs."""

    def __init__(
        self, model: ConceptBottleneck, alignment: Alignment, state: EditorState, design: Tensor, options: Options
    ) -> None:
        self.head, self.recipe, self.state, self.options = model.label_head, model.recipe, state, options
        self.known = alignment.concepts.complete
        self.inputs, self.loss = design[:, :-1].contiguous(), LabelLoss(alignment.labels_after)

    def ekfac(self, fisher: Any) -> EKFAC:
        """Kept factors, or where concepts came or went their own."""
        if self.known:
            return self.state.label_curvature(fisher)
        beta, seed = self.recipe.label_regularisation, self.recipe.seed
        return EKFAC.fit(self.head, self.inputs, self.loss, l2=beta, fisher=fisher, seed=seed)

    def exact_step(self, gradient: Tensor, model: ConceptBottleneck) -> Tensor:
        """By the exact operator, damped where a damping was asked for: J_Y is convex, with β, and needs none."""
        beta, options = self.recipe.label_regularisation, self.options
        exact = ExactOperator(model.label_head, self.inputs, self.loss, kind="hessian", l2=beta, batch_size=1024)
        absolute = options.damping or 0.0
        if absolute and options.relative:
            absolute *= mean_eigenvalue(self.ekfac("true"))
        change = _named(gradient)
        own = self.ekfac("true") if self.known and size_of(change) > DENSE else None
        return _rows(solve_exactly(exact, change, absolute, own)[0])
