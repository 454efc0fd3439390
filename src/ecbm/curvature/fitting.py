"""Fitting EK-FAC: covariances, eigenvectors, eigenvalues.

Two passes over the data, or one where inputs and gradients of all layers fit in the memory limit:

1. Σ a aᵀ and Σ s sᵀ of every layer (and the whole matrix of a normalisation layer),
2. an eigendecomposition a factor, shared out over the processes,
3. Σ_i (Q_Γᵀ G_i Q_Ω)² of every layer, from a second pass or from what was kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ecbm import parallel
from ecbm.curvature.accumulate import Accumulator, cut
from ecbm.curvature.blocks import Plan, probe
from ecbm.curvature.capture import Capture, evaluating
from ecbm.curvature.draws import uniforms
from ecbm.curvature.fit_checkpoint import FitCheckpoint
from ecbm.curvature.kronecker import Block, DenseBlock, KroneckerBlock
from ecbm.curvature.layers import Use
from ecbm.curvature.losses import Fisher, Loss
from ecbm.curvature.sources import Source
from ecbm.errors import InputError
from ecbm.matrices import symmetric_eigen
from ecbm.progress import progress

__all__ = ["FitJob", "Settings"]

_CACHED = 32 << 20
_SMALL, _SMALL_IF_KEPT = 4 << 20, 16 << 20
"""Bytes of layer inputs and gradients that are alive at once. As many samples run together as fill the processor's
cache, at most a batch: beyond it a convolution takes twice as long. Narrow networks run more than a batch, for the
sake of long matrix products and fewer calls.
"""

Kept = dict[str, list[list[Use]]]
"""Per layer, the uses of every batch of a block."""


@dataclass(frozen=True)
class Settings:
    """What a fit was asked for; kept with the result, so that an update continues in kind."""

    l2: float
    fisher: Fisher
    seed: int
    batch_size: int
    memory_limit_bytes: int


class FitJob:
    """One fit; :meth:`run` returns its blocks."""

    def __init__(
        self,
        module: nn.Module,
        plan: Plan,
        source: Source,
        loss: Loss,
        settings: Settings,
        keys: Tensor | None,
        checkpoint: FitCheckpoint | None,
    ) -> None:
        self.module, self.plan, self.source = module, plan, source
        self.loss, self.settings, self.checkpoint = loss, settings, checkpoint
        rows = source.read(range(min(2, len(source))))
        logits, self.bytes_each = probe(module, plan, rows if len(rows) == 2 else torch.cat([rows, rows]))
        loss.check_outputs(logits.shape[1])
        self.columns = logits.shape[1] if settings.fisher == "exact" else 1
        self.keys = keys
        blocks = cut(len(source), settings.batch_size)
        share = parallel.shard(len(blocks))
        self.blocks = [blocks[index] for index in share]
        self.kept: list[Kept] = []
        # The decision uses all samples, not this process's, so that it does not depend on their number
        fits = len(source) * self.bytes_each <= settings.memory_limit_bytes
        self.keep = fits and checkpoint is None and settings.fisher != "exact"
        small = _SMALL_IF_KEPT if self.keep else _SMALL
        cached = min(settings.batch_size, _CACHED // max(self.bytes_each, 1))
        self.rows_at_once = max(1, cached, small // max(self.bytes_each, 1))

    # Passes

    def pieces(self, block: list[range]) -> Iterator[range]:
        """The rows of a block in even pieces, as many at once as run well."""
        start, count = block[0].start, block[-1].stop - block[0].start
        pieces = -(-count // self.rows_at_once)
        for piece in range(pieces):
            yield range(start + count * piece // pieces, start + count * (piece + 1) // pieces)

    def output_gradients(self, logits: Tensor, rows: range) -> list[Tensor]:
        numbers = None
        if self.settings.fisher == "true":
            assert self.keys is not None
            numbers = uniforms(self.settings.seed, self.keys[rows.start : rows.stop], self.loss.draws)
            numbers = numbers.to(logits.device)
        place = slice(rows.start, rows.stop)
        return self.loss.output_gradients(logits.detach(), place, self.settings.fisher, numbers)

    def run_batch(self, capture: Capture, rows: range) -> None:
        logits = self.module(self.source.read(rows))
        capture.backward(logits, self.output_gradients(logits, rows))

    def run_pass(
        self,
        phase: str,
        sums: Accumulator,
        capture: Capture,
        start: int,
        after_block: Callable[[], None] | None = None,
    ) -> None:
        with progress(phase.capitalize(), len(self.blocks)) as bar, evaluating(self.module), capture:
            bar.advance(start)
            for index in range(start, len(self.blocks)):
                for rows in self.pieces(self.blocks[index]):
                    self.run_batch(capture, rows)
                if after_block is not None:
                    after_block()
                broken = sums.flush()
                if broken is not None:
                    raise self.blame(index, broken)
                if self.checkpoint is not None and self.checkpoint.due():
                    self.checkpoint.save(phase, sums.tensors(), index + 1)
                bar.advance()

    def blame(self, index: int, layer: str) -> InputError:
        """Find the first layer and batch with a number that is not finite, by running the block again."""
        found: list[str] = []

        def look(name: str, what: str, tensor: Tensor) -> None:
            if not found and not bool(torch.isfinite(tensor).all()):
                found.append(f"layer {name!r}: its {what} is not finite")

        def look_at_uses(name: str, uses: list[Use]) -> None:
            for _, gradients in uses:
                look(name, "output gradient", gradients)

        capture = Capture(self.plan.modules, lambda name, a: look(name, "input", a), look_at_uses, ())
        with evaluating(self.module), capture:
            for rows in self.blocks[index]:
                self.run_batch(capture, rows)
                if found:
                    batch = rows.start // self.settings.batch_size
                    return InputError(
                        f"{found[0]} in batch {batch} (rows {rows.start} to {rows.stop - 1}); "
                        "check those inputs and the model's parameters"
                    )
        rows = self.blocks[index][0]
        return InputError(
            f"layer {layer!r}: its sums overflow near row {rows.start}; scale the inputs or use float64"
        )

    def covariances(self, keep: bool) -> Accumulator:
        """Phase 1. With ``keep``, inputs and gradients stay in :attr:`kept` for phase 3."""
        layers, normalisations = self.plan.layers, self.plan.normalisations
        sums = Accumulator()
        for name, layer in layers.items():
            sums.add_group(name, {**layer.input_sums(), **layer.output_sums(), "positions": layer.zeros(1)})
        for name, other in normalisations.items():
            square = torch.zeros(other.size, other.size, dtype=other.dtype, device=other.device)
            sums.add_group(name, {"fisher": square})
        start = self.checkpoint.restore("covariances", sums) if self.checkpoint is not None else 0
        block: Kept = {}

        def on_input(name: str, activations: Tensor) -> None:
            if name in layers:
                layers[name].add_input(sums.partial[name], activations)

        def on_uses(name: str, uses: list[Use]) -> None:
            group = sums.partial[name]
            if name not in layers:
                rows = normalisations[name].gradients(uses)
                group["fisher"].addmm_(rows.T, rows)
                return
            for _, gradients in uses:
                group["positions"] += layers[name].positions(gradients) * len(gradients)
                layers[name].add_output(group, gradients)
            if keep:
                block.setdefault(name, []).append(uses)

        def after_block() -> None:
            if keep:
                self.kept.append(dict(block))
                block.clear()

        watched = list(self.plan.modules) if keep else list(normalisations)
        capture = Capture(self.plan.modules, on_input, on_uses, watched)
        self.run_pass("covariances", sums, capture, start, after_block)
        if self.checkpoint is not None:
            self.checkpoint.save("covariances", sums.tensors(), len(self.blocks))
        sums.reduce()
        return sums

    def bases(self) -> dict[str, Tensor]:
        """Phases 1 and 2: eigenvectors and eigenvalues of all factors, and the normalisation layers' sums."""
        if self.checkpoint is not None:
            saved = self.checkpoint.read_common("bases")
            if saved is not None:
                return saved
        sums = self.covariances(self.keep)
        result = self.decompose(sums)
        for name in self.plan.normalisations:
            result[f"fisher|{name}"] = sums.total[name]["fisher"]
        if self.checkpoint is not None:
            self.checkpoint.save("bases", result, 0)
            self.checkpoint.retire("covariances")
        return result

    def decompose(self, sums: Accumulator) -> dict[str, Tensor]:
        """Eigendecompositions, the dearest first to the process with the least to do."""
        count, result = len(self.source), {}
        tasks = []
        for name, layer in self.plan.layers.items():
            tasks.append((layer.groups * layer.columns**3, "right", name))
            tasks.append((layer.groups * layer.outputs**3, "left", name))
        loads = [0] * parallel.world_size()
        owners = {}
        for cost, side, name in sorted(tasks, reverse=True):
            owner = loads.index(min(loads))
            loads[owner] += cost
            owners[side, name] = owner
        for name, layer in self.plan.layers.items():
            group = sums.total.pop(name)
            positions = float(group["positions"]) / (count * self.columns)
            result[f"positions|{name}"] = torch.tensor([positions], dtype=torch.float64)
            for side, size in (("left", layer.outputs), ("right", layer.columns)):
                owner = owners[side, name]
                if owner == parallel.rank():
                    if side == "right":
                        matrix, scale = layer.input_sum_matrix(group), float(count)
                    else:
                        matrix, scale = layer.output_sum_matrix(group), count * max(positions, 1.0)
                    values, vectors = symmetric_eigen(matrix.div_(scale), layer.dtype)
                else:
                    values = torch.empty(layer.groups, size, dtype=torch.float64, device=layer.device)
                    vectors = torch.empty(layer.groups, size, size, dtype=layer.dtype, device=layer.device)
                parallel.broadcast(values, vectors, source=owner)
                result[f"{side}|{name}"] = vectors
                result[f"{side}_values|{name}"] = values
        return result

    def eigenvalues(self, bases: dict[str, Tensor]) -> Accumulator:
        """Phase 3."""
        layers = self.plan.layers
        sums = Accumulator()
        for name, layer in layers.items():
            sums.add_group(name, {"squares": layer.zeros(layer.groups, layer.outputs, layer.columns)})

        def on_uses(name: str, uses: list[Use]) -> None:
            squares = sums.partial[name]["squares"]
            layers[name].add_squares(squares, uses, bases[f"left|{name}"], bases[f"right|{name}"])

        if self.kept:
            with torch.no_grad():
                for index in range(len(self.kept)):
                    for name, batches in self.kept.pop(0).items():
                        for uses in batches:
                            on_uses(name, uses)
                    broken = sums.flush()
                    if broken is not None:
                        raise self.blame(index, broken)
        else:
            start = self.checkpoint.restore("eigenvalues", sums) if self.checkpoint is not None else 0
            modules = {name: self.plan.modules[name] for name in layers}
            capture = Capture(modules, None, on_uses, list(layers))
            self.run_pass("eigenvalues", sums, capture, start)
        sums.reduce()
        return sums

    def run(self) -> list[Block]:
        """The fitted blocks, in the order of the model's layers."""
        count = len(self.source)
        bases = self.bases()
        sums = self.eigenvalues(bases)
        found: dict[str, Block] = {}
        for name, layer in self.plan.layers.items():
            found[name] = KroneckerBlock(
                layer,
                bases[f"left|{name}"],
                bases[f"right|{name}"],
                bases[f"left_values|{name}"],
                bases[f"right_values|{name}"],
                sums.total[name]["squares"],
                count,
                float(bases[f"positions|{name}"]),
            )
        for name, other in self.plan.normalisations.items():
            found[name] = DenseBlock.from_sum(other, bases[f"fisher|{name}"], count)
        if self.checkpoint is not None:
            self.checkpoint.finish()
        return [found[name] for name in self.plan.modules]
