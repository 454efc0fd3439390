"""Layers with a Kronecker block: what they add up in the first pass, and the squared gradients of the second.

A layer is a matrix W (bias folded in as a last column) applied at T positions: the samples' one row, the
tokens of a sequence, or the patches of a picture. With a_t its input and s_t the loss's gradient at its
output there, the gradient of sample i is G_i = Σ_t s_t a_tᵀ, and

    Ω = (1/n) Σ_i Σ_t a aᵀ     Γ = (1/(nT)) Σ_i Σ_t s sᵀ     Λ* = (1/n) Σ_i (Q_Γᵀ G_i Q_Ω)²

(docs/method.md, "Curvature"; George et al., "Fast approximate natural gradient descent in a Kronecker-factored
eigenbasis", NeurIPS 2018; Grosse and Martens, "A Kronecker-factored approximate Fisher matrix for convolution
layers", ICML 2016). A convolution with g groups has g independent matrices, hence g blocks; every tensor here
has the groups as its first dimension. Averaging the groups' inputs, as is sometimes done, is not exact.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from ecbm.curvature.squares import add_pairs_, add_products_, cheapest_way
from ecbm.matrices import add_gram_, add_product_, multiply

__all__ = ["Layer", "LinearLayer", "Sums"]

Sums = dict[str, Tensor]
Use = tuple[Tensor, Tensor]
"""Input and output gradient of one use of a module."""

CHUNK_ELEMENTS = 1 << 21


def chunks(count: int, elements_each: int, limit: int = CHUNK_ELEMENTS) -> Iterator[slice]:
    """Slices of ``range(count)`` whose working memory stays near ``limit`` numbers."""
    step = max(1, limit // max(elements_each, 1))
    for start in range(0, count, step):
        yield slice(start, min(start + step, count))


class Layer(ABC):
    """One Kronecker block: a module, the names of its parameters, and the sums it needs.

    Attributes
    ----------
    name
        Name of the module.
    weight, bias
        Names of the parameters; ``bias`` is ``None`` for a layer without.
    groups, inputs, outputs
        Number of blocks and the sizes of each: G is outputs × inputs, the bias not counted.
    """

    def __init__(self, name: str, module: nn.Module, weight: str, bias: str | None) -> None:
        matrix = module.weight
        assert isinstance(matrix, Tensor)
        self.name, self.module, self.weight, self.bias = name, module, weight, bias
        self.shape = tuple(matrix.shape)
        self.dtype, self.device = matrix.dtype, matrix.device
        self.groups = int(getattr(module, "groups", 1))
        self.outputs = matrix.shape[0] // self.groups
        self.inputs = math.prod(matrix.shape[1:])

    @property
    def columns(self) -> int:
        """Columns of the block's matrix, the bias's included."""
        return self.inputs + (self.bias is not None)

    @property
    def parameters(self) -> list[str]:
        return [self.weight] if self.bias is None else [self.weight, self.bias]

    def describe(self) -> dict[str, object]:
        """What a stored block must agree on with the module it is loaded for."""
        return {
            "name": self.name,
            "weight": self.weight,
            "bias": self.bias,
            "shape": list(self.shape),
            "groups": self.groups,
            "dtype": str(self.dtype).removeprefix("torch."),
        }

    def zeros(self, *shape: int) -> Tensor:
        return torch.zeros(shape, dtype=self.dtype, device=self.device)

    # Parameters as matrices

    def to_matrix(self, vector: dict[str, Tensor]) -> Tensor:
        """groups × outputs × columns."""
        matrix = vector[self.weight].reshape(self.groups, self.outputs, self.inputs)
        if self.bias is None:
            return matrix
        column = vector[self.bias].reshape(self.groups, self.outputs, 1)
        return torch.cat([matrix, column], 2)

    def from_matrix(self, matrix: Tensor) -> dict[str, Tensor]:
        if self.bias is None:
            return {self.weight: matrix.reshape(self.shape)}
        weight, bias = matrix[..., : self.inputs], matrix[..., self.inputs]
        return {self.weight: weight.reshape(self.shape), self.bias: bias.reshape(-1)}

    # First pass

    def output_sums(self) -> Sums:
        return {"output": self.zeros(self.groups, self.outputs, self.outputs)}

    @abstractmethod
    def input_sums(self) -> Sums: ...

    @abstractmethod
    def add_input(self, sums: Sums, activations: Tensor) -> None: ...

    @abstractmethod
    def add_output(self, sums: Sums, gradients: Tensor) -> None: ...

    @abstractmethod
    def input_sum_matrix(self, sums: Sums) -> Tensor:
        """Σ_i Σ_t a aᵀ, groups × columns × columns, from the sums; only the upper triangle counts."""

    def output_sum_matrix(self, sums: Sums) -> Tensor:
        """Σ_i Σ_t s sᵀ, groups × outputs × outputs; only the upper triangle counts."""
        return sums["output"]

    def positions(self, gradients: Tensor) -> int:
        """T of one use."""
        return gradients[0].numel() // (self.groups * self.outputs)

    # Second pass

    def add_squares(self, total: Tensor, uses: list[Use], left: Tensor, right: Tensor) -> None:
        """Add Σ_i (leftᵀ G_i right)² to ``total``, groups × outputs × columns."""
        positions = sum(self.positions(gradients) for _, gradients in uses)
        way = cheapest_way(positions, self.outputs, self.columns)
        pairs = positions * (positions - 1) // 2 if way == "pairs" else 0
        size = (positions + pairs) * (self.outputs + 2 * self.columns)
        if way == "gradients":
            size = 2 * self.outputs * self.columns
        for part in chunks(len(uses[0][0]), self.groups * size):
            if way == "gradients":
                total += self.rotated_gradients([(a[part], s[part]) for a, s in uses], left, right).square_().sum(0)
                continue
            outputs = [self.rotated_outputs(gradients[part], left) for _, gradients in uses]
            inputs = [self.rotated_inputs(activations[part], right) for activations, _ in uses]
            add = add_pairs_ if way == "pairs" else add_products_
            add(total, _together(outputs), _together(inputs))

    @abstractmethod
    def rotated_inputs(self, activations: Tensor, right: Tensor) -> Tensor:
        """aᵀ Q_Ω at every position, groups × samples × positions × columns."""

    @abstractmethod
    def rotated_outputs(self, gradients: Tensor, left: Tensor) -> Tensor:
        """sᵀ Q_Γ at every position, groups × samples × positions × outputs."""

    def rotated_gradients(self, uses: list[Use], left: Tensor, right: Tensor) -> Tensor:
        """leftᵀ G_i right of every sample, samples × groups × outputs × columns."""
        product, sums = self.products(*uses[0])
        for activations, gradients in uses[1:]:
            more, more_sums = self.products(activations, gradients)
            product, sums = product + more, sums if more_sums is None or sums is None else sums + more_sums
        return self.rotate_product(product, sums, left, right)

    def gradients(self, activations: Tensor, gradients: Tensor) -> Tensor:
        """G_i of every sample, samples × groups × outputs × columns."""
        product, sums = self.products(activations, gradients)
        return product if sums is None else torch.cat([product, sums[..., None]], 3)

    @abstractmethod
    def products(self, activations: Tensor, gradients: Tensor) -> tuple[Tensor, Tensor | None]:
        """Σ_t s aᵀ of every sample without the bias's column, and that column if there is one."""

    def rotate_product(self, product: Tensor, sums: Tensor | None, left: Tensor, right: Tensor) -> Tensor:
        """leftᵀ [product | sums] right, for samples × groups × outputs × inputs."""
        if self.groups == 1:
            count = len(product)
            flat = product.reshape(-1, self.inputs) @ right[0, : self.inputs]
            rotated = flat.view(count, self.outputs, self.columns)
            if sums is not None:
                rotated += sums.view(count, self.outputs, 1) * right[0, self.inputs]
            return torch.matmul(left[0].T, rotated)[:, None]
        rotated = torch.matmul(product, right[:, : self.inputs])
        if sums is not None:
            rotated += sums[..., None] * right[:, self.inputs, None, :]
        return torch.matmul(left.transpose(1, 2), rotated)


