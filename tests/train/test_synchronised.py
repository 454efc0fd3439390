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
        with synchronised(nn.Sequential(layer)):
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
    with synchronised(layer):
        out = layer(x)
    assert out.dtype == torch.bfloat16
    assert torch.allclose(out.float(), nn.BatchNorm1d(3)(x.float()), atol=0.02)


def test_a_process_without_samples_of_a_small_batch_takes_part(twins):
    layer = nn.BatchNorm1d(3)
    with synchronised(layer):
        assert layer(torch.zeros(0, 3)).shape == (0, 3)


def test_layers_are_as_before_afterwards_in_evaluation_and_alone(monkeypatch, twins):
    network = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    layer, x = network[1], torch.randn(5, 3)

    def interrupted():
        with synchronised(network):
            assert "forward" in layer.__dict__
            assert torch.equal(layer.eval()(x), nn.BatchNorm1d(3).eval()(x))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert "forward" not in layer.__dict__
    with synchronised(network, wanted=False):
        assert "forward" not in layer.__dict__
    monkeypatch.setattr(parallel, "world_size", lambda: 1)
    with synchronised(network):
        assert "forward" not in layer.__dict__
