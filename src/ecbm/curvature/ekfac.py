"""EK-FAC of a model's objective: fitted once, then solved, multiplied, updated and stored.

H ≈ diag over layers of (Q_Γ ⊗ Q_Ω) diag(Λ*) (Q_Γ ⊗ Q_Ω)ᵀ + l2     (docs/method.md, "Curvature")
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ecbm import parallel
from ecbm.curvature.blocks import Plan, Selection, fingerprint, make_plan
from ecbm.curvature.checkpoint import Checkpoint
from ecbm.curvature.fitting import FitJob, Settings
from ecbm.curvature.kronecker import Block, DenseBlock, KroneckerBlock
from ecbm.curvature.losses import FISHER_TYPES, Fisher, Loss
from ecbm.curvature.sources import InputSource, Source
from ecbm.curvature.store import read_file, write_file
from ecbm.curvature.update import drift_between, update_blocks
from ecbm.errors import InputError, unknown_name

__all__ = ["EKFAC", "Vector"]

Vector = dict[str, Tensor]
_FILE = "ekfac.safetensors"
DEFAULT_MEMORY_LIMIT = 256 * 2**20


@dataclass(frozen=True)
class EKFAC:
    """Eigenvalue-corrected Kronecker-factored curvature of (1/n) Σ ℓ_i + (l2/2)|θ|².

    Made by :meth:`fit` or :meth:`load`. Vectors are dictionaries by the model's parameter names, so that a
    result can be added to the model.

    Examples
    --------
    >>> from ecbm.curvature import ConceptLoss
    >>> _ = torch.manual_seed(0)
    >>> model = nn.Linear(4, 3)
    >>> x = torch.randn(100, 4)
    >>> curvature = EKFAC.fit(model, x, ConceptLoss((x[:, :3] > 0).float()), l2=1e-3)
    >>> gradient = {name: torch.ones_like(p) for name, p in model.named_parameters()}
    >>> step = curvature.solve(gradient, damping=0.1, relative=True)
    >>> sorted(step)
    ['bias', 'weight']
    """

    blocks: tuple[Block, ...]
    uncovered: dict[str, str]
    settings: Settings
    samples: int
    model_fingerprint: str
    history: tuple[dict[str, Any], ...] = ()

    # Making

    @staticmethod
    def fit(
        module: nn.Module,
        inputs: Tensor | InputSource,
        loss: Loss,
        *,
        l2: float = 0.0,
        fisher: Fisher = "true",
        seed: int = 0,
        batch_size: int = 128,
        memory_limit_bytes: int = DEFAULT_MEMORY_LIMIT,
        checkpoint: str | Path | None = None,
        checkpoint_seconds: float = 30.0,
        parameters: Selection = None,
        keys: Tensor | None = None,
    ) -> EKFAC:
        """Fit the curvature of ``loss`` at the module's present parameters.

        Under ``torchrun`` all processes must call it, with the same arguments; all get the whole result.

        Parameters
        ----------
        module
            Maps a batch to logits, samples × outputs. Run in eval mode; left as it was.
        inputs
            A tensor with one sample a row, or an object with ``len`` and ``take(rows)``.
        loss
            :class:`ConceptLoss` or :class:`LabelLoss`, a row for each input.
        l2
            Weight of the L2 penalty in the objective; added to every eigenvalue.
        fisher
            ``"true"`` draws targets from the model, ``"empirical"`` uses those of the data, ``"exact"`` takes
            the expectation over targets (as many backward passes as outputs).
        seed
            Of the drawn targets. A draw depends on the seed and the sample, not on batches or processes.
        batch_size
            Samples a forward pass: fewer where they would not fit the processor's cache, more where layers are so
            narrow that many of them fit.
        memory_limit_bytes
            If inputs and output gradients of all layers fit in it, they are kept and the data is passed once;
            otherwise it is passed twice. Never with ``checkpoint``.
        checkpoint
            Folder for the state of an unfinished fit. If it has one of this fit, the fit goes on from there.
        checkpoint_seconds
            Least time between two writes of that state.
        parameters
            Names or prefixes of parameters to cover, or a function of a name; ``None`` for all.
        keys
            int64, one a sample: what the draws of ``"true"`` depend on. ``None``: a hash of the input.
        """
        parallel.join_group()
        settings = _check_settings(l2, fisher, seed, batch_size, memory_limit_bytes)
        plan = make_plan(module, parameters)
        source = Source(inputs, module)
        if len(loss) != len(source):
            raise InputError(f"{len(source)} inputs but the loss has {len(loss)} rows; they must match")
        keys = _keys(keys, source, needed=fisher == "true" or checkpoint is not None)
        mark = fingerprint(module)
        point = None
        if checkpoint is not None:
            assert keys is not None
            identity = {
                "model": mark,
                "data": hashlib.sha256(keys.numpy().tobytes()).hexdigest(),
                "loss": loss.digest(),
                "settings": asdict(settings),
                "parameters": sorted(plan.modules),
            }
            point = Checkpoint(Path(checkpoint), identity, checkpoint_seconds)
        blocks = FitJob(module, plan, source, loss, settings, keys, point).run()
        return EKFAC(tuple(blocks), dict(plan.uncovered), settings, len(source), mark)

    # Describing

    @property
    def covered(self) -> list[str]:
        """Names of the parameters in a block."""
        return [name for block in self.blocks for name in block.parameters]

    def mean_eigenvalues(self) -> dict[str, float]:
        """Mean of Λ* of each layer, the unit of relative damping; L2 is not in it."""
        return {block.name: block.spread[1] for block in self.blocks}

    def report(self) -> dict[str, Any]:
        """What is covered, what is not and why, and how the fit was made; JSON-ready."""
        return {
            "samples": self.samples,
            "settings": asdict(self.settings),
            "covered": self.covered,
            "exact_blocks": [block.name for block in self.blocks if isinstance(block, DenseBlock)],
            "uncovered": dict(self.uncovered),
            "mean_eigenvalues": self.mean_eigenvalues(),
            "updates": list(self.history),
        }

    # Using

    def restrict(self, vector: Vector) -> Vector:
        """The entries of ``vector`` that are covered."""
        covered = set(self.covered)
        return {name: value for name, value in vector.items() if name in covered}

    def solve(self, vector: Vector, damping: float = 0.0, *, relative: bool = False) -> Vector:
        """(H + damping)⁻¹ vector.

        Parameters
        ----------
        vector
            Values by parameter name: all parameters of one or more blocks.
        damping
            δ ≥ 0, added to every eigenvalue beside l2.
        relative
            Multiply ``damping`` by the mean eigenvalue of each layer.
        """
        return self.solve_many(vector, [damping], relative=relative)[0]

    def solve_many(self, vector: Vector, dampings: Sequence[float], *, relative: bool = False) -> list[Vector]:
        """:meth:`solve` for several dampings, rotating the vector only once."""
        for damping in dampings:
            if not math.isfinite(damping) or damping < 0:
                raise InputError(f"damping is {damping}; expected a finite number of at least 0")
        blocks = self._blocks_of(vector)
        shifts = [[self._shift(block, damping, relative) for damping in dampings] for block in blocks]
        results: list[Vector] = [{} for _ in dampings]
        for block, row in zip(
            blocks, shifts, strict=True
        ):  # one after the other: its eigenvectors stay in the cache
            rotated = block.rotate(vector)
            for result, shift in zip(results, row, strict=True):
                inverse = self._inverse_eigenvalues(block, shift)
                result.update(block.rotate_back(rotated.mul_(inverse) if len(row) == 1 else rotated * inverse))
        return [{name: result[name] for name in vector} for result in results]

    def multiply(self, vector: Vector) -> Vector:
        """H vector, L2 included."""
        result: Vector = {}
        for block in self._blocks_of(vector):
            result.update(block.rotate_back(block.rotate(vector) * (block.eigenvalues + self.settings.l2)))
        return {name: result[name] for name in vector}

    @cached_property
    def _last_inverses(self) -> dict[str, tuple[float, Tensor]]:
        return {}

    def _inverse_eigenvalues(self, block: Block, shift: float) -> Tensor:
        """1 / (Λ* + shift); the last one is kept, for solves come in rows with one damping."""
        kept = self._last_inverses.get(block.name)
        if kept is None or kept[0] != shift:
            kept = shift, (block.eigenvalues + shift).reciprocal_()
            self._last_inverses[block.name] = kept
        return kept[1]

    def _shift(self, block: Block, damping: float, relative: bool) -> float:
        """What is added to a block's eigenvalues; raises where the sum would be rounding error."""
        low, mean, high = block.spread
        shift = self.settings.l2 + damping * (mean if relative else 1.0)
        low, high = low + shift, high + shift
        if not low > block.rounding * high:
            raise InputError(
                f"damping {damping:g}{' (relative)' if relative else ''} leaves layer {block.name!r} with an "
                f"eigenvalue of {low:.3g} beside {high:.3g}: the solve would be rounding "
                "error; use a larger damping or l2"
            )
        return shift

    @cached_property
    def _block_of_parameter(self) -> dict[str, tuple[Block, tuple[int, ...]]]:
        return {name: (block, _shape_of(block, name)) for block in self.blocks for name in block.parameters}

    def _blocks_of(self, vector: Vector) -> list[Block]:
        needed: dict[str, Block] = {}
        for name, value in vector.items():
            found = self._block_of_parameter.get(name)
            if found is None:
                if name in self.uncovered:
                    reason = self.uncovered[name]
                    raise InputError(f"parameter {name!r} has no curvature ({reason}); leave it out (restrict())")
                raise unknown_name("parameter", name, self._block_of_parameter)
            block, shape = found
            if value.shape != shape:
                raise InputError(f"vector entry {name!r} has shape {tuple(value.shape)}; the parameter has {shape}")
            if value.dtype != block.layer.dtype:
                raise InputError(f"vector entry {name!r} is {value.dtype}; the parameter is {block.layer.dtype}")
            needed[block.name] = block
        for block in needed.values():
            absent = [name for name in block.parameters if name not in vector]
            if absent:
                raise InputError(
                    f"vector lacks {absent[0]!r}: weight and bias are solved together; give zeros if meant"
                )
        return list(needed.values())

    # Following edits

    def update(
        self,
        module: nn.Module,
        inputs: Tensor | InputSource,
        *,
        subtract: Loss | None = None,
        add: Loss | None = None,
        factors: bool = False,
        keys: Tensor | None = None,
    ) -> EKFAC:
        """The curvature after some terms changed, from a pass over those samples alone.

        Parameters
        ----------
        module
            The model of the fit, unchanged.
        inputs
            The samples concerned.
        subtract
            Their terms as they were fitted; alone, the samples are removed.
        add
            Their new terms; alone, the samples are new. With both, targets or weights change.
        factors
            Also update Ω and Γ and turn to their new eigenvectors.
        keys
            The samples' keys, if the fit was given any.

        Returns
        -------
        EKFAC
            A new object; ``report()["updates"]`` says by how much the matrix moved. :meth:`drift` and
            :meth:`measure_drift` compare with a full refit.
        """
        self._check_model(module)
        source = Source(inputs, module)
        keys = _keys(keys, source, needed=self.settings.fisher == "true")
        blocks, samples, entry = update_blocks(
            self.blocks, self.settings, module, source, subtract, add, factors, keys
        )
        return replace(self, blocks=tuple(blocks), samples=samples, history=(*self.history, entry))

    def drift(
        self, refit: EKFAC, vector: Vector | None = None, damping: float = 0.1, *, relative: bool = True
    ) -> dict[str, Any]:
        """Distance from ``refit``: |A − B|/|B| in the Frobenius norm, in total and for each layer.

        With ``vector``, also the relative distance of the two solves of it.
        """
        if [block.parameters for block in self.blocks] != [block.parameters for block in refit.blocks]:
            raise InputError("the two curvatures do not cover the same parameters; fit both on one model")
        report = drift_between(self.blocks, refit.blocks)
        if vector is not None:
            mine = self.solve(vector, damping, relative=relative)
            other = refit.solve(vector, damping, relative=relative)
            gap = sum(float((mine[name] - other[name]).double().square().sum()) for name in vector)
            size = sum(float(other[name].double().square().sum()) for name in vector)
            report["solve"] = (gap / max(size, 1e-300)) ** 0.5
        return report

    def measure_drift(
        self, module: nn.Module, inputs: Tensor | InputSource, loss: Loss, *, keys: Tensor | None = None
    ) -> tuple[dict[str, Any], EKFAC]:
        """Refit on all of the present data with the same settings; the drift from it, and the refit."""
        self._check_model(module)
        options = asdict(self.settings)
        refit = EKFAC.fit(module, inputs, loss, parameters=self.covered, keys=keys, **options)
        return self.drift(refit), refit

    def _check_model(self, module: nn.Module) -> None:
        if fingerprint(module) != self.model_fingerprint:
            raise InputError(
                "this curvature belongs to another model (its parameters or buffers differ); fit again"
            )

    # Keeping

    def save(self, folder: str | Path) -> None:
        """Write the curvature to a folder (one safetensors file, replaced atomically)."""
        tensors: dict[str, Tensor] = {}
        entries = []
        for block in self.blocks:
            entry = {"layer": block.layer.describe(), "count": block.count}
            if isinstance(block, KroneckerBlock):
                entry |= {"kind": "kronecker", "positions": block.positions}
                for key in ("left", "right", "left_values", "right_values", "sums"):
                    tensors[f"{key}|{block.name}"] = getattr(block, key)
            else:
                entry["kind"] = "dense"
                for key in ("vectors", "values"):
                    tensors[f"{key}|{block.name}"] = getattr(block, key)
            entries.append(entry)
        description = {
            "model": self.model_fingerprint,
            "samples": self.samples,
            "settings": asdict(self.settings),
            "uncovered": self.uncovered,
            "history": list(self.history),
            "blocks": entries,
        }
        write_file(Path(folder) / _FILE, tensors, description)

    @staticmethod
    def load(folder: str | Path, module: nn.Module) -> EKFAC:
        """Read what :meth:`save` wrote, for the very model it was fitted on."""
        path = Path(folder) / _FILE
        tensors, description = read_file(path)
        if description["model"] != fingerprint(module):
            raise InputError(
                f"{path}: these factors belong to another model (its parameters or buffers differ); fit again"
            )
        device = next(module.parameters()).device
        layers = _layers_by_name(module)
        blocks: list[Block] = []
        for entry in description["blocks"]:
            name = entry["layer"]["name"]
            layer = layers.get(name)
            if layer is None or layer.describe() != entry["layer"]:
                raise InputError(f"{path}: layer {name!r} is not a layer of this model; fit again")

            def part(key: str, name: str = name) -> Tensor:
                return tensors[f"{key}|{name}"].to(device)

            count = int(entry["count"])
            if entry["kind"] == "dense":
                blocks.append(DenseBlock(layer, part("vectors"), part("values"), count))
            else:
                factors = part("left"), part("right"), part("left_values"), part("right_values")
                positions = float(entry["positions"])
                blocks.append(KroneckerBlock(layer, *factors, part("sums"), count, positions))
        return EKFAC(
            tuple(blocks),
            description["uncovered"],
            Settings(**description["settings"]),
            int(description["samples"]),
            description["model"],
            tuple(description["history"]),
        )


