"""Affine parameters of normalisation layers: one small block each, the layer's exact Fisher matrix.

With x̂ the normalised input, the gradient of sample i is (Σ_t s x̂, Σ_t s), a vector of 2C numbers; the block
is the mean of its outer products, kept densely. BatchNorm is taken with frozen statistics, x̂ = (x − μ)/σ.
"""

from __future__ import annotations

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from ecbm.curvature.layers import Use, chunks

__all__ = ["MAXIMUM_PARAMETERS", "NormalisationLayer"]

MAXIMUM_PARAMETERS = 4096
"""Largest dense block that is kept; a wider layer is listed as not covered."""

_CHUNK_ELEMENTS = 1 << 18


class NormalisationLayer:
    """BatchNorm (eval), GroupNorm or LayerNorm with affine parameters."""

    def __init__(self, name: str, module: nn.Module, weight: str | None, bias: str | None) -> None:
        self.name, self.module, self.weight, self.bias = name, module, weight, bias
        known = module.weight if weight is not None else module.bias
        assert isinstance(known, Tensor)
        self.shape = tuple(known.shape)
        self.dtype, self.device = known.dtype, known.device
        self.width = known.numel()

    @property
    def parameters(self) -> list[str]:
        return [name for name in (self.weight, self.bias) if name is not None]

    @property
    def size(self) -> int:
        return self.width * len(self.parameters)

    def describe(self) -> dict[str, object]:
        return {
            "name": self.name,
            "weight": self.weight,
            "bias": self.bias,
            "shape": list(self.shape),
            "dtype": str(self.dtype).removeprefix("torch."),
        }

    def to_row(self, vector: dict[str, Tensor]) -> Tensor:
        return torch.cat([vector[name].reshape(-1) for name in self.parameters])

    def from_row(self, row: Tensor) -> dict[str, Tensor]:
        parts = torch.split(row, self.width)
        return {name: part.reshape(self.shape) for name, part in zip(self.parameters, parts, strict=True)}

    def gradients(self, uses: list[Use]) -> Tensor:
        """Gradient of every sample, samples × size."""
        count = len(uses[0][0])
        result = torch.zeros(count, self.size, dtype=self.dtype, device=self.device)
        for activations, gradients in uses:
            elements = activations[0].numel()
            for part in chunks(count, elements, _CHUNK_ELEMENTS):
                result[part] += self._one(activations[part], gradients[part])
        return result

    def _one(self, activations: Tensor, gradients: Tensor) -> Tensor:
        module, parts = self.module, []
        if isinstance(module, nn.LayerNorm):
            shape = (len(gradients), -1, self.width)
            if self.weight is not None:
                normal = functional.layer_norm(activations, module.normalized_shape, eps=module.eps)
                parts.append((normal * gradients).reshape(shape).sum(1))
            if self.bias is not None:
                parts.append(gradients.reshape(shape).sum(1))
            return torch.cat(parts, 1)
        shape = (len(gradients), self.width, -1)
        sums = gradients.reshape(shape).sum(2)
        if self.weight is not None:
            if isinstance(module, nn.GroupNorm):
                normal = functional.group_norm(activations, module.num_groups, eps=module.eps)
                parts.append((normal * gradients).reshape(shape).sum(2))
            else:
                assert isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d)
                assert module.running_mean is not None
                assert module.running_var is not None
                scale = torch.rsqrt(module.running_var + module.eps)
                # centred before the sum: a mean far from 0 would otherwise cancel digits
                mean = module.running_mean.reshape(self.width, *[1] * (activations.dim() - 2))
                product = ((activations - mean) * gradients).reshape(shape).sum(2)
                parts.append(product * scale)
        if self.bias is not None:
            parts.append(sums)
        return torch.cat(parts, 1)
