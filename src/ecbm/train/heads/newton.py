"""Newton's method with conjugate gradients for linear models, many independent ones at once or one large one.

A problem is a convex loss of logits Z = X Wᵀ plus (l2/2)|W|². Rows of W are either independent problems (the
concept head) or belong together (the label head); everything below treats both alike by reducing over rows, or not.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from ecbm.errors import EcbmError
from ecbm.progress import breathe

__all__ = [
    "ConvexSolution",
    "NewtonResult",
    "Problem",
    "Product",
    "Solved",
    "conjugate_gradients",
    "minimise",
    "solution_of",
]

_MAX_NEWTON = 200
_MAX_CG = 300
_MAX_LINE = 20
_WORTH_LEAVING = 0.75
_UNIT_STEP_BELOW = 1e-2
_ROUNDING = 1e-11

Product = Callable[[Tensor, Tensor], Tensor]
"""(vectors, which of the rows they are) → vectors."""


class Problem(Protocol):
    """A convex objective (1/n) Σ_i loss(X Wᵀ) + (l2/2)|W|² over the rows of W.

    Rows that belong ``together`` are one problem: all of them, none, or those with the same number in a tensor.
    Those of a softmax are also ``alike``: moving all of them by the same changes no loss.
    """

    together: bool | Tensor
    alike: bool
    l2: float
    extra_work: int
    """What was built on the way to precondition, in the same unit as :attr:`NewtonResult.work`."""

    def gradient(self, logits: Tensor, parameters: Tensor, rows: Tensor) -> Tensor:
        """Gradient of the given rows, float64."""
        ...

    def system(self, logits: Tensor, rows: Tensor, dtype: torch.dtype) -> tuple[Product, Product]:
        """Hessian product of the given rows in ``dtype``, and a preconditioner."""
        ...

    def solved(self, products_per_digit: float, digits_left: float) -> None:
        """What the last system cost for each digit of its residual, and how many digits are still wanted."""
        ...

    def slopes(self, logits: Tensor, change: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """First and second derivative of the loss along a change of logits, one a row."""
        ...

    def levelled(self, move: Tensor, gradient: Tensor, rows: Tensor) -> Tensor:
        """Where only some rows belong together, the step with what is known of it without solving."""
        ...


@dataclasses.dataclass(frozen=True)
class NewtonResult:
    """Where the iteration stopped, and what it took.

    ``work`` counts products of the design with one row of W and back, in float32; a gradient, in float64, is two.
    """

    parameters: Tensor
    gradient: Tensor
    logits: Tensor
    steps: int
    products: int
    work: int


@dataclasses.dataclass(frozen=True)
class ConvexSolution:
    """A solved head: parameters with the bias as last column, and what was reached (:class:`NewtonResult`)."""

    parameters: Tensor
    logits: Tensor
    gradient_norm: float
    objective: float
    newton_steps: int
    hessian_products: int
    work: int

    @property
    def weight(self) -> Tensor:
        return self.parameters[:, :-1].contiguous()

    @property
    def bias(self) -> Tensor:
        return self.parameters[:, -1].contiguous()


def solution_of(what: str, result: NewtonResult, objective: float, accept: float) -> ConvexSolution:
    """The result as a solved head; one that is not as good as asked is refused."""
    norm = float(result.gradient.norm())
    if not math.isfinite(norm) or norm > accept:
        raise EcbmError(
            f"the {what} stopped at gradient norm {norm:.2e}, above the tolerance {accept:.1e}; "
            "raise its L2 or the tolerance"
        )
    return ConvexSolution(
        result.parameters, result.logits, norm, objective, result.steps, result.products, result.work
    )


def _reduce(per_row: Tensor, together: bool | Tensor) -> Tensor:
    """Sums over the rows that belong together, one for every row."""
    if isinstance(together, Tensor):
        sums = per_row.new_zeros(int(together.max()) + 1 if len(together) else 0)
        return sums.index_add_(0, together, per_row)[together]
    return per_row.sum().expand(len(per_row)) if together else per_row


def _of(together: bool | Tensor, rows: Tensor) -> bool | Tensor:
    return together[rows] if isinstance(together, Tensor) else together


def _row_norms(gradient: Tensor, together: bool | Tensor) -> Tensor:
    return _reduce(gradient.square().sum(1), together).sqrt()


@dataclasses.dataclass(frozen=True)
class Solved:
    """Solution of linear systems: how many products it took, how many rows those multiplied in all, and whether
    rounding let every row get there. A row whose curvature is lost in it stops where it is.
    """

    solution: Tensor
    products: int
    work: int
    sound: bool


def conjugate_gradients(
    multiply: Product, precondition: Product, target: Tensor, tolerance: Tensor, together: bool | Tensor
) -> Solved:
    """Solve H S = target to relative residual ``tolerance``; rows that have reached it leave the batch."""

    def dot(a: Tensor, b: Tensor) -> Tensor:
        return _reduce((a * b).sum(1), own)

    own = together

    solution = torch.zeros_like(target)
    active = torch.arange(len(target))
    going = torch.ones(len(target), dtype=torch.bool)
    residual = target.clone()
    direction = precondition(residual, active)
    rho = dot(residual, direction)
    limit = tolerance * dot(target, target).sqrt()
    count, work, reached = 0, 0, True
    while count < _MAX_CG:
        breathe()
        image = multiply(direction, active)
        count, work = count + 1, work + len(active)
        step = rho / dot(direction, image)
        sound = (step > 0) & step.isfinite()
        reached = reached and bool((sound | ~going).all())
        step = torch.where(sound & going, step, 0.0)
        if len(active) == len(target):
            solution.addcmul_(step[:, None], direction)
        else:
            solution[active] += step[:, None] * direction
        residual = residual.addcmul_(step[:, None], image, value=-1.0)
        going &= sound & (dot(residual, residual).sqrt() > limit[active])
        left = int(going.sum())
        if left == 0:
            break
        # What belongs to a row is large: it is copied when enough rows have left, not for each of them.
        if left < _WORTH_LEAVING * len(active):
            active, residual, direction, rho = active[going], residual[going], direction[going], rho[going]
            own = _of(own, going)
            going = going[going]
        preconditioned = precondition(residual, active)
        following = dot(residual, preconditioned)
        direction = preconditioned.addcmul_(torch.where(going, following / rho, 0.0)[:, None], direction)
        rho = following
    return Solved(solution, count, work, reached)


def _step_lengths(
    problem: Problem, logits: Tensor, change: Tensor, parameters: Tensor, move: Tensor, rows: Tensor
) -> Tensor:
    """Exact line search along ``move``: the root of the directional derivative, by bracketed Newton.

    It costs no matrix product, since logits are linear in the length. Near the optimum the first trial, length 1,
    is accepted.
    """

    together = _of(problem.together, rows)

    def slopes(length: Tensor) -> tuple[Tensor, Tensor]:
        first, second = problem.slopes(logits + length * change, change, rows)
        at = parameters + length[:, None] * move
        first = first + problem.l2 * (at * move).sum(1)
        second = second + problem.l2 * move.square().sum(1)
        return _reduce(first, together), _reduce(second, together)

    length = torch.zeros(len(rows), dtype=torch.float64)
    start, _ = slopes(length)
    lower, upper = length.clone(), torch.full_like(length, math.inf)
    length = torch.ones_like(length)
    for _ in range(_MAX_LINE):
        slope, curvature = slopes(length)
        done = slope.abs() <= 0.3 * start.abs()
        if bool(done.all()):
            break
        lower = torch.where(slope < 0, length, lower)
        upper = torch.where(slope >= 0, length, upper)
        trial = length - slope / curvature.clamp_min(1e-300)
        inside = (trial > lower) & (trial < upper)
        middle = torch.where(upper.isinf(), 2 * length, 0.5 * (lower + upper))
        length = torch.where(done, length, torch.where(inside, trial, middle))
    return length


def minimise(
    problem: Problem, design: Tensor, start: Tensor, tolerance: float, logits: Tensor | None = None
) -> NewtonResult:
    """Minimise from ``start`` until the Frobenius norm of the whole gradient is at most ``tolerance``.

    ``logits`` are those of ``start``, where they are at hand.

    Gradients are float64 and Hessian products float32, so the outer loop is also iterative refinement: it reaches
    the rounding floor of float64. It stops there, whatever the tolerance. Where a system is too ill-conditioned for
    float32 (conjugate gradients break down, or the steps stop helping) its products become float64 too.
    """
    parameters = start.double().clone()
    every = torch.arange(len(parameters))
    # Independent rows may each use an equal share of the squared tolerance.
    one = problem.together is True
    share = tolerance if one else 0.5 * tolerance / math.sqrt(max(len(parameters), 1))
    logits = design @ parameters.T if logits is None else logits
    gradient = problem.gradient(logits, parameters, every)
    steps = products = 0
    work = 2 * len(parameters)
    best = float(gradient.norm())
    stalled = idle = 0
    dtype = torch.float32
    while steps < _MAX_NEWTON:
        breathe()
        norms = _row_norms(gradient, problem.together)
        rows = (norms > share).nonzero().flatten()
        if len(rows) == 0 or not math.isfinite(float(norms.max())) or stalled >= 3:
            break
        norms = norms[rows]
        multiply, precondition = problem.system(logits[:, rows], rows, dtype)
        # Inexact Newton: the system is solved the better the closer the optimum (superlinear), but never better
        # than the tolerance asks for. Unit right-hand sides keep float32 within its range.
        wanted = torch.where(norms < 1e-3, norms, norms.sqrt()).clamp(1e-5, 0.1)
        forcing = torch.maximum(wanted, (0.5 if one else 0.2) * share / norms).clamp_max(0.5).to(dtype)
        scaled = (gradient[rows] / norms[:, None]).to(dtype)
        together = _of(problem.together, rows)
        found = conjugate_gradients(multiply, precondition, scaled, forcing, together)
        products, work = products + found.products, work + found.work
        digits = math.log10(max(float(norms.max()) / share, 1.0))
        problem.solved(found.products / -math.log10(float(forcing.min())), digits)
        if not found.sound and dtype == torch.float32:
            dtype = torch.float64
            continue
        move = -found.solution.double() * norms[:, None]
        if problem.alike:
            # What the rows share is felt by the L2 alone, so its step is known exactly.
            shared = gradient.mean(0).div_(problem.l2)
            move -= move.mean(0).add_(shared)
        elif isinstance(problem.together, Tensor):
            move = problem.levelled(move, gradient[rows], rows)
        taken = None
        if float(norms.max()) < _UNIT_STEP_BELOW:
            # Here Newton's own length is mostly right; and logits are recomputed, not updated, or rounding adds up.
            trial = parameters[rows] + move
            trial_logits = design @ trial.T
            taken = trial, trial_logits, problem.gradient(trial_logits, trial, rows)
            if bool((_row_norms(taken[2], together) > norms).any()) and float(norms.max()) > _ROUNDING:
                taken = None
        if taken is None:
            change = design @ move.T
            length = _step_lengths(problem, logits[:, rows], change, parameters[rows], move, rows)
            trial, trial_logits = parameters[rows] + length[:, None] * move, logits[:, rows] + length * change
            taken = trial, trial_logits, problem.gradient(trial_logits, trial, rows)
        parameters[rows], logits[:, rows], gradient[rows] = taken
        steps, work = steps + 1, work + 2 * len(rows)
        reached = float(gradient.norm())
        idle = 0 if reached < 0.9 * best else idle + 1
        if idle == 3 and dtype == torch.float32:
            dtype, idle, stalled = torch.float64, 0, 0
        stalled = 0 if reached < 0.5 * best else stalled + (reached < 1e-9)
        best = min(best, reached)
    return NewtonResult(parameters, gradient, logits, steps, products, work + problem.extra_work)
