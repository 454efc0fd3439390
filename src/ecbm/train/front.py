"""The front of a model: what happens to a picture before the part that training may move.

It holds the preprocessing that a named network wants, and its frozen layers. It never changes: every version of a
model has the same front, so it is stored once, shared by copies, and built only when a picture has to go through.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ecbm.devices import device_of, mixed_precision
from ecbm.errors import InputError
from ecbm.read.inputs import rows_at_once
from ecbm.train.feature_rows import FeatureRows, MemoryRows
from ecbm.train.layers import UpTo, behind, pooled
from ecbm.train.networks import Network, build_network, is_own
from ecbm.train.preprocessing import Preprocess, Preprocessing
from ecbm.trust import check_trusted

__all__ = ["Front", "FrontSettings", "digest_of_weights"]

Weights = Mapping[str, Tensor]


@dataclasses.dataclass(frozen=True)
class FrontSettings:
    """Everything about a front except its weights, as plain values.

    Parameters
    ----------
    backbone, arguments
        The network's name (``"timm:NAME"``), and what its factory is given.
    library, source
        Where the network and its weights come from, for people.
    preprocessing
        What is done to a picture first.
    input_shape, shape
        Of a picture, and of what the front makes of it.
    frozen
        ``"all"``: features of the whole network (or of ``layer``). ``"until"``: maps of ``layer``, behind which
        layers are trained. ``"none"``: the preprocessing alone.
    layer
        The layer whose output is taken, or several with ``+`` between them; ``None`` is the last.
    precision
        To which features are rounded: ``"float32"`` or ``"float16"``.
    weights
        Digest of the frozen weights.
    mixed
        Whether the network's products are computed in bfloat16.
    """

    backbone: str
    library: str
    source: str
    preprocessing: Preprocessing
    input_shape: tuple[int, ...]
    shape: tuple[int, ...]
    frozen: str
    layer: str | None = None
    precision: str = "float32"
    weights: str = ""
    mixed: bool = False
    arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        lists = {"input_shape": list(self.input_shape), "shape": list(self.shape)}
        return fields | lists | {"preprocessing": self.preprocessing.to_dict(), "arguments": dict(self.arguments)}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> FrontSettings:
        """Inverse of :meth:`to_dict`."""
        values = dict(fields)
        values["preprocessing"] = Preprocessing.from_dict(values["preprocessing"])
        return cls(**values | {name: tuple(values[name]) for name in ("input_shape", "shape")})

    @property
    def identity(self) -> str:
        """Digest of everything that decides what the front computes."""
        decides = {name: value for name, value in self.to_dict().items() if name not in ("library", "source")}
        return hashlib.blake2b(json.dumps(decides, sort_keys=True).encode(), digest_size=20).hexdigest()


def digest_of_weights(weights: Weights) -> str:
    """Digest of named tensors."""
    total = hashlib.blake2b(digest_size=20)
    for name, value in sorted(weights.items()):
        total.update(f"{name}{value.dtype}{tuple(value.shape)}".encode())
        total.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return total.hexdigest()


class Front:
    """Preprocessing and frozen layers: pictures (n, 3, height, width) become feature rows or maps.

    Parameters
    ----------
    settings
        What it is.
    weights
        Of its frozen layers, or a function that reads them when they are needed.
    network
        The network, where it is at hand; otherwise it is built when the first picture goes through.
    trust
        Modules that may be imported to build a network of somebody's own; ``None`` where the name was given here.
    """

    def __init__(
        self,
        settings: FrontSettings,
        weights: Weights | Callable[[], Weights],
        network: nn.Module | None = None,
        trust: Sequence[str] | None = None,
    ) -> None:
        self.settings, self._weights, self._trust = settings, weights, trust
        self._module: nn.Module | None = None if network is None else self._assembled(network)
        self.rows: FeatureRows = MemoryRows(settings.shape, self.precision)
        """Features that were computed before; a workspace puts its own in place."""
        self.device = torch.device("cpu")
        """Where pictures go through."""

    # Copies of a model share it: it never changes.
    def __deepcopy__(self, memo: dict[int, Any]) -> Front:
        return self

    def __repr__(self) -> str:
        settings = self.settings
        what = {"all": "frozen", "until": f"frozen until {settings.layer}", "none": "preprocessing"}[
            settings.frozen
        ]
        return f"Front({settings.backbone}, {what}, {settings.input_shape} → {settings.shape})"

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of what it makes of one picture."""
        return self.settings.shape

    @property
    def keeps(self) -> bool:
        """Whether what it computes is worth keeping."""
        return self.settings.frozen != "none"

    @property
    def precision(self) -> torch.dtype:
        return torch.float16 if self.settings.precision == "float16" else torch.float32

    def weights(self) -> Weights:
        """The frozen weights by name."""
        if callable(self._weights):
            found = self._weights()
            if digest_of_weights(found) != self.settings.weights:
                raise InputError(f"the weights of {self.settings.backbone} are not those of the model")
            self._weights = found
        return self._weights

    def module(self) -> nn.Module:
        """Preprocessing and frozen layers as one module in evaluation mode, built on first use."""
        if self._module is None:
            self._module = self._assembled(self._network())
        return self._module

    def _network(self) -> nn.Module:
        settings = self.settings
        if settings.frozen == "none":
            return nn.Identity()
        if settings.backbone.startswith("onnx:"):
            from ecbm.train.onnx_network import OnnxNetwork

            return OnnxNetwork(self.weights()["onnx"])
        network = self._built().module
        network.load_state_dict(dict(self.weights()), strict=settings.frozen == "all")
        return network

    def _assembled(self, network: nn.Module) -> nn.Module:
        module = Frozen(self.settings, network).eval()
        return module.requires_grad_(False)

    def __call__(self, x: Tensor) -> Tensor:
        """What comes out of the front for a batch: computed on :attr:`device`, given on the CPU, in float32."""
        module = self.module()
        if device_of(module) != self.device:
            module.to(self.device)
        with torch.no_grad():
            return self._checked(module(x.to(self.device)).cpu())

    def through(self, pictures: Tensor) -> Tensor:
        """Any number of pictures, a few at a time: what lies between layers should stay in the cache."""
        if not len(pictures):
            return pictures.new_zeros(0, *self.shape)
        size = rows_at_once((3, *(self.settings.preprocessing.size or self.settings.input_shape[1:])))
        return torch.cat([self(part) for part in pictures.split(size)])

    def _checked(self, out: Tensor) -> Tensor:
        tracing = torch._C._get_tracing_state() is not None
        if self.settings.precision == "float16" and not tracing and not bool(out.isfinite().all()):
            raise InputError(
                f"features of {self.settings.backbone} are too large for float16; use feature_precision='float32'"
            )
        return out

    def tail(self, joined: str | None = None) -> nn.Module:
        """The layers behind the front, with initial weights; ``joined`` is the recipe's ``layer``."""
        return tail_of(self._built(), self.settings, joined)

    def _built(self) -> Network:
        backbone = self.settings.backbone
        if self._trust is not None and is_own(backbone):
            check_trusted(backbone, self._trust)
        return build_network(backbone, self.settings.arguments)


