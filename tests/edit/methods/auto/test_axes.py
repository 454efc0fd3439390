"""Adam in the curvature's axes: a rotation and nothing else."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from ecbm.edit.methods.auto.axes import Axes, AxesAdam, fit_axes, turning_work


def network() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 6, 3), nn.Flatten(), nn.Linear(96, 5)
    ).to(memory_format=torch.channels_last)


def orthonormal(size: int) -> Tensor:
    return torch.linalg.qr(torch.randn(size, size)).Q


def steps(module: nn.Module, axes: dict[nn.Parameter, Axes], count: int = 4) -> None:
    x = torch.rand(8, 3, 6, 6, generator=torch.Generator().manual_seed(5))
    optimiser = AxesAdam(list(module.parameters()), 0.1, axes)
    for turn in range(count):
        optimiser.step(torch.autograd.grad(module(x).square().sum(), optimiser.parameters), 0.01 * (turn + 1))


def test_identity_axes_are_adam() -> None:
    torch.manual_seed(0)
    plain = network()
    turned, theirs = copy.deepcopy(plain), copy.deepcopy(plain)
    steps(plain, {})
    steps(turned, {layer.weight: _identity(layer.weight) for layer in turned if hasattr(layer, "weight")})
    for one, other in zip(plain.parameters(), turned.parameters(), strict=True):
        assert torch.equal(one, other)
    optimiser = torch.optim.Adam(theirs.parameters(), weight_decay=0.1, foreach=False)
    x = torch.rand(8, 3, 6, 6, generator=torch.Generator().manual_seed(5))
    for turn in range(4):
        optimiser.param_groups[0]["lr"] = 0.01 * (turn + 1)
        optimiser.zero_grad()
        theirs(x).square().sum().backward()
        optimiser.step()
    for one, other in zip(plain.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one, other, atol=2e-5, rtol=1e-4)


def test_shares_of_the_rate_are_those_of_pytorchs_groups() -> None:
    torch.manual_seed(0)
    ours = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    theirs, x = copy.deepcopy(ours), torch.rand(8, 3)
    optimiser = AxesAdam(list(ours.parameters()), 0.1, {}, [0.25, 0.25, 1.0, 1.0])
    groups = [{"params": theirs[0].parameters(), "lr": 0.005}, {"params": theirs[1].parameters(), "lr": 0.02}]
    reference = torch.optim.Adam(groups, weight_decay=0.1)
    for _ in range(3):
        optimiser.step(torch.autograd.grad(ours(x).square().sum(), optimiser.parameters), 0.02)
        reference.zero_grad()
        theirs(x).square().sum().backward()
        reference.step()
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-5)


def _identity(weight: Tensor) -> Axes:
    return Axes(torch.eye(weight.shape[0]), torch.eye(weight.shape[1]))


@pytest.mark.parametrize("shape", [(6, 4, 3, 3), (5, 7), (2, 3, 1, 5)])
def test_turning_there_and_back_is_nothing_and_keeps_the_l2(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    axes, weight = Axes(orthonormal(shape[0]), orthonormal(shape[1])), torch.randn(shape)
    turned = axes.into(weight)
    assert float((turned - weight.movedim(1, -1).reshape(turned.shape)).abs().max()) > 0.1
    torch.testing.assert_close(axes.back(turned, shape), weight, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(turned.square().sum(), weight.square().sum())


def test_fitted_axes_are_orthonormal_and_make_the_covariances_diagonal() -> None:
    torch.manual_seed(0)
    module, x = network(), torch.rand(16, 3, 6, 6)
    axes = fit_axes(module, x, torch.ones(16, 5), batch=64, seed=0)
    assert set(axes) == {module[0].weight, module[2].weight}  # the last layer sees one position a sample
    for turn in axes.values():
        for basis in (turn.outputs, turn.inputs):
            torch.testing.assert_close(basis.T @ basis, torch.eye(len(basis)), atol=1e-5, rtol=0)
    channels = x.movedim(1, -1).reshape(-1, 3) @ axes[module[0].weight].inputs
    covariance = channels.T @ channels
    off = covariance - torch.diag(covariance.diagonal())
    assert float(off.abs().max()) < 1e-4 * float(covariance.diagonal().max())
    again = fit_axes(module, x, torch.ones(16, 5), batch=64, seed=0)
    assert all(torch.equal(axes[key].outputs, again[key].outputs) for key in axes)


def test_layers_for_which_turning_costs_more_than_a_step_stay_plain() -> None:
    """2 (d_in + d_out) against 3 · batch · positions / 2: 14 and 54, 28 and 24, 330 and 1.5."""
    module = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 10, 3), nn.Flatten(), nn.Linear(160, 5)
    )
    x, weights = torch.rand(4, 3, 6, 6), torch.ones(4, 5)
    assert fit_axes(module, x, weights, batch=1, seed=0).keys() == {module[0].weight}
    assert fit_axes(module, x, weights, batch=1000, seed=0).keys() == {module[n].weight for n in (0, 2, 4)}


def test_frozen_and_grouped_layers_are_left_out() -> None:
    module = nn.Sequential(nn.Conv2d(4, 4, 3, groups=2), nn.Conv2d(4, 4, 1), nn.Flatten(), nn.Linear(64, 5))
    module[1].weight.requires_grad_(False)
    assert fit_axes(module, torch.rand(4, 4, 6, 6), torch.ones(4, 5), batch=64, seed=0) == {}


def test_turning_has_a_price() -> None:
    weight = nn.Parameter(torch.zeros(6, 4, 3, 3))
    assert turning_work({weight: _identity(weight)}) == 9 * 4 * 6 * 4 * (6 + 4)
