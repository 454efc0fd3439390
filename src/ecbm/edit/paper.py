"""The paper's two methods on both stages: ECBM (EK-FAC) and CBM-IF (the damped exact Hessian).

They are applied as the paper writes them, unguarded: where a step makes the edited objective worse, the report
says so and the step is kept all the same. The objective stepped on is the one that retraining would minimise, with
the edited data's positive weights and, for the linear backbone, its standardisation.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from typing import Any

import torch
from torch import Tensor, nn

from ecbm.curvature import EKFAC, ConceptLoss, ExactOperator, LabelLoss, Vector
from ecbm.curvature.losses import Fisher
from ecbm.edit.frozen import class_block_step, step_frozen
from ecbm.edit.heads import label_design
from ecbm.edit.influence import ConceptPart, Widened, add_step, gradient_sum
from ecbm.edit.kept import Kept
from ecbm.edit.situation import Restandardised, Situation, carry, has_statistics, restandardise, restandardised
from ecbm.errors import InputError
from ecbm.read.inputs import Inputs, concatenate
from ecbm.train import stages
from ecbm.train.convex import with_ones
from ecbm.train.model import ConceptBottleneck, linear_from
from ecbm.train.terms import ConceptTerms

__all__ = ["InfluenceOptions", "edited_design", "influence_edit", "widen"]


@dataclasses.dataclass(frozen=True)
class InfluenceOptions:
    """Settings of an influence step.

    Parameters
    ----------
    fisher
        For ``ekfac``: ``"true"`` (targets drawn from the model), ``"empirical"`` (the data's targets: the paper's
        text), or ``"exact"`` (the drawn targets' expectation; costs one backward pass a concept).
    damping
        δ; ``None`` takes 0 for a frozen backbone (its L2 is enough) and 0.1 of the mean eigenvalue for a deep one.
        With ``None``, a frozen backbone and the true Fisher, the label step divides by the classes' exact
        Gauss–Newton blocks. Kronecker factors are too coarse there: retraining moves inputs and label head
        in ways that nearly cancel, and on CUB EK-FAC's step (off by 30 %) leaves class probabilities farther from
        the retrained ones than no step does (closure −1.4 against 0.37; at best 0.45, with δ of 100; with blocks
        0.75).
    relative
        Whether δ is a multiple of each layer's mean eigenvalue.
    gradient
        ``"difference"`` of new and old terms, or the ``"full"`` new gradient (a Newton step).
    """

    fisher: Fisher = "true"
    damping: float | None = None
    relative: bool = True
    gradient: str = "difference"

    @property
    def is_default(self) -> bool:
        return self == InfluenceOptions()

    def __post_init__(self) -> None:
        for name, value, allowed in (
            ("fisher", self.fisher, ("true", "empirical", "exact")),
            ("gradient", self.gradient, ("difference", "full")),
        ):
            if value not in allowed:
                raise InputError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")
        if self.damping is not None:
            number = isinstance(self.damping, int | float) and not isinstance(self.damping, bool)
            if not number or not math.isfinite(self.damping) or self.damping < 0:
                raise InputError(f"damping must be a finite number of at least 0, got {self.damping!r}")


def widen(situation: Situation, kept: Kept) -> tuple[ConceptPart, Widened, Inputs | Tensor, Tensor, Tensor]:
    """g, terms and inputs over the union of old and new concepts and samples.

    Returns the widened g, its terms before and after (row i of both is input i), the inputs, and the rows that are
    present before and after. Old training rows come first, new samples behind them.
    """
    before, after = situation.terms_before, situation.terms_after
    rows_old, rows_new = situation.rows
    old, new = situation.columns
    n_old, k_old = before.targets.shape
    fresh_rows = _others(len(after.targets), rows_new)
    fresh_columns = _others(after.targets.shape[1], new)
    shape = (n_old + len(fresh_rows), k_old + len(fresh_columns))
    wide_before = ConceptTerms(torch.zeros(shape), torch.zeros(shape))
    wide_after = ConceptTerms(torch.zeros(shape), torch.zeros(shape))
    columns = torch.cat([old, torch.arange(k_old, shape[1])])
    source = torch.cat([new, fresh_columns])
    places = torch.cat([rows_old, torch.arange(n_old, shape[0])])
    origin = torch.cat([rows_new, fresh_rows])
    for name in ("targets", "weights"):
        getattr(wide_before, name)[:n_old, :k_old] = getattr(before, name)
        block = getattr(after, name)[origin][:, source]
        getattr(wide_after, name)[places[:, None], columns[None, :]] = block
    part = copy.deepcopy(kept.part)
    if len(fresh_columns):
        part.concept_head = _widen_head(part.concept_head, len(fresh_columns))
    inputs: Inputs | Tensor = kept.inputs
    if len(fresh_rows):
        added = situation.after.select(fresh_rows)
        if isinstance(inputs, Tensor):
            inputs = torch.cat([inputs, stages.extract_features(kept.model.backbone, added.inputs).double()])
        else:
            inputs = concatenate(inputs, added.inputs)
    return part, Widened(wide_before, wide_after), inputs, torch.arange(n_old), places


def _others(count: int, present: Tensor) -> Tensor:
    absent = torch.ones(count, dtype=torch.bool)
    absent[present] = False
    return absent.nonzero().flatten()


def _widen_head(head: nn.Linear, extra: int) -> nn.Linear:
    wide = linear_from(torch.zeros(head.out_features + extra, head.in_features + 1)).to(head.weight.dtype)
    with torch.no_grad():
        wide.weight[: head.out_features] = head.weight
        wide.bias[: head.out_features] = head.bias
    return wide


def change_of_gradient(
    part: ConceptPart,
    wide: Widened,
    inputs: Inputs | Tensor,
    present: tuple[Tensor, Tensor],
    kept: Kept,
    form: str,
) -> Vector:
    """∇J' − ∇J at the model, from backward passes over changed terms only (or the full ∇J')."""
    n, n_new = len(present[0]), len(present[1])
    l2 = kept.concept_l2
    if form == "full":
        total = gradient_sum(part, inputs, wide.after, present[1])
        return {name: value / n_new + l2 * part.get_parameter(name).detach() for name, value in total.items()}
    differs = (wide.before.targets != wide.after.targets) | (wide.before.weights != wide.after.weights)
    changed = differs.any(1).nonzero().flatten()
    # The change of the terms is itself one weighted loss: w'(p − t') − w(p − t), but its weights may be negative;
    # two sums say the same and stay within the loss's domain.
    new_sum = gradient_sum(part, inputs, wide.after, changed)
    old_sum = gradient_sum(part, inputs, wide.before, changed)
    change = {name: (new_sum[name] - old_sum[name]) / n_new for name in new_sum}
    if n_new != n:
        for name, value in _match(kept.gradient, part).items():
            change[name] += (n / n_new - 1) * (value - l2 * part.get_parameter(name).detach())
    return change


def _match(gradient: Vector, part: ConceptPart) -> Vector:
    """A gradient of the narrow g as one of the widened g: new head rows are 0."""
    matched = {}
    for name, value in gradient.items():
        target = torch.zeros_like(part.get_parameter(name))
        target[tuple(slice(0, size) for size in value.shape)] = value
        matched[name] = target
    return matched


def _with_new_statistics(
    change: Vector, part: ConceptPart, statistics: Restandardised, kept: Kept, form: str
) -> Vector:
    """``change`` where ∇J' is taken at the same function of the input under the new standardisation.

    The function's data gradient D' over weights that read x' follows from that over weights that read x; its L2
    term is that of the rewritten weights.
    """
    l2, head = kept.concept_l2, part.concept_head
    names = ("concept_head.weight", "concept_head.bias")
    old = {name: part.get_parameter(name).detach() for name in names}
    before = _match(kept.gradient, part)
    data = {name: change[name] - l2 * old[name] + (0.0 if form == "full" else before[name]) for name in names}
    gradient = statistics.gradient(data[names[0]], data[names[1]])
    rewritten = statistics.head(head.weight.detach(), head.bias.detach())
    moved = {name: g + l2 * value for name, g, value in zip(names, gradient, rewritten, strict=True)}
    return moved if form == "full" else {name: moved[name] - before[name] for name in names}


def _rewrite(head: nn.Linear, statistics: Restandardised) -> None:
    weight, bias = statistics.head(head.weight.detach(), head.bias.detach())
    with torch.no_grad():
        head.weight.copy_(weight)
        head.bias.copy_(bias)


def influence_edit(
    method: str, situation: Situation, kept: Kept, options: InfluenceOptions
) -> tuple[ConceptBottleneck, dict[str, Any]]:
    """One influence step on g, then one on f with the inputs that the edited g gives.

    Heads of the linear backbone are independent logistic regressions: a concept none of whose terms changed has
    no step, though the drawn Γ of EK-FAC and conjugate gradients over all heads would give it a small one.
    """
    if method == "ekfac" and options.is_default and kept.model.recipe.is_linear:
        quick = step_frozen(situation, kept)
        if quick is not None:
            chosen = {"damping": 0.0, "relative": True, "gradient": "difference", "fisher": "true"}
            return quick, chosen | {"label_curvature": "exact class blocks"}
    part, wide, inputs, before_rows, after_rows = widen(situation, kept)
    change = change_of_gradient(part, wide, inputs, (before_rows, after_rows), kept, options.gradient)
    recipe = kept.model.recipe
    linear = recipe.is_linear
    statistics = None
    if linear and not situation.same_samples:
        statistics = restandardised(kept.model, situation.after)
        assert statistics is not None
        change = _with_new_statistics(change, part, statistics, kept, options.gradient)
    damping = options.damping if options.damping is not None else (0.0 if linear else 0.1)
    settings: dict[str, Any] = {"damping": damping, "relative": options.relative, "gradient": options.gradient}
    widened = len(situation.edit.add_concepts) > 0
    # Curvature of the old terms, as the paper has it; a new concept has none there, so then that of the new ones.
    rows, terms = (after_rows, wide.after) if widened else (before_rows, wide.before)
    source = inputs[rows] if isinstance(inputs, Tensor) else inputs.subset(rows.tolist())
    present = (source, ConceptLoss(terms.targets[rows], terms.weights[rows]))
    if method == "ekfac":
        settings["fisher"] = options.fisher
        if widened:
            curvature = EKFAC.fit(part, *present, l2=kept.concept_l2, fisher=options.fisher, seed=recipe.seed)
        else:
            curvature = kept.concept_curvature(options.fisher)
        if linear and options.fisher == "true" and not widened:
            step = _independent_step(change, kept, damping, options.relative)
        else:
            step = curvature.solve(curvature.restrict(change), damping, relative=options.relative)
        not_covered = curvature.report()["uncovered"]
    else:
        step, solver = _hessian_step(part, present, change, damping, options, kept, widened)
        settings |= solver
        not_covered = {}
    if linear:
        still = (change["concept_head.weight"] == 0).all(1) & (change["concept_head.bias"] == 0)
        for value in step.values():
            value[still] = 0.0
    if statistics is not None:
        _rewrite(part.concept_head, statistics)
    add_step(part, step, -1.0)
    model = _put_back(carry(situation), part, situation)
    logits = _train_logits(model, situation, kept)
    low, high = stages.logit_range(logits, situation.after.concepts)
    model.low.copy_(low)
    model.high.copy_(high)
    settings["label_curvature"] = _label_step(method, model, situation, kept, logits, options, damping)
    settings["not covered"] = not_covered
    return model, settings


def _independent_step(change: Vector, kept: Kept, damping: float, relative: bool) -> Vector:
    """EK-FAC's step of independent logistic heads, in expectation over the drawn targets.

    Targets of different concepts are drawn independently, so Γ of the true Fisher is diagonal and Q_Γ the identity;
    off its diagonal a drawn Γ holds noise alone. Λ* is then the Hessian's own diagonal in Q_Ω, concept by concept.
    """
    state, l2 = kept.frozen, kept.concept_l2
    names = ("concept_head.weight", "concept_head.bias")
    rows = torch.cat([change[names[0]], change[names[1]][:, None]], 1)
    unit = float((state.diagonal - l2).mean()) if relative else 1.0
    step = state.basis.precondition(state.diagonal + damping * unit, rows)
    return {names[0]: step[:, :-1].contiguous(), names[1]: step[:, -1].contiguous()}


def _put_back(carried: ConceptBottleneck, part: ConceptPart, situation: Situation) -> ConceptBottleneck:
    """The stepped g inside the carried model: rows of removed concepts are dropped here."""
    old, new = situation.columns
    k_old = situation.terms_before.targets.shape[1]
    fresh = _others(len(carried.concept_names), new)
    with torch.no_grad():
        head = part.concept_head
        carried.concept_head.weight[new] = head.weight[old].double()
        carried.concept_head.bias[new] = head.bias[old].double()
        carried.concept_head.weight[fresh] = head.weight[k_old:].double()
        carried.concept_head.bias[fresh] = head.bias[k_old:].double()
    if carried.recipe.is_linear:
        return carried
    carried.backbone = part.backbone
    return carried if situation.same_samples else restandardise(carried, situation.after)


def _train_logits(model: ConceptBottleneck, situation: Situation, kept: Kept) -> Tensor:
    with torch.no_grad():
        if not model.recipe.is_linear:
            return model.concept_logits(situation.after.inputs)
        design = edited_design(situation, kept, model)
        logits: Tensor = model.concept_head(design[:, :-1])
        return logits


def edited_design(situation: Situation, kept: Kept, model: ConceptBottleneck) -> Tensor:
    """Features of the edited training samples, from the kept ones where the backbone is unchanged."""
    rows_old, rows_new = situation.rows
    if not situation.same_samples and has_statistics(model.backbone):
        return with_ones(stages.extract_features(model.backbone, situation.after.inputs))
    if situation.same_samples and torch.equal(rows_old, rows_new):
        return kept.design
    design = kept.design.new_empty(len(situation.after), kept.design.shape[1])
    design[rows_new] = kept.design[rows_old]
    fresh = _others(len(situation.after), rows_new)
    if len(fresh):
        design[fresh, :-1] = stages.extract_features(model.backbone, situation.after.select(fresh).inputs).double()
        design[fresh, -1] = 1.0
    return design


def _label_step(
    method: str,
    model: ConceptBottleneck,
    situation: Situation,
    kept: Kept,
    logits: Tensor,
    options: InfluenceOptions,
    damping: float,
) -> str:
    """φ' = φ − H_f⁻¹ ∇J'_Y(φ), with the edited inputs; at the solved label head the old gradient is zero.

    Returns in words which matrix H_f was.
    """
    read = label_design(model, situation, logits)
    labels, beta = situation.after.labels, model.recipe.label_regularisation
    head = model.label_head
    with torch.no_grad():
        residual = torch.softmax(head(read[:, :-1]), 1)
        residual[torch.arange(len(labels)), labels] -= 1
        flat = residual.T @ read / len(labels)
        change = {"weight": flat[:, :-1] + beta * head.weight, "bias": flat[:, -1] + beta * head.bias}
    same_columns = len(situation.columns[0]) == len(model.concept_names) == len(kept.model.concept_names)
    inputs = read[:, :-1].contiguous()
    blocks = None
    if method == "ekfac" and options.damping is None and options.fisher == "true" and model.recipe.is_linear:
        blocks = kept.label_inverses_for(situation.columns, len(model.concept_names))
    if blocks is not None:
        rows = class_block_step(torch.cat([change["weight"], change["bias"][:, None]], 1), blocks, beta)
        step, used = {"weight": rows[:, :-1], "bias": rows[:, -1]}, "exact class blocks"
    elif method == "ekfac":
        curvature = (
            kept.label_curvature(options.fisher)
            if same_columns
            else EKFAC.fit(head, inputs, LabelLoss(labels), l2=beta, fisher=options.fisher, seed=model.recipe.seed)
        )
        step, used = curvature.solve(change, damping, relative=options.relative), "EK-FAC"
    else:
        exact = ExactOperator(head, inputs, LabelLoss(labels), kind="hessian", l2=beta, batch_size=1024)
        own = kept.label_curvature("true") if same_columns else None
        # Convex, with β: without a stated damping it needs none.
        absolute = options.damping or 0.0
        if absolute and options.relative:
            fitted = own or EKFAC.fit(head, inputs, LabelLoss(labels), l2=beta, seed=model.recipe.seed)
            absolute *= _mean(fitted)
        (step, _), used = _solve(exact, change, absolute, own), "Hessian"
    add_step(head, step, -1.0)
    return used


def _hessian_step(
    part: ConceptPart,
    present: tuple[Inputs | Tensor, ConceptLoss],
    change: Vector,
    damping: float,
    options: InfluenceOptions,
    kept: Kept,
    widened: bool,
) -> tuple[Vector, dict[str, Any]]:
    """(H + δ)⁻¹ change; δ grows tenfold while the deep Hessian is indefinite."""
    source, loss = present
    curvature = None if widened else kept.concept_curvature("true")
    absolute = damping
    if options.relative and damping > 0:
        absolute = damping * _mean(kept.concept_curvature("true"))
    for kind in ("hessian", "gauss-newton"):
        operator = ExactOperator(part, source, loss, kind=kind, l2=kept.concept_l2, batch_size=512)
        tried = absolute
        for _ in range(3):
            try:
                step, solver = _solve(operator, change, tried, curvature)
            except InputError:
                tried = max(10 * tried, 1e-3)
                continue
            return step, {"matrix": kind, "absolute damping": tried, **solver}
    raise InputError("the Hessian stays indefinite at every damping tried; use method='ekfac' or 'auto'")


def _solve(
    operator: ExactOperator, change: Vector, damping: float, preconditioner: EKFAC | None
) -> tuple[Vector, dict[str, Any]]:
    """(H + δ)⁻¹ change: by factoring H where it is small, by conjugate gradients otherwise."""
    if sum(value.numel() for value in change.values()) <= _DENSE:
        shifted = operator.dense().double()
        shifted.diagonal().add_(damping)
        factor, trouble = torch.linalg.cholesky_ex(shifted)
        if int(trouble) != 0:
            raise InputError(f"the Hessian with damping {damping:g} is not positive definite")
        flat = torch.cat([change[name].reshape(-1) for name in operator.names]).double()
        solved = torch.cholesky_solve(flat[:, None], factor)[:, 0]
        parts = solved.split([change[name].numel() for name in operator.names])
        step = {
            n: part.view_as(change[n]).to(change[n].dtype) for n, part in zip(operator.names, parts, strict=True)
        }
        return step, {"solver": "dense"}
    solution = operator.solve(
        change, damping, preconditioner=preconditioner, tolerance=_CG_TOLERANCE, iterations=_CG_ITERATIONS
    )
    figures = {"cg iterations": solution.iterations, "cg residual": solution.residual}
    return solution.vector, {"solver": "conjugate gradients", **figures}


def _mean(curvature: EKFAC) -> float:
    means = curvature.mean_eigenvalues()
    return sum(means.values()) / len(means)


# Up to this many parameters the whole matrix is built; it costs as many Hessian products.
_DENSE = 400
_CG_ITERATIONS = 50
_CG_TOLERANCE = 1e-4
