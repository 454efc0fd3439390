"""Products with the Hessian of a summed loss, by differentiating the gradient once more.

H v = ∂/∂θ (∇L(θ) · v), reverse over reverse (Pearlmutter, "Fast exact multiplication by the Hessian", 1994).
Forward over reverse needs derivatives that PyTorch does not have for GroupNorm and attention, and through
``torch.func.jacrev`` it has LayerNorm's wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn

__all__ = ["HessianProducts"]

Batches = Iterable[tuple[Tensor, Tensor]]


class HessianProducts:
    """The Hessian of Σ loss over all batches, at the parameters' present values, as something to multiply with.

    Parameters
    ----------
    module
        Maps a batch to logits.
    loss
        (logits, labels) → the sum of the losses of a batch.
    parameters
        Of the module; derivatives are taken with respect to them. They must require gradients.
    batches
        (inputs, labels), iterated over at every product.
    """

    def __init__(
        self,
        module: nn.Module,
        loss: Callable[[Tensor, Tensor], Tensor],
        parameters: Sequence[Tensor],
        batches: Batches,
    ) -> None:
        self._module, self._loss, self._parameters, self._batches = module, loss, list(parameters), batches

    def __matmul__(self, operand: Sequence[Tensor] | Tensor) -> list[Tensor] | Tensor:
        """With a vector as one tensor a parameter, or with the columns of a matrix (parameters, columns)."""
        return self._columns(operand) if isinstance(operand, Tensor) else self._product(operand)

    def _gradients(self) -> Iterable[list[Tensor]]:
        """The gradient of every batch, itself differentiable; zeros for parameters that the loss does not read."""
        for inputs, labels in self._batches:
            value = self._loss(self._module(inputs), labels)
            found = torch.autograd.grad(value, self._parameters, create_graph=True, allow_unused=True)
            yield [torch.zeros_like(p) if g is None else g for g, p in zip(found, self._parameters, strict=True)]

    def refuse_missing(self) -> None:
        """Raise if the gradient cannot be differentiated again everywhere.

        A function that may be differentiated once only leaves a node that raises when it is reached. It leads to no
        parameter, so asking for the parameters' derivatives passes it by and gives zeros in its place.
        """
        for gradient in self._gradients():
            seen, todo = set(), [part.grad_fn for part in gradient]
            while todo:
                node = todo.pop()
                if node is None or node in seen:
                    continue
                seen.add(node)
                if node.name() == "torch::autograd::Error":
                    raise NotImplementedError("a function that is marked as differentiable once")
                todo += [following for following, _ in node.next_functions]

    def _product(self, vector: Sequence[Tensor]) -> list[Tensor]:
        total = [torch.zeros_like(parameter) for parameter in self._parameters]
        for gradient in self._gradients():
            for sum_, part in zip(total, self._again(gradient, list(vector)), strict=True):
                sum_ += part
        return total

    def _columns(self, matrix: Tensor) -> Tensor:
        sizes = [parameter.numel() for parameter in self._parameters]
        total = torch.zeros_like(matrix)
        vectors = [
            part.T.reshape(-1, *parameter.shape)
            for part, parameter in zip(matrix.split(sizes), self._parameters, strict=True)
        ]
        for gradient in self._gradients():
            for column in range(matrix.shape[1]):
                parts = self._again(gradient, [vector[column] for vector in vectors], keep=True)
                total[:, column] += torch.cat([part.reshape(-1) for part in parts])
        return total

    def _again(self, gradient: list[Tensor], vector: list[Tensor], *, keep: bool = False) -> list[Tensor]:
        pairs = [(g, v) for g, v in zip(gradient, vector, strict=True) if g.requires_grad]
        if not pairs:
            return [torch.zeros_like(parameter) for parameter in self._parameters]
        outputs, directions = [g for g, _ in pairs], [v for _, v in pairs]
        found = torch.autograd.grad(outputs, self._parameters, directions, retain_graph=keep, allow_unused=True)
        return [torch.zeros_like(p) if g is None else g for g, p in zip(found, self._parameters, strict=True)]
