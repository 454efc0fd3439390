"""Inputs and output gradients of layers while a model runs, without computing any weight gradient.

Parameters are switched off, so autograd carries gradients from layer to layer only. The first layers then
have nothing before them that wants a gradient; their output is passed through :class:`_Tap`, which does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ecbm.curvature.layers import Use
from ecbm.errors import InputError

__all__ = ["Capture", "evaluating"]


class _Tap(torch.autograd.Function):
    """The identity, with a gradient on its output and no copy.

    The result is a new tensor on the same storage rather than a view, because the model may go on to change
    it in place (``ReLU(inplace=True)``), which autograd forbids for views that a custom function returns.
    """

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, source: Tensor) -> Tensor:
        alias = torch.empty(0, dtype=source.dtype, device=source.device)
        return alias.set_(source.untyped_storage(), source.storage_offset(), source.shape, source.stride())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None]:
        return None, None


@contextmanager
def evaluating(module: nn.Module, gradients: bool = False) -> Iterator[None]:
    """Evaluation mode (dropout off, BatchNorm frozen), parameters without gradients; all restored after.

    Attention runs layer by layer: PyTorch's fused path for evaluation calls no layers and has no derivative.
    """
    fused = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    modes = [(part, part.training) for part in module.modules()]
    flags = [(parameter, parameter.requires_grad) for parameter in module.parameters()]
    module.eval()
    if not gradients:
        for parameter, _ in flags:
            parameter.requires_grad_(False)
    try:
        with torch.enable_grad():
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)
        for part, mode in modes:
            part.training = mode
        for parameter, flag in flags:
            parameter.requires_grad_(flag)


class Capture:
    """Hooks on some modules of a model; use as a context.

    Parameters
    ----------
    modules
        The modules to watch, by the key that callbacks get. A key may have several modules that share their
        parameters, and a module may be called any number of times.
    on_input
        Called in the forward pass with (key, input).
    on_uses
        Called in the backward pass, once all calls of a key have their gradient, with (key, uses).
    keep
        Keys whose inputs are needed in ``on_uses``; others get an empty input, so that memory is freed early.
    """

    def __init__(
        self,
        modules: dict[str, list[nn.Module]],
        on_input: Callable[[str, Tensor], None] | None,
        on_uses: Callable[[str, list[Use]], None],
        keep: Sequence[str],
    ) -> None:
        self._modules, self._on_input, self._on_uses = modules, on_input, on_uses
        self._keep = set(keep)
        self._inputs: dict[str, list[tuple[Tensor, int]]] = {}
        self._pending: dict[str, dict[int, Tensor]] = {}
        self._last = True
        self._anchor = torch.zeros((), requires_grad=True)
        self._handles: list[torch.utils.hooks.RemovableHandle] = []

    def __enter__(self) -> Capture:
        for key, modules in self._modules.items():
            for module in modules:
                self._handles.append(module.register_forward_hook(self._forward(key)))
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._inputs.clear()
        self._pending.clear()

    def _forward(self, key: str) -> Callable[[nn.Module, tuple[Any, ...], Any], Tensor | None]:
        def hook(_: nn.Module, arguments: tuple[Any, ...], output: Any) -> Tensor | None:
            if not torch.is_grad_enabled() or not isinstance(output, Tensor) or not arguments:
                return None  # called where no gradient can flow: it has no curvature
            activations: Tensor = arguments[0].detach()
            if self._on_input is not None:
                self._on_input(key, activations)
            result = None
            if not output.requires_grad:
                result = output = _Tap.apply(self._anchor, output)  # type: ignore[no-untyped-call]
            uses = self._inputs.setdefault(key, [])
            place = len(uses)
            kept = activations if key in self._keep else activations[:0]
            uses.append((kept, kept._version))
            output.register_hook(lambda gradient: self._backward(key, place, gradient))
            return result

        return hook

    def _backward(self, key: str, place: int, gradient: Tensor) -> None:
        pending = self._pending.setdefault(key, {})
        pending[place] = gradient.detach()
        if len(pending) == len(self._inputs[key]):
            self._finish(key)

    def _finish(self, key: str) -> None:
        uses: list[Use] = []
        for place, gradient in sorted(self._pending.pop(key).items()):
            activations, version = self._inputs[key][place]
            if activations._version != version:
                raise InputError(
                    f"layer {key!r}: its input was changed in place after the layer used it; "
                    "write that operation without inplace=True"
                )
            uses.append((activations, gradient))
        if self._last:
            self._inputs[key] = [(empty[:0], 0) for empty, _ in self._inputs[key]]
        with torch.no_grad():
            self._on_uses(key, uses)

    def backward(self, logits: Tensor, gradients: Sequence[Tensor]) -> None:
        """Send each of ``gradients`` back from ``logits``; ``on_uses`` is called for each."""
        for place, gradient in enumerate(gradients):
            self._last = place == len(gradients) - 1
            if logits.requires_grad:
                torch.autograd.backward([logits], [gradient], retain_graph=not self._last)
            self.complete()
        self._inputs.clear()

    def complete(self) -> None:
        """Finish layers of which some call got no gradient, because the loss does not depend on it."""
        for key in list(self._pending):
            self._finish(key)
