"""The exact Hessian and Gauss-Newton matrix of the objective; the latter through curvlinops.

Dense where the model is small; otherwise conjugate gradients, with EK-FAC as the preconditioner (Hestenes and
Stiefel 1952; Martens, "Deep learning via Hessian-free optimization", ICML 2010).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from ecbm.curvature.blocks import Selection, _selector
from ecbm.curvature.capture import evaluating
from ecbm.curvature.ekfac import EKFAC, Vector
from ecbm.curvature.hessian import HessianProducts
from ecbm.curvature.losses import Loss
from ecbm.curvature.sources import InputSource, Source
from ecbm.errors import InputError, unknown_name
from ecbm.progress import breathe

__all__ = ["ExactOperator", "NoDerivativeError", "Solution"]

MAXIMUM_DENSE = 20_000
_KINDS = ("hessian", "gauss-newton")


class NoDerivativeError(InputError):
    """A layer whose second derivative PyTorch does not have: no damping helps, and no other exact matrix."""


class _RowLoss(nn.Module):
    """A loss whose labels are row numbers; weights and missing labels stay where they are."""

    reduction = "sum"

    def __init__(self, loss: Loss) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, logits: Tensor, rows: Tensor) -> Tensor:
        return self.loss.values(logits, rows.cpu()).sum()


@dataclass(frozen=True)
class Solution:
    """Result of a conjugate-gradient solve.

    ``residual`` is |(H + δ)x − v| / |v|; ``converged`` whether it reached the tolerance.
    """

    vector: Vector
    iterations: int
    residual: float
    converged: bool


class ExactOperator:
    """Hessian or Gauss-Newton matrix of (1/n) Σ ℓ_i + (l2/2)|θ|² at the module's parameters.

    Parameters
    ----------
    module, inputs, loss, l2, batch_size, parameters
        As for :meth:`EKFAC.fit`. All parameters must have one dtype.
    kind
        ``"hessian"`` or ``"gauss-newton"`` (positive semi-definite).

    Examples
    --------
    >>> from ecbm.curvature import ConceptLoss
    >>> model = nn.Linear(4, 3).double()
    >>> x = torch.randn(50, 4, dtype=torch.float64)
    >>> exact = ExactOperator(model, x, ConceptLoss((x[:, :3] > 0).double()), l2=0.1)
    >>> exact.dense().shape
    torch.Size([15, 15])
    """

    def __init__(
        self,
        module: nn.Module,
        inputs: Tensor | InputSource,
        loss: Loss,
        *,
        kind: Literal["hessian", "gauss-newton"] = "gauss-newton",
        l2: float = 0.0,
        batch_size: int = 128,
        parameters: Selection = None,
    ) -> None:
        if kind not in _KINDS:
            raise InputError(f"kind is {kind!r}; expected one of {', '.join(_KINDS)}")
        if not math.isfinite(l2) or l2 < 0:
            raise InputError(f"l2 is {l2}; expected a finite number of at least 0")
        source = Source(inputs, module)
        if len(loss) != len(source):
            raise InputError(f"{len(source)} inputs but the loss has {len(loss)} rows; they must match")
        named = dict(module.named_parameters())
        chosen = _selector(parameters, list(named))
        self._parameters = {name: parameter for name, parameter in named.items() if chosen(name)}
        types = {parameter.dtype for parameter in self._parameters.values()}
        if len(types) != 1 or types.pop() not in (torch.float32, torch.float64):
            raise InputError("exact operators need all chosen parameters in float32, or all in float64")
        self._module, self._l2, self._samples = module, float(l2), len(source)
        # Two samples tell whether the product exists at all, before somebody waits for it.
        few = range(min(2, len(source)))
        first = [(source.read(few), torch.arange(len(few)))]
        zeros = [torch.zeros_like(parameter) for parameter in self._parameters.values()]
        self._apply(zeros, self._operator_on(kind, loss, first, len(few)))
        self._operator = self._operator_on(kind, loss, _Batches(source, batch_size), len(source))

    def _operator_on(self, kind: str, loss: Loss, batches: Any, count: int) -> Any:
        parameters, summed = list(self._parameters.values()), _RowLoss(loss)
        if kind == "hessian":
            return HessianProducts(self._module, summed, parameters, batches)
        import curvlinops

        with evaluating(self._module, gradients=True):
            return curvlinops.GGNLinearOperator(
                self._module, summed, parameters, batches, check_deterministic=False, num_data=count
            )

    @property
    def names(self) -> list[str]:
        """The parameters, in the order of :meth:`dense`."""
        return list(self._parameters)

    def multiply(self, vector: Vector) -> Vector:
        """H vector, L2 included. Absent parameters count as 0; the result has all of them."""
        for name, value in vector.items():
            if name not in self._parameters:
                raise unknown_name("parameter", name, self._parameters)
            if value.shape != self._parameters[name].shape:
                raise InputError(
                    f"vector entry {name!r} has shape {tuple(value.shape)}; "
                    f"the parameter has {tuple(self._parameters[name].shape)}"
                )
        parts = [vector.get(name, torch.zeros_like(p)).detach() for name, p in self._parameters.items()]
        products = self._apply(parts)
        return {
            name: product.detach() / self._samples + self._l2 * part
            for name, product, part in zip(self._parameters, products, parts, strict=True)
        }

    def _apply(self, operand: Any, operator: Any = None) -> Any:
        # Of the ways to compute attention, only the one by plain products has a second derivative.
        with evaluating(self._module, gradients=True), sdpa_kernel(SDPBackend.MATH):
            try:
                if isinstance(operator, HessianProducts):
                    operator.refuse_missing()
                return (self._operator if operator is None else operator) @ operand
            except (NotImplementedError, RuntimeError) as error:
                # Other failures than a missing derivative show in the product of two samples too; memory does not.
                if operator is None and not isinstance(error, NotImplementedError):
                    raise
                reason = (str(error).splitlines() or [type(error).__name__])[0]
                why = f"a layer of the model has no second derivative in torch ({reason})"
                raise NoDerivativeError(f"{why}; use EK-FAC (method='ekfac')") from None

    def dense(self) -> Tensor:
        """The whole matrix; small models only."""
        size = sum(parameter.numel() for parameter in self._parameters.values())
        if size > MAXIMUM_DENSE:
            raise InputError(
                f"a dense matrix of {size} parameters is too large (at most {MAXIMUM_DENSE}); use solve()"
            )
        first = next(iter(self._parameters.values()))
        eye = torch.eye(size, dtype=first.dtype, device=first.device)
        matrix: Tensor = self._apply(eye).detach() / self._samples
        return (matrix + matrix.T) / 2 + self._l2 * eye

    def solve_dense(self, vector: Vector, damping: float = 0.0) -> Vector:
        """(H + damping)⁻¹ vector by factoring the whole matrix, in float64."""
        _check_damping(damping)
        flat = torch.cat([vector[name].reshape(-1) for name in self.names]).double()
        matrix = self.dense().double()
        matrix.diagonal().add_(damping)
        solution, trouble = torch.linalg.solve_ex(matrix, flat)
        if int(trouble) != 0 or not bool(torch.isfinite(solution).all()):
            raise InputError(f"damping {damping:g} leaves the matrix singular; use a larger damping or l2")
        result, place = {}, 0
        for name, parameter in self._parameters.items():
            part = solution[place : place + parameter.numel()]
            result[name] = part.reshape(parameter.shape).to(parameter.dtype)
            place += parameter.numel()
        return result

    def solve(
        self,
        vector: Vector,
        damping: float = 0.0,
        *,
        preconditioner: EKFAC | None = None,
        tolerance: float = 1e-6,
        iterations: int = 100,
    ) -> Solution:
        """(H + damping)⁻¹ vector by preconditioned conjugate gradients.

        Parameters not covered by ``preconditioner`` are preconditioned by 1/(l2 + damping).
        """
        _check_damping(damping)
        right = {name: vector.get(name, torch.zeros_like(p)) for name, p in self._parameters.items()}
        shift = self._l2 + damping

        def prepare(residual: Vector) -> Vector:
            if preconditioner is None:
                return residual
            covered = preconditioner.restrict(residual)
            done = preconditioner.solve(covered, _own_damping(preconditioner, shift))
            scale = 1 / shift if shift > 0 else 1.0
            return {name: done.get(name, value * scale) for name, value in residual.items()}

        solution = {name: torch.zeros_like(value) for name, value in right.items()}
        size = math.sqrt(_dot(right, right))
        if size == 0:
            return Solution(solution, 0, 0.0, True)
        residual = {name: value.clone() for name, value in right.items()}
        prepared = prepare(residual)
        direction = dict(prepared)
        inner = _dot(residual, prepared)
        steps, relative = 0, 1.0
        while steps < iterations and relative > tolerance:
            breathe()
            product = self.multiply(direction)
            product = {name: value + damping * direction[name] for name, value in product.items()}
            bend = _dot(direction, product)
            if not bend > 0:
                raise InputError(
                    f"the matrix with damping {damping:g} is not positive definite (curvature {bend:.3g} met after "
                    f"{steps} steps); use a larger damping or kind='gauss-newton'"
                )
            length = inner / bend
            # new tensors: without a preconditioner, the direction is the residual itself
            solution = {name: value + length * direction[name] for name, value in solution.items()}
            residual = {name: value - length * product[name] for name, value in residual.items()}
            steps += 1
            relative = math.sqrt(_dot(residual, residual)) / size
            prepared = prepare(residual)
            new_inner = _dot(residual, prepared)
            direction = {n: prepared[n] + (new_inner / inner) * direction[n] for n in direction}
            inner = new_inner
        return Solution(solution, steps, relative, relative <= tolerance)


def _own_damping(preconditioner: EKFAC, shift: float) -> float:
    return max(shift - preconditioner.settings.l2, 0.0)


def _check_damping(damping: float) -> None:
    if not math.isfinite(damping) or damping < 0:
        raise InputError(f"damping is {damping}; expected a finite number of at least 0")


def _dot(first: Vector, second: Vector) -> float:
    return sum(float((first[name].double() * second[name].double()).sum()) for name in first)


class _Batches:
    """(inputs, row numbers), read anew at every pass."""

    def __init__(self, source: Source, batch_size: int) -> None:
        self.source, self.batch_size = source, batch_size

    def __iter__(self) -> Any:
        for start in range(0, len(self.source), self.batch_size):
            rows = range(start, min(start + self.batch_size, len(self.source)))
            yield self.source.read(rows), torch.arange(rows.start, rows.stop)

    def __len__(self) -> int:
        return -(-len(self.source) // self.batch_size)
