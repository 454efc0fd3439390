"""``nn.Conv2d`` as a Kronecker block, without building the patches where they can be avoided.

Patches hold every pixel k² times, so unfolding dominates the cost of published implementations. Here

- Ω of a 3×3, stride-1, zero-padded convolution comes from the C×C correlations of the input with shifts of
  itself: the block of offsets (k, l) is the correlation at shift l − k, less the rows and columns that fall
  off the border. All are one convolution's weight gradient (a 3×5 kernel of shifts, the rest by symmetry).
- the gradient of every sample alone is one grouped convolution's weight gradient, samples as groups
  (Rochette et al., "Efficient per-example gradient computations in convolutional networks", 2019).
- everything else is unfolded a few samples at a time.
"""

from __future__ import annotations

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from ecbm.curvature.layers import Layer, Sums, border, chunks
from ecbm.matrices import add_gram_

__all__ = ["ConvolutionLayer"]

_CACHED_ELEMENTS = 1 << 19
_LONG_ROWS = 128
"""Positions from which a sample's own matrix product is worth a call."""


def _weight_gradient(
    gradients: Tensor,
    activations: Tensor,
    shape: tuple[int, ...],
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
    groups: int,
) -> Tensor:
    # Only the shape of the weight is read, so one number stands for all of it
    weight = activations.new_empty(1).expand(shape)
    result: Tensor = torch.ops.aten.convolution_backward(
        gradients,
        activations,
        weight,
        None,
        list(stride),
        list(padding),
        list(dilation),
        False,
        [0, 0],
        groups,
        [False, True, False],
    )[1]
    return result


def _correlate(above: Tensor, below: Tensor) -> Tensor:
    """Σ x[:, u] y[:, u + d]ᵀ for shifts d of 0 to 2 rows down and −2 to 2 columns, channels × channels × 3 × 5."""
    size = above.shape[1]
    return _weight_gradient(above, below, (size, size, 3, 5), (1, 1), (0, 2), (1, 1), 1)


def _pair(value: int | tuple[int, ...]) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (value[0], value[1])


