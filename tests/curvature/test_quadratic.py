"""The quadratic form of the Gauss–Newton matrix, against the dense matrix."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ecbm.curvature import ConceptLoss, ExactOperator, LabelLoss, gauss_newton_quadratic


def network(middle: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), middle, nn.BatchNorm1d(6), nn.Linear(6, 3)).double()


@pytest.mark.parametrize("kind", ["concepts", "classes"])
@pytest.mark.parametrize("chosen", ["all", "some"])
def test_it_is_that_of_the_dense_matrix(kind: str, chosen: str) -> None:
    module = network(nn.Tanh())
    x = torch.randn(30, 4, dtype=torch.float64)
    loss = LabelLoss(torch.arange(30) % 3) if kind == "classes" else ConceptLoss((x[:, :3] > 0).double())
    names = [name for name, _ in module.named_parameters() if chosen == "all" or name.startswith("0.")]
    vector = {name: torch.randn_like(module.get_parameter(name)) for name in names}
    operator = ExactOperator(module, x, loss, l2=0.1, parameters=names)
    flat = torch.cat([vector[name].flatten() for name in operator.names])
    wanted = float(flat @ operator.dense() @ flat)
    other = {name: -2 * value for name, value in vector.items()}
    found = [gauss_newton_quadratic(module, x, loss, one, l2=0.1, batch_size=7) for one in (vector, other)]
    assert found == [pytest.approx(wanted, rel=1e-3), pytest.approx(4 * wanted, rel=1e-3)]


def test_single_precision_and_training_mode_are_left_as_they_were() -> None:
    module = network(nn.Dropout(0.9)).float().train()
    x = torch.randn(20, 4)
    loss = ConceptLoss((x[:, :3] > 0).float())
    before = {name: value.clone() for name, value in module.state_dict().items()}
    vector = {name: torch.randn_like(p) for name, p in module.named_parameters()}
    one, other = (gauss_newton_quadratic(module, x, loss, vector) for _ in range(2))
    assert one == other > 0
    assert module.training
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
