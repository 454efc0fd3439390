"""A rung is kept if the edited objective fell and validation errors did not rise beyond chance."""

from __future__ import annotations

import pytest
import torch

from ecbm.edit.methods.auto.guard import Rung


def rung(objective: float, wrong: torch.Tensor) -> Rung:
    nothing = torch.zeros(0)
    return Rung("", None, nothing, nothing, objective, wrong, {}, 0.0)  # type: ignore[arg-type]


@pytest.mark.parametrize(("more", "fewer", "kept"), [(12, 4, True), (14, 2, False), (2, 14, True), (0, 0, True)])
def test_errors_may_rise_by_chance_only(more: int, fewer: int, kept: bool) -> None:
    before, after = torch.zeros(50, dtype=torch.bool), torch.zeros(50, dtype=torch.bool)
    before[:fewer] = True
    after[50 - more :] = True
    assert rung(0.9, after).better_than(rung(1.0, before)) is kept


@pytest.mark.parametrize("objective", [1.0, 1.1, float("nan"), float("inf")])
def test_an_objective_that_did_not_fall_is_refused(objective: float) -> None:
    right = torch.zeros(50, dtype=torch.bool)
    assert not rung(objective, right).better_than(rung(1.0, right))


def test_without_validation_labels_the_objective_decides() -> None:
    none = torch.zeros(0, dtype=torch.bool)
    assert rung(0.9, none).better_than(rung(1.0, none))
