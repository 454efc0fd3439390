"""A network cut at a named layer: everything up to it, and everything behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn

from ecbm.errors import InputError, unknown_name

__all__ = ["UpTo", "behind", "pooled"]


_NORMALISED = "normalised"


class _Reached(Exception):
    """The layer's output is there; the rest of the network is not needed."""


class UpTo(nn.Module):
    """A network's output at some of its layers; what lies behind the last of them is not run.

    Parameters
    ----------
    network
        The network.
    layers
        Names of layers. The output of one is given as it is; outputs of several are pooled and joined.
    """

    def __init__(self, network: nn.Module, *layers: str) -> None:
        super().__init__()
        self.network, self.layers = network, layers
        for layer in layers:
            _check_layer(network, layer)

    def forward(self, x: Tensor) -> Tensor:
        caught: dict[str, Any] = {}

        def catching(layer: str) -> Any:
            def catch(module: nn.Module, given: Any, out: Any) -> None:
                caught[layer] = out
                if len(caught) == len(self.layers):
                    raise _Reached

            return catch

        handles = [self.network.get_submodule(one).register_forward_hook(catching(one)) for one in self.layers]
        try:
            self.network(x)
        except _Reached:
            pass
        finally:
            for handle in handles:
                handle.remove()
        for layer in self.layers:
            if not isinstance(caught.get(layer), Tensor):
                raise InputError(f"layer {layer!r} gives no tensor for a picture; choose another")
        outputs = [caught[layer] for layer in self.layers]
        return outputs[0] if len(outputs) == 1 else torch.cat([pooled(one) for one in outputs], 1)


def _check_layer(network: nn.Module, layer: str) -> None:
    names = [name for name, _ in network.named_modules() if name]
    if layer not in names:
        raise unknown_name("layer", layer, names)


def pooled(values: Tensor) -> Tensor:
    """Feature rows of a layer's output: maps by their mean over places, tokens by their mean over the sequence."""
    if values.ndim == 4:
        return values.mean((2, 3))
    return values.mean(1) if values.ndim == 3 else values


class _Outline(fx.Tracer):
    """Looks into modules that contain the layer, and into no others: what they do inside need not be traceable."""

    def __init__(self, *layers: str) -> None:
        super().__init__()
        self._around = {layer[:place] for layer in layers for place, letter in enumerate(layer) if letter == "."}

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return module_qualified_name not in self._around


def behind(
    network: nn.Module, layer: str, joined: Sequence[str] = (), shape: Sequence[int] | None = None
) -> nn.Module:
    """What a network does behind a layer, as a module with the network's own parameters and their names.

    Parameters
    ----------
    network, layer
        The network, and the layer whose output the module takes.
    joined
        Layers behind it (it may be among them) whose outputs are pooled, joined and normalised by BatchNorm in
        place of the network's own output; what only that one needs is left out.
    shape
        Of the layer's output for one picture; needed for joining.

    Raises
    ------
    InputError
        If something goes around the layer (a shortcut from in front of it), or the network cannot be traced.
    """
    for name in (layer, *joined):
        _check_layer(network, name)
    try:
        whole = _Outline(layer, *joined).trace(network)
    # Tracing runs the network's own code, which may do anything with a value that is not there yet.
    except Exception as error:
        reason = " ".join(str(error).split())[:150]
        raise InputError(f"the network cannot be cut at {layer!r} ({reason}); use layer= instead") from None
    cut = next((node for node in whole.nodes if node.op == "call_module" and node.target == layer), None)
    if cut is None:
        raise InputError(f"the network's forward pass does not go through {layer!r}; choose another layer")
    rest = fx.Graph()
    known: dict[fx.Node, fx.Node] = {cut: rest.placeholder("maps")}

    def copied(node: fx.Node) -> fx.Node:
        # Constants and parameters of the network itself may have been read in front of the layer.
        if node.op == "get_attr" and node not in known:
            known[node] = rest.node_copy(node)
        return known[node]

    nodes = list(whole.nodes)
    for node in nodes[nodes.index(cut) + 1 :]:
        needed = [one for one in node.all_input_nodes if one.op != "get_attr"]
        if needed and all(one in known for one in needed):
            known[node] = rest.node_copy(node, copied)
        elif any(one in known for one in needed):
            raise InputError(
                f"something in the network goes around {layer!r}; choose a layer that everything passes"
            )
    return (
        fx.GraphModule(network, rest) if not joined else _joining(network, rest, known, layer, joined, shape or ())
    )


def _joining(
    network: nn.Module,
    rest: fx.Graph,
    known: dict[fx.Node, fx.Node],
    layer: str,
    joined: Sequence[str],
    shape: Sequence[int],
) -> nn.Module:
    """What is behind a layer with another output: those of some layers, pooled, joined and normalised."""
    places = {old.target: new for old, new in known.items() if old.op == "call_module"}
    for name in joined:
        if name not in places:
            raise InputError(f"layer {name!r} does not lie behind {layer!r}; join {layer!r} and layers behind it")
    for node in [node for node in rest.nodes if node.op == "output"]:
        rest.erase_node(node)
    rows = [rest.call_function(pooled, (places[name],)) for name in joined]
    rest.output(rest.call_function(torch.cat, (rows, 1)))
    module = fx.GraphModule(network, rest)
    module.graph.eliminate_dead_code()
    module.delete_all_unused_submodules()
    module.recompile()
    with torch.no_grad():
        width = module.eval()(torch.zeros(1, *shape)).shape[1]
    # Pooled maps of different layers have different sizes; the L2 of the heads should mean the same for all.
    module.add_module(_NORMALISED, nn.BatchNorm1d(width, affine=False))
    (end,) = (node for node in module.graph.nodes if node.op == "output")
    with module.graph.inserting_before(end):
        end.args = (module.graph.call_module(_NORMALISED, (end.args[0],)),)
    module.recompile()
    return module
