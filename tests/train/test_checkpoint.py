"""A checkpoint gives back exactly what was put in."""

from __future__ import annotations

import torch
from torch import nn

from ecbm.train.checkpoint import Checkpoint
from kit import same_bytes


def test_module_optimiser_history_and_best_come_back_bit_for_bit(tmp_path):
    def fresh():
        module = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
        return module, torch.optim.Adam(module.parameters(), lr=0.1)

    module, optimiser = fresh()
    for _ in range(3):
        optimiser.zero_grad()
        module(torch.randn(5, 3)).square().sum().backward()
        optimiser.step()
    history = [{"loss": 0.1 + 0.2, "val_loss": 1 / 3}, {"loss": 0.7, "val_loss": 0.6}]
    other = {name: value + 1 for name, value in module.state_dict().items()}
    store = Checkpoint(tmp_path / "state", {"recipe": {"seed": 1}})
    store.save(module, optimiser, history, (1 / 3, 0, other))
    again, again_optimiser = fresh()
    found = store.load(again, again_optimiser)
    assert found is not None
    assert found[0] == history
    lowest, epoch, best = found[1]
    assert (lowest, epoch) == (1 / 3, 0)
    assert all(torch.equal(best[name], other[name]) for name in other)
    assert same_bytes(again, module)
    old, new = optimiser.state_dict()["state"], again_optimiser.state_dict()["state"]
    assert all(torch.equal(old[i][slot], new[i][slot]) for i in old for slot in old[i])


def test_without_a_file_there_is_nothing_to_resume(tmp_path):
    module = nn.Linear(1, 1)
    assert Checkpoint(tmp_path / "state", {}).load(module, torch.optim.Adam(module.parameters())) is None
