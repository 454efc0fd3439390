"""A frozen network from an ONNX file, run by onnxruntime. Needs ``ecbm[pretrained]``."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ecbm.errors import InputError

__all__ = ["OnnxNetwork", "onnx_content"]


def onnx_content(path: str | Path) -> Tensor:
    """The bytes of a file as a tensor, which is how a model keeps it."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"{path}: the ONNX file cannot be read ({error.strerror})") from None
    return torch.from_numpy(np.frombuffer(content, np.uint8).copy())


class OnnxNetwork(nn.Module):
    """The first output of an ONNX graph with one input of pictures; computed on the CPU.

    Parameters
    ----------
    content
        The file's bytes (:func:`onnx_content`).
    """

    def __init__(self, content: Tensor) -> None:
        super().__init__()
        self.content = content
        try:
            runtime = importlib.import_module("onnxruntime")
        except ImportError:
            raise InputError("an ONNX backbone needs onnxruntime: pip install 'ecbm[pretrained]'") from None
        try:
            options = runtime.SessionOptions()
            options.intra_op_num_threads = torch.get_num_threads()
            self._session: Any = runtime.InferenceSession(
                content.numpy().tobytes(), options, providers=["CPUExecutionProvider"]
            )
        # The runtime raises classes of its own for damaged graphs and unknown operators.
        except Exception as error:
            reason = " ".join(str(error).split())[:200]
            raise InputError(f"the ONNX file cannot be run ({reason})") from None
        inputs = self._session.get_inputs()
        if len(inputs) != 1 or len(inputs[0].shape) != 4:
            raise InputError("the ONNX graph must have one input of pictures (n, 3, height, width)")
        self._input, self._output = inputs[0].name, self._session.get_outputs()[0].name
        self.size: tuple[int, int] | None = None
        sides = inputs[0].shape[2:]
        if all(isinstance(side, int) for side in sides):
            self.size = sides[0], sides[1]

    def forward(self, x: Tensor) -> Tensor:
        given = np.ascontiguousarray(x.detach().cpu().numpy(), np.float32)
        (out,) = self._session.run([self._output], {self._input: given})
        return torch.from_numpy(np.asarray(out, np.float32)).to(x.device)
