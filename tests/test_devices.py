"""Networks run where they are told to, and nothing else is left there: on a device that refuses to mix tensors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

import ecbm
from ecbm.devices import device_of, placed
from kit import pictures, python

TESTS = Path(__file__).parent
PARTS = {
    # How far predictions may be from those of the CPU. Products are summed in another order there; training and
    # EK-FAC's eigenbases carry that on.
    "training": 1e-3, "training joint": 1e-3, "training mlp": 1e-3, "training resnet18": 5e-2,
    "training resumed": 0.0, "extraction": 1e-5, "extraction until": 1e-5, "extraction none": 1e-5,
    "curvature": 2e-3, "edit exact": 1e-5, "edit ekfac": 5e-2, "edit ekfac joint": 5e-2, "edit hessian": 1e-3,
    "edit auto": 5e-2, "edit retrain": 5e-2, "edit frozen": 1e-6, "moved": 1e-5,
}  # fmt: skip


@pytest.fixture(scope="module")
def found():
    """What the worker has found; one process for all, because it takes the device along."""
    if not hasattr(torch._C, "_acc"):
        pytest.skip("this torch takes no backend written in Python")
    path = f"{TESTS}:{TESTS.parent / 'src'}"
    done = python(TESTS / "devices_worker.py", PYTHONPATH=path, OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_stand_in_refuses_what_a_real_device_refuses(found):
    assert found["refusal"] == {"type": "standin", "mixed": True, "numpy": True}


@pytest.mark.parametrize("part", PARTS)
def test_it_runs_on_the_device_and_comes_out_as_on_the_cpu(found, part):
    result = found[part]
    assert "error" not in result, result["error"]
    assert result["operations"] > 0
    assert result["difference"] <= PARTS[part]
    assert result.get("on_cpu", True)
    assert result.get("untouched", True)
    assert result.get("same", True)


def test_nothing_runs_on_the_device_unless_it_is_asked_for(found):
    assert found["training"]["beside"] == 0


def test_edits_do_move_the_model_there(found):
    assert all(result["moved"] > 0.1 for name, result in found.items() if name.startswith("edit"))


def test_a_workspace_computes_on_the_device_and_keeps_files_for_everybody(found):
    result = found["workspace"]
    assert "error" not in result, result["error"]
    assert result["operations"] > 0
    assert result["problems"] == []
    assert result["same"]


def test_auto_is_the_best_there_is(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert placed("auto") == placed(None) == placed("cpu") == torch.device("cpu")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert placed("auto").type == "mps"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert placed("auto").type == "cuda"


@pytest.mark.parametrize("name", ["nonsense", "cuda:99"])
def test_a_device_that_is_not_there_is_bad_input(name):
    with pytest.raises(ecbm.InputError, match=f"device '{name}' cannot be used here"):
        ecbm.train(pictures(80), backbone="convnet", device=name)


def test_a_module_without_parameters_lies_on_the_cpu():
    assert device_of(nn.ReLU()) == torch.device("cpu")
