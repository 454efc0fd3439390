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
from ecbm.train.model import ConceptBottleneck

__all__ = ["onnx_bytes", "write_onnx"]

_NAME = "model.onnx"


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
    example = torch.zeros(2, *model.input_shape)
    try:
        with (
            tempfile.TemporaryDirectory() as folder,
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            torch.onnx.export(
                _Predictor(model).eval(),
                (example,),
                Path(folder) / _NAME,
                input_names=["x"],
                output_names=["concepts", "classes"],
                dynamic_axes={"x": {0: "batch"}, "concepts": {0: "batch"}, "classes": {0: "batch"}},
                dynamo=False,
            )
            return (Path(folder) / _NAME).read_bytes()
    # The exporter raises many kinds of errors for layers it does not know.
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"this model cannot be written as ONNX ({reason}); export it without --onnx") from None


def write_onnx(folder: Path, content: bytes) -> None:
    """Write the graph into an exported folder."""
    write_bytes(folder / _NAME, content)
    write_json(folder / "onnx.json", {"input": "x", "outputs": ["concepts", "classes"], "names": "config.json"})
