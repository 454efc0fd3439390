"""Adam in the curvature's own axes: a layer's weights turned into the eigenvectors of its Kronecker factors.

    W̃ = Q_outᵀ W Q_in,   with eigenvectors of the covariances of a layer's inputs and of its outputs' gradients

Adam divides every coordinate by its own size of gradient. That is a preconditioner for curvature that is diagonal,
and in these axes the curvature nearly is (docs/editing.md, "Deep backbones"). For a convolution the covariances are
those of channels, the same at every place of the kernel: a few samples are enough to fit them. The L2 is the same
in all axes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.optim.adam import adam

from ecbm.train.loop import FUSED

__all__ = ["Axes", "AxesAdam", "fit_axes", "turning_work"]

# What turning a layer there and back may cost, of a step of the layer: 2 (d_in + d_out) / (3 · batch · positions).
# convnet's layers are at .02 to .06 (48 px) and .01 to .13 (32 px), fully connected ones in batches of 64 above 2.
_WORTH_TURNING = 0.5


@dataclasses.dataclass(frozen=True)
class Axes:
    """Orthonormal axes of a layer's outputs and inputs, one a column."""

    outputs: Tensor
    inputs: Tensor

    def into(self, weight: Tensor) -> Tensor:
        """The weights along the axes, (outputs, places of the kernel · inputs)."""
        rows = weight.movedim(1, -1).reshape(-1, weight.shape[1]) @ self.inputs
        return self.outputs.T @ rows.view(weight.shape[0], -1)

    def back(self, turned: Tensor, shape: Sequence[int]) -> Tensor:
        """The inverse of :meth:`into`."""
        rows = (self.outputs @ turned).view(-1, shape[1]) @ self.inputs.T
        return rows.view(shape[0], *shape[2:], shape[1]).movedim(-1, 1)

    @property
    def turns(self) -> int:
        """Operations of turning one column of the kernel there and back."""
        o, i = len(self.outputs), len(self.inputs)
        return 4 * o * i * (o + i)


def turning_work(axes: Mapping[nn.Parameter, Axes]) -> float:
    """Operations that the axes add to a step."""
    return float(sum(turn.turns * weight[0, 0].numel() for weight, turn in axes.items()))


def fit_axes(part: nn.Module, maps: Tensor, weights: Tensor, batch: int, seed: int) -> dict[nn.Parameter, Axes]:
    """Axes of the layers that are worth turning, from a few samples.

    Parameters
    ----------
    part
        From maps to concept logits.
    maps, weights
        Samples, and the weights of their concept terms. Targets are drawn from what the model predicts (the true
        Fisher), so the axes are those of the model and not of labels that may be wrong.
    batch
        Samples in a step, on which it depends whether turning a layer is worth it.
    """
    layers = [layer for layer in part.modules() if isinstance(layer, nn.Linear | nn.Conv2d) and _can_turn(layer)]
    seen: dict[nn.Module, tuple[Tensor, Tensor]] = {}

    def watch(layer: nn.Module, given: tuple[Tensor, ...], out: Tensor) -> None:
        seen[layer] = given[0].detach(), out

    hooks = [layer.register_forward_hook(watch) for layer in layers]
    part.eval()
    try:
        logits = part(maps).float()
    finally:
        for hook in hooks:
            hook.remove()
    worth = [layer for layer in layers if layer in seen and _worth(layer, seen[layer][1], batch)]
    if not worth:
        return {}
    p = torch.sigmoid(logits.detach())
    drawn = torch.rand(p.shape, generator=torch.Generator().manual_seed(seed)) < p
    loss = nn.functional.binary_cross_entropy_with_logits(logits, drawn.float(), weight=weights, reduction="sum")
    gradients = torch.autograd.grad(loss, [seen[layer][1] for layer in worth], materialize_grads=True)
    return {
        cast(nn.Parameter, layer.weight): Axes(_eigenvectors(gradient), _eigenvectors(seen[layer][0]))
        for layer, gradient in zip(worth, gradients, strict=True)
    }


def _can_turn(layer: nn.Linear | nn.Conv2d) -> bool:
    return layer.weight.requires_grad and (isinstance(layer, nn.Linear) or layer.groups == 1)


def _worth(layer: nn.Linear | nn.Conv2d, out: Tensor, batch: int) -> bool:
    positions = out[0].numel() // layer.weight.shape[0]
    turned = 2 * sum(layer.weight.shape[:2])
    return turned < _WORTH_TURNING * 3 * batch * positions


def _eigenvectors(values: Tensor) -> Tensor:
    """Of the covariance of channels, over samples and positions."""
    channels = values.movedim(1, -1).reshape(-1, values.shape[1]).cpu().double()
    vectors: Tensor = torch.linalg.eigh(channels.T @ channels).eigenvectors
    return vectors.float().to(values.device)


class AxesAdam:
    """Adam with the L2 in its gradient, along given axes for some parameters and as they lie for the others.

    It is PyTorch's function without its optimiser object, whose first use loads the compiler: a second, a whole
    budget. ``shares`` are shares of the learning rate, one a parameter; all of it by default.
    """

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        weight_decay: float,
        axes: Mapping[nn.Parameter, Axes],
        shares: Sequence[float] | None = None,
    ) -> None:
        self.parameters, self.weight_decay = list(parameters), weight_decay
        shares = shares or [1.0] * len(self.parameters)
        self.groups = [
            (share, [n for n, own in enumerate(shares) if own == share]) for share in sorted(set(shares))
        ]
        self.axes = [axes.get(parameter) for parameter in self.parameters]
        with torch.no_grad():
            self.values = [
                parameter.detach() if turn is None else turn.into(parameter)
                for parameter, turn in zip(self.parameters, self.axes, strict=True)
            ]
        self.means = [torch.zeros_like(value) for value in self.values]
        self.squares = [torch.zeros_like(value) for value in self.values]
        self.counts = [torch.zeros((), device=value.device) for value in self.values]

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor], learning_rate: float) -> None:
        along = [
            _lying_as(gradient if turn is None else turn.into(gradient), value)
            for gradient, turn, value in zip(gradients, self.axes, self.values, strict=True)
        ]
        for share, group in self.groups:
            every = (self.values, along, self.means, self.squares, self.counts)
            values, given, means, squares, counts = ([tensors[n] for n in group] for tensors in every)
            adam(
                values,
                given,
                means,
                squares,
                [],
                counts,
                fused=values[0].device.type in FUSED,
                amsgrad=False,
                beta1=0.9,
                beta2=0.999,
                lr=learning_rate * share,
                weight_decay=self.weight_decay,
                eps=1e-8,
                maximize=False,
            )
        for parameter, turn, value in zip(self.parameters, self.axes, self.values, strict=True):
            if turn is not None:
                parameter.copy_(turn.back(value, parameter.shape))


def _lying_as(gradient: Tensor, value: Tensor) -> Tensor:
    """The fused kernel goes through memory: gradients must lie as their parameters do."""
    return gradient if gradient.stride() == value.stride() else torch.empty_like(value).copy_(gradient)