def _together(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, 2)


class LinearLayer(Layer):
    """``nn.Linear`` on one row a sample, or on any number of rows (tokens) a sample."""

    def input_sums(self) -> Sums:
        sums = {"gram": self.zeros(self.inputs, self.inputs)}
        if self.bias is not None:
            sums["sum"] = self.zeros(self.inputs)
            sums["count"] = self.zeros(1)
        return sums

    def add_input(self, sums: Sums, activations: Tensor) -> None:
        rows = activations.reshape(-1, self.inputs)
        add_gram_(sums["gram"], rows)
        if self.bias is not None:
            sums["sum"] += rows.sum(0)
            sums["count"] += len(rows)

    def input_sum_matrix(self, sums: Sums) -> Tensor:
        matrix = sums["gram"]
        if self.bias is not None:
            matrix = border(matrix, sums["sum"], sums["count"])
        return matrix[None]

    def add_output(self, sums: Sums, gradients: Tensor) -> None:
        add_gram_(sums["output"][0], gradients.reshape(-1, self.outputs))

    def rotated_inputs(self, activations: Tensor, right: Tensor) -> Tensor:
        rows = activations.reshape(-1, self.inputs)
        if self.bias is None:
            rotated = multiply(rows, right[0])
        else:
            rotated = right[0, self.inputs].repeat(len(rows), 1)
            add_product_(rotated, rows, right[0, : self.inputs])
        return rotated.view(1, len(activations), -1, self.columns)

    def rotated_outputs(self, gradients: Tensor, left: Tensor) -> Tensor:
        rotated = multiply(gradients.reshape(-1, self.outputs), left[0])
        return rotated.view(1, len(gradients), -1, self.outputs)

    def products(self, activations: Tensor, gradients: Tensor) -> tuple[Tensor, Tensor | None]:
        inputs = activations.reshape(len(gradients), -1, self.inputs)
        outputs = gradients.reshape(len(gradients), -1, self.outputs)
        product = torch.bmm(outputs.transpose(1, 2), inputs)[:, None]
        return product, outputs.sum(1)[:, None] if self.bias is not None else None


def border(matrix: Tensor, sums: Tensor, count: Tensor) -> Tensor:
    """[[matrix, sums], [·, count]]: the moment matrix of rows with a 1 appended, its upper triangle."""
    size = len(matrix)
    whole = matrix.new_zeros(size + 1, size + 1)
    whole[:size, :size] = matrix
    whole[:size, size] = sums
    whole[size, size] = count[0]
    return whole