class ConvolutionLayer(Layer):
    """``nn.Conv2d`` with any stride, padding (numbers or words, any mode), dilation, groups and bias."""

    input_dimensions = 4

    def __init__(self, name: str, module: nn.Module, weight: str, bias: str | None) -> None:
        assert isinstance(module, nn.Conv2d)
        super().__init__(name, module, weight, bias)
        self.kernel = _pair(module.kernel_size)
        self.stride, self.dilation = _pair(module.stride), _pair(module.dilation)
        self.channels = module.in_channels
        self.margins: list[int] | None = None
        self.mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
        if module.padding == "valid":
            self.padding = (0, 0)
        elif module.padding == "same":
            sides: list[tuple[int, int]] = []
            for size, step in zip(self.kernel, self.dilation, strict=True):
                whole = step * (size - 1)
                sides.append((whole // 2, whole - whole // 2))
            (top, bottom), (before, after) = sides
            if top == bottom and before == after:
                self.padding = (top, before)
            else:
                self.padding, self.margins = (0, 0), [before, after, top, bottom]
        else:
            assert not isinstance(module.padding, str)
            self.padding = _pair(module.padding)
        if self.mode != "constant" and self.margins is None and self.padding != (0, 0):
            rows, columns = self.padding
            self.padding, self.margins = (0, 0), [columns, columns, rows, rows]

    @property
    def shifts(self) -> bool:
        """Whether Ω comes from shifted correlations."""
        return (
            self.kernel == (3, 3)
            and self.stride == (1, 1)
            and self.dilation == (1, 1)
            and self.padding == (1, 1)
            and self.groups == 1
            and self.margins is None
        )

    def padded(self, activations: Tensor) -> Tensor:
        """The input with margins that the convolution itself cannot add symmetrically as zeros."""
        if self.margins is None:
            return activations
        return functional.pad(activations, self.margins, mode=self.mode)

    def patches(self, activations: Tensor) -> Tensor:
        """samples × groups × inputs × positions."""
        activations = self.padded(activations)
        if self.kernel == (1, 1) and self.padding == (0, 0):
            columns = activations[:, :, :: self.stride[0], :: self.stride[1]].flatten(2)
        else:
            columns = functional.unfold(activations, self.kernel, self.dilation, self.padding, self.stride)
        return columns.reshape(len(activations), self.groups, self.inputs, -1)

    # First pass

    def input_sums(self) -> Sums:
        size = self.channels
        if self.shifts:
            sums = {
                "shifts": self.zeros(size, size, 3, 5),
                "edges": self.zeros(4, 3, size, size),
                "corners": self.zeros(4, size, size),
            }
            if self.bias is not None:
                sums["sum"] = self.zeros(9, size)
                sums["count"] = self.zeros(1)
            return sums
        sums = {"gram": self.zeros(self.groups, self.inputs, self.inputs)}
        if self.bias is not None:
            sums["sum"] = self.zeros(self.groups, self.inputs)
            sums["count"] = self.zeros(1)
        return sums

    def add_input(self, sums: Sums, activations: Tensor) -> None:
        if self.shifts:
            self._add_shifts(sums, activations)
            return
        for part in chunks(len(activations), self._patch_elements(activations)):
            columns = self.patches(activations[part])
            self._add_columns(sums["gram"], columns)
            if self.bias is not None:
                sums["sum"] += columns.sum((0, 3))
                sums["count"] += len(columns) * columns.shape[3]

    def _patch_elements(self, activations: Tensor) -> int:
        height, width = self.padded(activations[:1]).shape[2:]
        places = 1
        for axis, size in enumerate((height, width)):
            reach = self.dilation[axis] * (self.kernel[axis] - 1) + 1
            places *= (size + 2 * self.padding[axis] - reach) // self.stride[axis] + 1
        return self.groups * self.inputs * places

    def _add_columns(self, total: Tensor, columns: Tensor) -> None:
        """Add Σ c cᵀ of samples × groups × size × positions."""
        if self.groups > 1:
            rows = columns.permute(1, 2, 0, 3).flatten(2)
            total += torch.bmm(rows, rows.transpose(1, 2))
        elif columns.shape[3] >= _LONG_ROWS:
            for sample in columns:
                add_gram_(total[0], sample[0].T)
        else:
            add_gram_(total[0], columns[:, 0].transpose(1, 2).flatten(0, 1))

    def add_output(self, sums: Sums, gradients: Tensor) -> None:
        columns = gradients.reshape(len(gradients), self.groups, self.outputs, -1)
        if self.groups == 1 and self.outputs < _LONG_ROWS and columns.shape[3] >= _LONG_ROWS:
            square = columns[:, 0]
            sums["output"][0] += torch.bmm(square, square.transpose(1, 2)).sum(0)
        else:
            self._add_columns(sums["output"], columns)

    def _add_shifts(self, sums: Sums, activations: Tensor) -> None:
        count, size, height, width = activations.shape
        if height > 2:
            # all rows but the last two have two rows below them; a few samples at a time stay in the cache
            for part in chunks(count, size * height * width, _CACHED_ELEMENTS):
                whole = activations[part]
                sums["shifts"] += _correlate(whole[:, :, :-2].contiguous(), whole)
        tail = activations[:, :, -2:].contiguous()
        sums["shifts"] += _correlate(tail, functional.pad(tail, (0, 0, 0, 2)))
        # first row, last row, first column, last column: each a line that some offsets do not see
        lines = (activations[:, :, 0], activations[:, :, -1], activations[..., 0], activations[..., -1])
        for place, line in enumerate(lines):
            flat = line.transpose(0, 1).contiguous()
            length = flat.shape[2]
            for shift in range(min(3, length)):
                first = flat[:, :, : length - shift].reshape(size, -1)
                second = flat[:, :, shift:].reshape(size, -1)
                sums["edges"][place, shift].addmm_(first, second.T)
        for place, pixel in enumerate(_corners(activations)):
            sums["corners"][place].addmm_(pixel.T, pixel)
        if self.bias is not None:
            parts = [activations.sum((0, 2, 3)), *(line.sum((0, 2)) for line in lines)]
            parts += [pixel.sum(0) for pixel in _corners(activations)]
            sums["sum"] += torch.stack(parts)
            sums["count"] += count * height * width

    def input_sum_matrix(self, sums: Sums) -> Tensor:
        if self.shifts:
            return self._from_shifts(sums)[None]
        matrix = sums["gram"]
        if self.bias is None:
            return matrix
        return torch.stack(
            [border(matrix[g], sums["sum"][g], sums["count"]) for g in range(self.groups)],
        )

    def _from_shifts(self, sums: Sums) -> Tensor:
        """Σ a aᵀ of the patches from correlations at 15 shifts and what the border takes away.

        Offset 0 of three looks one pixel back, so to see the last row it would need a position beyond the
        picture: the pair of offsets (0, 0) never sees the last row, (2, 2) never the first. Any other pair of
        rows is cut by the picture itself, which the correlation already respects. The same holds for columns,
        and what both take away, a corner pixel, is given back once.
        """
        size = self.channels
        shifts, edges, corners = sums["shifts"], sums["edges"], sums["corners"]
        matrix = shifts.new_empty(size, 3, 3, size, 3, 3)

        def line(place: int, shift: int) -> Tensor:
            return edges[place, shift] if shift >= 0 else edges[place, -shift].T

        for row in range(3):
            for column in range(3):
                for other_row in range(3):
                    for other_column in range(3):
                        down, right = other_row - row, other_column - column
                        block = shifts[:, :, abs(down), (right if down >= 0 else -right) + 2]
                        block = block if down >= 0 else block.T
                        unseen_row = _UNSEEN.get(row) if down == 0 else None
                        unseen_column = _UNSEEN.get(column) if right == 0 else None
                        if unseen_row is not None:
                            block = block - line(unseen_row, right)
                        if unseen_column is not None:
                            block = block - line(2 + unseen_column, down)
                        if unseen_row is not None and unseen_column is not None:
                            block = block + corners[2 * unseen_row + unseen_column]
                        matrix[:, row, column, :, other_row, other_column] = block
        whole = matrix.reshape(self.inputs, self.inputs)
        if self.bias is None:
            return whole
        totals = sums["sum"]
        seen = totals.new_empty(size, 3, 3)
        for row in range(3):
            for column in range(3):
                value = totals[0]
                unseen_row, unseen_column = _UNSEEN.get(row), _UNSEEN.get(column)
                if unseen_row is not None:
                    value = value - totals[1 + unseen_row]
                if unseen_column is not None:
                    value = value - totals[3 + unseen_column]
                if unseen_row is not None and unseen_column is not None:
                    value = value + totals[5 + 2 * unseen_row + unseen_column]
                seen[:, row, column] = value
        return border(whole, seen.reshape(-1), sums["count"])

    # Second pass

    def rotated_inputs(self, activations: Tensor, right: Tensor) -> Tensor:
        count = len(activations)
        rows = self.patches(activations).permute(1, 0, 3, 2).reshape(self.groups, -1, self.inputs)
        rotated = torch.bmm(rows, right[:, : self.inputs])
        if self.bias is not None:
            rotated += right[:, self.inputs, None, :]
        return rotated.view(self.groups, count, -1, self.columns)

    def rotated_outputs(self, gradients: Tensor, left: Tensor) -> Tensor:
        count = len(gradients)
        columns = gradients.reshape(count, self.groups, self.outputs, -1)
        rows = columns.permute(1, 0, 3, 2).reshape(self.groups, -1, self.outputs)
        return torch.bmm(rows, left).view(self.groups, count, -1, self.outputs)

    def products(self, activations: Tensor, gradients: Tensor) -> tuple[Tensor, Tensor | None]:
        count = len(gradients)
        activations = self.padded(activations)
        stacked = activations.reshape(1, -1, *activations.shape[2:])
        upstream = gradients.reshape(1, -1, *gradients.shape[2:])
        shape = (count * self.shape[0], *self.shape[1:])
        product = _weight_gradient(
            upstream, stacked, shape, self.stride, self.padding, self.dilation, count * self.groups
        ).reshape(count, self.groups, self.outputs, self.inputs)
        if self.bias is None:
            return product, None
        return product, gradients.reshape(count, self.groups, self.outputs, -1).sum(3)


_UNSEEN = {0: 1, 2: 0}
"""Offset of a kernel of three → which edge (0 the first, 1 the last) no position shows it."""


def _corners(activations: Tensor) -> list[Tensor]:
    return [activations[:, :, row, column] for row in (0, -1) for column in (0, -1)]