def _layers_by_name(module: nn.Module) -> dict[str, Any]:
    # frozen since the fit or not: that is no matter for using the factors
    flags = [(parameter, parameter.requires_grad) for parameter in module.parameters()]
    try:
        for parameter, _ in flags:
            parameter.requires_grad_(True)
        plan: Plan = make_plan(module)
    finally:
        for parameter, flag in flags:
            parameter.requires_grad_(flag)
    return {**plan.layers, **plan.normalisations}


def _shape_of(block: Block, name: str) -> tuple[int, ...]:
    layer = block.layer
    if isinstance(block, KroneckerBlock) and name != layer.weight:
        return (layer.shape[0],)
    return layer.shape


def _keys(keys: Tensor | None, source: Source, needed: bool) -> Tensor | None:
    if keys is None:
        return source.keys() if needed else None
    keys = torch.as_tensor(keys)
    if keys.dtype != torch.int64 or tuple(keys.shape) != (len(source),):
        raise InputError(f"keys have shape {tuple(keys.shape)} and dtype {keys.dtype}; expected one int64 a sample")
    return keys


def _check_settings(l2: float, fisher: Fisher, seed: int, batch_size: int, memory_limit_bytes: int) -> Settings:
    if not math.isfinite(l2) or l2 < 0:
        raise InputError(f"l2 is {l2}; expected a finite number of at least 0")
    if fisher not in FISHER_TYPES:
        raise InputError(f"fisher is {fisher!r}; expected one of {', '.join(FISHER_TYPES)}")
    if batch_size < 1:
        raise InputError(f"batch_size is {batch_size}; expected at least 1")
    if memory_limit_bytes < 0:
        raise InputError(f"memory_limit_bytes is {memory_limit_bytes}; expected at least 0")
    return Settings(float(l2), fisher, int(seed), int(batch_size), int(memory_limit_bytes))
