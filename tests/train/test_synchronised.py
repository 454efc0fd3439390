"""BatchNorm over several processes computes what BatchNorm computes over the whole batch."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from ecbm import parallel
from ecbm.train.synchronised import synchronised


@pytest.fixture
def twins(monkeypatch):
    """As if there were two processes with the same samples: a sum over them is twice one's own."""
    monkeypatch.setattr(parallel, "world_size", lambda: 2)
    monkeypatch.setattr(parallel, "all_reduce_sum", lambda *tensors: [tensor.mul_(2) for tensor in tensors])


LAYERS = {
    "pictures": (nn.BatchNorm2d(3), (4, 3, 5, 6)),
    "rows": (nn.BatchNorm1d(3), (7, 3)),
    "not affine": (nn.BatchNorm1d(3, affine=False), (7, 3)),
    "no statistics": (nn.BatchNorm1d(3, track_running_stats=False), (7, 3)),
    "average": (nn.BatchNorm1d(3, momentum=None), (7, 3)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_twins_compute_what_both_batches_together_give(twins, name):
    layer, shape = copy.deepcopy(LAYERS[name][0]), LAYERS[name][1]
    if layer.affine:
        nn.init.uniform_(layer.weight, 0.5, 2)
    reference = copy.deepcopy(layer)
    for turn in range(3):
        draw = torch.Generator().manual_seed(turn)
        x = (3 + 2 * torch.randn(shape, generator=draw)).requires_grad_()
        slope = torch.randn(shape, generator=draw)
        with synchronised():
            out = layer(x)
            (out * slope).sum().backward()
        both = torch.cat([x.detach(), x.detach()]).requires_grad_()
        expected = reference(both)
        (expected * torch.cat([slope, slope])).sum().backward()
        assert torch.allclose(out, expected[: len(x)], atol=1e-5)
        assert torch.allclose(x.grad, both.grad[: len(x)], atol=1e-5)
    if layer.affine:  # gradients of parameters are summed over processes by the training loop
        assert torch.allclose(2 * layer.weight.grad, reference.weight.grad, rtol=1e-4, atol=1e-4)
    for key, value in reference.state_dict().items():
        assert torch.allclose(layer.state_dict()[key].double(), value.double(), rtol=1e-5), key


def test_half_precision_stays_half_and_is_computed_in_more(twins):
    layer = nn.BatchNorm1d(3)
    x = (100 + torch.randn(64, 3)).to(torch.bfloat16)
    with synchronised():
        out = layer(x)
    assert out.dtype == torch.bfloat16
    assert torch.allclose(out.float(), nn.BatchNorm1d(3)(x.float()), atol=0.02)


def test_a_process_without_samples_of_a_small_batch_takes_part(twins):
    layer = nn.BatchNorm1d(3)
    with synchronised():
        assert layer(torch.zeros(0, 3)).shape == (0, 3)


class WithActivation(nn.BatchNorm2d):
    """As timm has them: a layer that is a BatchNorm and does more."""

    def forward(self, x):
        return torch.relu(super().forward(x))


def test_layers_that_do_more_still_do(twins):
    x = torch.randn(4, 3, 5, 5)
    with synchronised():
        out = WithActivation(3)(x)
    assert float(out.detach().min()) == 0
    assert torch.allclose(out, torch.relu(nn.BatchNorm2d(3)(x)), atol=1e-5)


def test_nothing_changes_in_evaluation_afterwards_and_alone(monkeypatch, twins):
    x, calls = torch.randn(5, 3), []
    monkeypatch.setattr(parallel, "all_reduce_sum", lambda *tensors: calls.append(len(tensors)))

    def fresh(**options):
        with synchronised(**options):
            return nn.BatchNorm1d(3)(x)

    with synchronised():
        assert torch.equal(nn.BatchNorm1d(3).eval()(x), nn.BatchNorm1d(3).eval()(x))
    assert calls == []
    expected = nn.BatchNorm1d(3)(x)
    assert torch.equal(fresh(wanted=False), expected)
    monkeypatch.setattr(parallel, "world_size", lambda: 1)
    assert torch.equal(fresh(), expected)
    assert calls == []
    monkeypatch.setattr(parallel, "world_size", lambda: 2)
    fresh()
    assert calls == [1, 1], "two messages a layer"


def test_an_interrupt_inside_leaves_everything_as_it_was(monkeypatch, twins):
    def interrupted():
        with synchronised():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    monkeypatch.setattr(parallel, "all_reduce_sum", None)
    nn.BatchNorm1d(3)(torch.randn(5, 3))
