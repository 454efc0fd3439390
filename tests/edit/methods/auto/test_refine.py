"""Gradient steps on edited data: Adam as PyTorch's in any memory format, a fixed number of steps, any seed."""

from __future__ import annotations

import copy
import subprocess
import sys
import time

import pytest
import torch
from torch import nn

import ecbm
from ecbm.edit.alignment import align
from ecbm.edit.methods.auto.refine import _Adam, refine
from ecbm.train.convnet import ConvNet
from kit import tabular


@pytest.mark.parametrize("network", [ConvNet, lambda: nn.Linear(7, 3)])
def test_steps_are_those_of_adam(network) -> None:
    torch.manual_seed(0)
    ours = network().eval()
    theirs = copy.deepcopy(ours)
    x = torch.rand(5, 3, 32, 32) if isinstance(ours, ConvNet) else torch.randn(5, 7)
    steps = _Adam(ours, weight_decay=0.1)
    reference = torch.optim.Adam(theirs.parameters(), weight_decay=0.1, foreach=False)
    for rate in (0.01, 0.02, 0.005):
        steps.step(torch.autograd.grad(ours(x).square().sum(), steps.parameters), rate)
        reference.param_groups[0]["lr"] = rate
        reference.zero_grad()
        theirs(x).square().sum().backward()
        reference.step()
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, other, atol=2e-5, rtol=1e-4)


def test_gradients_that_lie_otherwise_in_memory_are_put_right() -> None:
    layer = nn.Conv2d(2, 3, 3).to(memory_format=torch.channels_last)
    plain = copy.deepcopy(layer).to(memory_format=torch.contiguous_format)
    gradients = tuple(torch.randn(p.shape) for p in layer.parameters())
    for one in (layer, plain):
        _Adam(one, weight_decay=0.0).step(gradients, 0.1)
    assert torch.equal(layer.weight, plain.weight)


def test_refining_does_not_load_the_compiler() -> None:
    """It takes a second, which is a whole budget; a released PyTorch may change this."""
    code = (
        "import sys, torch; from ecbm.edit.methods.auto.refine import _Adam; m = torch.nn.Linear(2, 2);"
        "_Adam(m, 0.0).step((torch.ones(2, 2), torch.ones(2)), 0.1); print('torch._dynamo' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


DATA = tabular(60)


def flips(count: int) -> ecbm.Edit:
    train, name = DATA.split("train"), DATA.concept_names[0]
    return ecbm.Edit(correct_concepts=[(train.ids[r], name, 1 - float(train.concepts[r, 0])) for r in range(count)])


@pytest.mark.parametrize("seed", [0, 2**55, 2**63 - 1])
def test_as_many_steps_as_asked_are_made_and_repeated_to_the_bit_with_any_seed(seed: int) -> None:
    model = ecbm.train(DATA, ecbm.Recipe(backbone="mlp", hidden=(8,), epochs=1, seed=seed, batch_size=16))
    edit = flips(10)
    alignment = align(model, DATA, edit, edit.apply_to(DATA))
    one, other = (refine(model, alignment, alignment.after.inputs, steps=5, learning_rate=1e-2) for _ in range(2))
    assert one[1] == other[1] == 5
    for mine, theirs, start in zip(one[0].parameters(), other[0].parameters(), model.parameters(), strict=False):
        assert torch.equal(mine, theirs)
        assert not torch.equal(mine.double(), start.double())


def test_a_deadline_ends_it_before_its_steps() -> None:
    model = ecbm.train(DATA, ecbm.Recipe(backbone="mlp", hidden=(8,), epochs=1))
    edit = flips(10)
    alignment = align(model, DATA, edit, edit.apply_to(DATA))
    end = time.monotonic() + 0.2
    _, done = refine(model, alignment, alignment.after.inputs, steps=10**9, learning_rate=1e-3, deadline=end)
    assert 0 < done < 10**9
