"""ONNX: the predictor (inputs to concept and class probabilities) for other runtimes. Needs ``ecbm[onnx]``."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import tempfile
import warnings
from pathlib import Path

import torch
from torch import Tensor, nn

from ecbm.errors import InputError
from ecbm.files import write_bytes, write_json
from ecbm.train.front import Front, Frozen
from ecbm.train.model import ConceptBottleneck

__all__ = ["onnx_bytes", "write_onnx"]

_NAME = "model.onnx"
_OPSET = 17


class _Predictor(nn.Module):
    def __init__(self, model: ConceptBottleneck) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        concepts, classes = self.model(x)
        return self.model.concepts_from(concepts), self.model.outputs_from(classes)


def onnx_bytes(model: ConceptBottleneck) -> bytes:
    """The predictor as ONNX: input ``x`` (any batch size), outputs ``concepts`` and ``classes``."""
    if importlib.util.find_spec("onnx") is None:
        raise InputError("ONNX export needs the package onnx; install it with: pip install 'ecbm[onnx]'")
    try:
        if model.front is not None and model.front.settings.backbone.startswith("onnx:"):
            return _around(model, model.front)
        return _exported(_Predictor(model), torch.zeros(2, *model.input_shape), "x", ["concepts", "classes"])
    # The exporter raises many kinds of errors for layers it does not know.
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"this model cannot be written as ONNX ({reason}); export it without --onnx") from None


def _exported(module: nn.Module, example: Tensor, given: str, outputs: list[str]) -> bytes:
    with (
        tempfile.TemporaryDirectory() as folder,
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module.eval(),
            (example,),
            Path(folder) / _NAME,
            input_names=[given],
            output_names=outputs,
            dynamic_axes={name: {0: "batch"} for name in (given, *outputs)},
            opset_version=_OPSET,
            dynamo=False,
        )
        return (Path(folder) / _NAME).read_bytes()


class _Behind(nn.Module):
    """From what an ONNX network gives to probabilities."""

    def __init__(self, model: ConceptBottleneck, frozen: Frozen) -> None:
        super().__init__()
        self.model, self.frozen = model, frozen

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.model.concept_logits_from(self.model.backbone(self.frozen.finished(x)))
        classes = self.model.label_head(self.model.bottleneck_from(logits))
        return torch.sigmoid(logits), torch.softmax(classes, dim=1)


def _around(model: ConceptBottleneck, front: Front) -> bytes:
    """The graph of an ONNX network with its preprocessing in front and the heads behind."""
    import onnx
    from onnx import compose, version_converter

    frozen = front.module()
    assert isinstance(frozen, Frozen)
    pixels = torch.zeros(2, *model.input_shape)
    with torch.no_grad():
        prepared = frozen.preprocess(pixels)
        given = frozen.network(prepared)
    before = onnx.load_from_string(_exported(frozen.preprocess, pixels, "x", ["prepared"]))
    behind = onnx.load_from_string(_exported(_Behind(model, frozen), given, "given", ["concepts", "classes"]))
    inside = onnx.load_from_string(front.weights()["onnx"].numpy().tobytes())
    # Names of the three graphs must not collide, and they must speak one version of the language.
    inside = compose.add_prefix(version_converter.convert_version(inside, _OPSET), "network/")
    behind.ir_version = inside.ir_version = before.ir_version
    first, last = inside.graph.input[0].name, inside.graph.output[0].name
    whole = compose.merge_models(before, inside, [("prepared", first)], outputs=[last])
    whole = compose.merge_models(whole, behind, [(last, "given")], prefix2="")
    onnx.checker.check_model(whole)
    return bytes(whole.SerializeToString())


def write_onnx(folder: Path, content: bytes) -> None:
    """Write the graph into an exported folder."""
    write_bytes(folder / _NAME, content)
    write_json(folder / "onnx.json", {"input": "x", "outputs": ["concepts", "classes"], "names": "config.json"})
