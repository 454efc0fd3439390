"""Models in a workspace: one file for each part, so that versions share what an edit leaves as it is."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from safetensors.torch import load as tensors_from
from safetensors.torch import save as tensor_bytes
from torch import Tensor

from ecbm.keep.ledger import canonical
from ecbm.keep.objects import ObjectStore
from ecbm.keep.plain import plain
from ecbm.keep.saving import config_of, model_from
from ecbm.train.model import ConceptBottleneck

__all__ = ["load_model", "store_model"]

_PARTS = ("backbone", "concept_head", "label_head")


def _part(name: str) -> str:
    head = name.partition(".")[0]
    return head if head in _PARTS else "statistics"


def store_model(model: ConceptBottleneck, put: Callable[[bytes], str]) -> dict[str, Any]:
    """Put a model's parts into the store; returns the manifest that :func:`load_model` reads."""
    groups: dict[str, dict[str, Tensor]] = {}
    for name, tensor in sorted(model.state_dict().items()):
        groups.setdefault(_part(name), {})[name] = tensor.detach().cpu().contiguous().clone()
    parts = {part: put(tensor_bytes(tensors)) for part, tensors in groups.items()}
    if model.front is not None and model.front.keeps:
        # The same bytes in every version: the store keeps them once.
        parts["front"] = put(tensor_bytes({n: t.contiguous().clone() for n, t in model.front.weights().items()}))
    # With what training took, which a budget for editing is a share of.
    config = config_of(model) | {"training": plain(dict(model.provenance.training))}
    return {"config": put(canonical(config).encode()), "parts": parts}


def load_model(manifest: dict[str, Any], store: ObjectStore, trust: Sequence[str] = ()) -> ConceptBottleneck:
    """The model of a manifest, bit for bit; ``trust`` as for :func:`ecbm.load`."""
    config = json.loads(store.get(manifest["config"]))
    state: dict[str, Tensor] = {}
    parts = dict(manifest["parts"])
    front = parts.pop("front", None)
    for digest in parts.values():
        state |= tensors_from(store.get(digest))
    path = store.path(manifest["config"])

    def frozen_weights() -> dict[str, Tensor]:
        return {} if front is None else dict(tensors_from(store.get(front)))

    return model_from(config, state, path, path, frozen_weights=frozen_weights, trust=trust)
