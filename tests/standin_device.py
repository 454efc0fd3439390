"""A stand-in for an accelerator: a device ``standin`` that computes on the CPU and refuses to mix tensors.

torch takes a backend written in Python under the name PrivateUse1. Every operation of this one unwraps its tensors,
computes on the CPU and wraps the results; a tensor that lies elsewhere raises, as it would on a real device, and so
does asking for its memory (``numpy()``). Importing this registers the device for the whole process.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME = "standin"
_CPU = torch.device("cpu")
# What lies behind each tensor, by its (empty) storage: autograd makes tensors anew that share only that.
_BEHIND: dict[int, torch.Tensor] = {}
used: dict[str, int] = {}
"""How often each operation ran on the device."""


class OnDevice(torch.Tensor):
    """A tensor on the device."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, behind: torch.Tensor) -> OnDevice:
        made = torch._C._acc.create_empty_tensor(behind.shape, behind.dtype)
        made.__class__ = OnDevice
        _BEHIND[made.untyped_storage()._cdata] = behind
        return made

    def __init__(self, behind: torch.Tensor) -> None:
        pass


def _behind(tensor: torch.Tensor) -> torch.Tensor:
    return _BEHIND[tensor.untyped_storage()._cdata]


def _convolution_backward(gradient: Any, given: Any, weight: Any, *rest: Any) -> Any:
    sizes = [weight.shape[0]] if rest[-1][2] else None
    return torch.ops.aten.convolution_backward(gradient, given, weight, sizes, *rest)


# Operations that other backends have under a name of their own, and views of memory that does not lie as it says.
_INSTEAD: dict[str, Any] = {
    "aten.convolution_overrideable.default": torch.ops.aten.convolution.default,
    "aten.convolution_backward_overrideable.default": _convolution_backward,
    "aten.view.default": torch.ops.aten.reshape.default,
    "aten._unsafe_view.default": torch.ops.aten.reshape.default,
}
_COPIES = ("aten._copy_from.default", "aten._to_copy.default", "aten.copy_.default")


def _run(operation: Any, *arguments: Any, **options: Any) -> Any:
    name = str(operation)
    used[name] = used.get(name, 0) + 1
    given: dict[int, torch.Tensor] = {}

    def down(value: Any) -> Any:
        if isinstance(value, torch.device):
            return _CPU
        if not isinstance(value, torch.Tensor):
            return value
        if value.device.type == NAME:
            found = _behind(value)
            given[id(found)] = value
            return found
        # A number is welcome everywhere.
        if value.ndim and name not in _COPIES:
            raise RuntimeError(f"{name}: tensors on {NAME} and on {value.device.type} meet")
        return value

    def up(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return given[id(value)] if id(value) in given else OnDevice(value)

    plain, others = pytree.tree_map(down, (arguments, options))
    if name == "aten._copy_from.default":
        plain[1].copy_(plain[0])
        return arguments[1]
    if name == "aten._local_scalar_dense.default":
        return plain[0].item()
    result = _INSTEAD.get(name, operation)(*plain, **others)
    wanted = options.get("device")
    if name == "aten._to_copy.default" and wanted is not None and wanted.type == "cpu":
        return result
    return pytree.tree_map(up, result)


def _register() -> torch.library.Library:
    _setup_privateuseone_for_python_backend(NAME)
    library = torch.library.Library("aten", "IMPL")
    for full in torch._C._dispatch_get_all_op_names():
        space, _, name = full.partition("::")
        # What is made of other operations needs no kernel of its own.
        if space != "aten" or torch._C._dispatch_has_kernel_for_dispatch_key(full, "CompositeImplicitAutograd"):
            continue
        base, _, overload = name.partition(".")
        operation = getattr(getattr(torch.ops.aten, base, None), overload or "default", None)
        if operation is not None:
            library.impl(name, functools.partial(_run, operation), "PrivateUse1")
    return library


_library = _register()
