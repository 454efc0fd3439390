"""Which parameters get a block, and why the others do not."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from ecbm.curvature.capture import Capture, evaluating
from ecbm.curvature.convolution import ConvolutionLayer
from ecbm.curvature.layers import Layer, LinearLayer, Use
from ecbm.curvature.normalisation import MAXIMUM_PARAMETERS, NormalisationLayer
from ecbm.errors import InputError

__all__ = ["Plan", "fingerprint", "make_plan", "probe"]

Selection = str | Sequence[str] | Callable[[str], bool] | None


@dataclass
class Plan:
    """The blocks of a model. ``uncovered`` gives the reason for every selected parameter without one."""

    layers: dict[str, Layer] = field(default_factory=dict)
    normalisations: dict[str, NormalisationLayer] = field(default_factory=dict)
    modules: dict[str, list[nn.Module]] = field(default_factory=dict)
    uncovered: dict[str, str] = field(default_factory=dict)

    def drop(self, name: str, reason: str) -> None:
        block: Layer | NormalisationLayer
        block = self.layers.pop(name) if name in self.layers else self.normalisations.pop(name)
        del self.modules[name]
        for parameter in block.parameters:
            self.uncovered[parameter] = reason


def fingerprint(module: nn.Module) -> str:
    """A hash of the names, shapes, types and values of all parameters and buffers."""
    state = hashlib.sha256()
    for name, tensor in sorted([*module.named_parameters(), *module.named_buffers()]):
        if name.endswith("num_batches_tracked"):
            continue  # a counter of training steps; no output depends on it
        state.update(f"{name}|{tensor.dtype}|{tuple(tensor.shape)}|".encode())
        state.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return state.hexdigest()


def _selector(parameters: Selection, names: Sequence[str]) -> Callable[[str], bool]:
    if parameters is None:
        return lambda _: True
    if callable(parameters):
        return parameters
    wanted = [parameters] if isinstance(parameters, str) else list(parameters)
    for entry in wanted:
        if not any(name == entry or name.startswith(entry.rstrip(".") + ".") for name in names):
            raise InputError(
                f"parameters={entry!r} matches no parameter of the model; its first ones are "
                + ", ".join(names[:5])
            )
    return lambda name: any(name == entry or name.startswith(entry.rstrip(".") + ".") for entry in wanted)


def make_plan(module: nn.Module, parameters: Selection = None) -> Plan:
    """Find the layers of ``module`` that have a block. Raises on what cannot be worked with."""
    named = dict(module.named_parameters())
    if not named:
        raise InputError("the model has no parameters; there is nothing to take the curvature of")
    chosen = _selector(parameters, list(named))
    selected = [name for name in named if chosen(name)]
    if not selected:
        raise InputError("parameters= selects no parameter of the model")
    for name in selected:
        parameter = named[name]
        if parameter.dtype not in (torch.float32, torch.float64):
            kind = str(parameter.dtype).removeprefix("torch.")
            raise InputError(f"parameter {name!r} is {kind}; curvature needs float32 or float64 (module.float())")
        if not parameter.requires_grad:
            raise InputError(
                f"parameter {name!r} is frozen (requires_grad=False); unfreeze it or leave it out (parameters=)"
            )
    for name, part in module.named_modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm) and part.running_mean is None:
            raise InputError(
                f"layer {name!r} normalises by the batch even in eval mode (track_running_stats=False), so "
                "samples are not independent; keep running statistics"
            )
    names = {id(parameter): name for name, parameter in named.items()}
    plan = Plan()
    owners: dict[tuple[str | None, str | None], str] = {}
    taken: dict[str, str] = {}
    for name, part in module.named_modules():
        own = {kind: names[id(p)] for kind, p in part._parameters.items() if p is not None}
        wanted = {kind: parameter for kind, parameter in own.items() if parameter in selected}
        if not wanted:
            continue
        reason = _reason_against(part, own, wanted)
        pair = (own.get("weight"), own.get("bias"))
        if reason is None and pair in owners:
            plan.modules[owners[pair]].append(part)  # another module with the same parameters: one more use
            continue
        clash = next((p for p in wanted.values() if p in taken), None)
        if reason is None and clash is not None:
            plan.drop(taken[clash], "shared by layers that do not share all their parameters")
            reason = plan.uncovered[clash]
        if reason is not None:
            for owned in wanted.values():
                if owned in taken and taken[owned] in plan.modules:
                    plan.drop(taken[owned], "also used by a layer without a block")
                plan.uncovered[owned] = reason
            continue
        key = name or "(model)"
        owners[pair] = key
        plan.modules[key] = [part]
        for owned in wanted.values():
            taken[owned] = key
        layer = next((layer for kind, layer in _LAYERS.items() if isinstance(part, kind)), None)
        if layer is not None:
            plan.layers[key] = layer(key, part, own["weight"], own.get("bias"))
        else:
            plan.normalisations[key] = NormalisationLayer(key, part, own.get("weight"), own.get("bias"))
    if not plan.modules:
        raise InputError(
            f"the model has no supported layer ({', '.join(kind.__name__ for kind in _FORWARDS)}): "
            + "; ".join(f"{name}: {reason}" for name, reason in list(plan.uncovered.items())[:3])
        )
    return plan


_LAYERS: dict[type[nn.Module], type[Layer]] = {nn.Linear: LinearLayer, nn.Conv2d: ConvolutionLayer}
_NORMALISATIONS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.GroupNorm, nn.LayerNorm)
_KINDS: tuple[type[nn.Module], ...] = (*_LAYERS, *_NORMALISATIONS)
_FORWARDS = {kind: kind.forward for kind in _KINDS}


def _reason_against(part: nn.Module, own: dict[str, str], wanted: dict[str, str]) -> str | None:
    kind = next((kind for kind in _FORWARDS if isinstance(part, kind)), None)
    if kind is None:
        return f"{type(part).__name__} layers have no block"
    if type(part).forward is not _FORWARDS[kind]:
        return f"{type(part).__name__} changes the forward pass of {kind.__name__}"
    if kind in _LAYERS:
        if "weight" not in own:
            return "its weight is not a parameter of its own (parametrised)"
        if getattr(part, "bias", None) is not None and "bias" not in own:
            return "its bias is not a parameter of its own (parametrised)"
    if set(wanted) != set(own):
        return "a block covers a layer's weight and bias together; only one was selected"
    if kind in _NORMALISATIONS:
        size = sum(p.numel() for p in part._parameters.values() if p is not None)
        if size > MAXIMUM_PARAMETERS:
            return f"a normalisation layer of {size} parameters; at most {MAXIMUM_PARAMETERS} have a block"
    return None


def probe(module: nn.Module, plan: Plan, inputs: Tensor) -> tuple[Tensor, int]:
    """Run two samples, drop layers whose gradient is not what their inputs and outputs say, and measure.

    A weight that is used directly (``F.linear(x, layer.weight)``, attention's ``out_proj``), or a layer that sees
    samples in another dimension than the first cannot be seen from hooks; comparing with autograd's own gradient
    finds all of them.

    Returns
    -------
    (Tensor, int)
        The logits, and the bytes a sample needs if inputs and gradients of all layers are kept.
    """
    found: dict[str, list[Use]] = {}
    with evaluating(module, gradients=True):
        with Capture(plan.modules, None, found.__setitem__, list(plan.modules)) as capture:
            logits = module(inputs)
            if not isinstance(logits, Tensor) or logits.dim() != 2 or len(logits) != len(inputs):
                shape = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
                raise InputError(
                    f"the model gives {shape} for a batch of {len(inputs)}; expected samples × outputs, "
                    "a tensor of logits"
                )
            if logits.dtype not in (torch.float32, torch.float64):
                raise InputError(f"the model's logits are {logits.dtype}; expected float32 or float64")
            named = dict(module.named_parameters())
            blocks: dict[str, Layer | NormalisationLayer] = {**plan.layers, **plan.normalisations}
            wanted = [name for block in blocks.values() for name in block.parameters]
            generator = torch.Generator().manual_seed(0)
            direction = torch.randn(logits.shape, generator=generator, dtype=torch.float64).to(logits)
            truth: dict[str, Tensor | None] = dict.fromkeys(wanted)
            if logits.requires_grad:
                results = torch.autograd.grad(
                    logits, [named[name] for name in wanted], direction, allow_unused=True
                )
                truth = dict(zip(wanted, results, strict=True))
            capture.complete()
        with torch.no_grad():
            alone = module(inputs[:1])
            finite = bool(torch.isfinite(logits).all())
            if finite and not torch.allclose(
                alone, logits[:1], rtol=1e-3, atol=1e-3 * float(logits.abs().max() + 1e-30)
            ):
                raise InputError(
                    "the model's output for a sample changes with the other samples of the batch; "
                    "curvature needs independent samples in eval mode"
                )
            size = 0
            for name, block in blocks.items():
                reason = _reason_after_run(block, found.get(name), truth, len(inputs), finite)
                if reason is not None:
                    plan.drop(name, reason)
                elif name in plan.layers:
                    for activations, gradients in found[name]:
                        size += activations.nbytes + gradients.nbytes
    if not plan.modules:
        raise InputError(
            "no layer of the model can be given a block: "
            + "; ".join(f"{name}: {reason}" for name, reason in list(plan.uncovered.items())[:3])
        )
    return logits.detach(), size // len(inputs)


def _reason_after_run(
    block: Layer | NormalisationLayer,
    uses: list[Use] | None,
    truth: dict[str, Tensor | None],
    count: int,
    finite: bool,
) -> str | None:
    true_parts = [truth[name] for name in block.parameters]
    if all(part is None for part in true_parts):
        return "the model's output does not depend on it"
    if uses is None:
        return "its weight is used without calling its layer (as attention does with out_proj)"
    dimensions = block.input_dimensions if isinstance(block, Layer) else 2
    for activations, gradients in uses:
        if activations.dim() < dimensions or len(activations) != count or len(gradients) != count:
            return f"its layer's input has shape {tuple(activations.shape)}; samples must come first"
        if activations.dtype != block.dtype:
            return f"its layer's input is {activations.dtype}, its weight {block.dtype}"
    if isinstance(block, Layer):
        parts = [block.gradients(a, s) for a, s in uses]
        seen = block.from_matrix(torch.stack(parts).sum((0, 1)))
    else:
        seen = block.from_row(block.gradients(uses).sum(0))
    tolerance = 1e-3 if block.dtype == torch.float32 else 1e-8
    for name, expected in zip(block.parameters, true_parts, strict=True):
        if expected is None or (finite and _distance(seen[name], expected) > tolerance):
            return "its gradient does not come through its layer's calls alone (its weight is used elsewhere)"
    return None


def _distance(seen: Tensor, expected: Tensor) -> float:
    scale = max(float(expected.norm()), 1e-30)
    return float((seen - expected).norm()) / scale