def tail_of(network: Network, settings: FrontSettings, joined: str | None = None) -> nn.Module:
    """The layers of a network behind a front of these settings."""
    if settings.frozen == "until":
        assert settings.layer is not None
        return behind(network.module, settings.layer, joined.split("+") if joined else (), settings.shape)
    return network.module


class Frozen(nn.Module):
    """Preprocessing, then a network up to a layer, then rounding to the precision that is kept."""

    def __init__(self, settings: FrontSettings, network: nn.Module) -> None:
        super().__init__()
        height, width = settings.input_shape[1:]
        self.preprocess = Preprocess(settings.preprocessing, (height, width))
        layer = settings.layer if settings.frozen != "none" else None
        self.network = network if layer is None else UpTo(network, *layer.split("+"))
        self.mixed = settings.mixed
        self.pools, self.halves = settings.frozen == "all", settings.precision == "float16"
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x: Tensor) -> Tensor:
        with mixed_precision(x.device, self.mixed):
            out = self.network(self.preprocess(x))
        return self.finished(out.float())

    def finished(self, out: Tensor) -> Tensor:
        """What the front makes of the network's own output."""
        out = pooled(out) if self.pools else out
        # Rounded here and not where rows are kept, so that training and prediction see the same features.
        return (out.half() if self.halves else out).float()
