"""Gradient steps on edited data: Adam as PyTorch's in any memory format, and rungs that are not worse by chance."""

from __future__ import annotations

import copy
import subprocess
import sys

import pytest
import torch
from torch import nn

import ecbm
from ecbm.edit.methods.auto.guard import Rung
from ecbm.edit.methods.auto.refine import _Adam
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


@pytest.mark.parametrize(("more", "fewer", "worse"), [(12, 4, False), (14, 2, True), (2, 14, False), (0, 0, False)])
def test_a_rung_errs_more_only_beyond_chance(more: int, fewer: int, worse: bool) -> None:
    before = torch.zeros(50, dtype=torch.bool)
    before[:fewer] = True
    after = torch.zeros(50, dtype=torch.bool)
    after[50 - more :] = True

    def rung(wrong: torch.Tensor) -> _Rung:
        return _Rung("", None, torch.zeros(0), 0.0, wrong, 0.0)  # type: ignore[arg-type]

    assert rung(after).errs_more(rung(before)) is worse


DATA = tabular(60)


@pytest.fixture(scope="module")
def deep() -> ecbm.ConceptBottleneck:
    return ecbm.train(DATA, ecbm.Recipe(backbone="mlp", hidden=(8,), epochs=3, head_tolerance=1e-6))


def flips(count: int) -> ecbm.Edit:
    train, name = DATA.split("train"), DATA.concept_names[0]
    return ecbm.Edit(correct_concepts=[(train.ids[r], name, 1 - float(train.concepts[r, 0])) for r in range(count)])


def test_an_edit_of_classes_leaves_the_backbone(deep: ecbm.ConceptBottleneck) -> None:
    train = DATA.split("train")
    other = next(name for name in DATA.class_names if name != DATA.class_names[int(train.labels[0])])
    result = ecbm.Editor(deep, DATA).apply(ecbm.Edit(correct_labels=[(train.ids[0], other)]), budget=5.0)
    assert "nothing that the backbone was trained on" in result.report["settings"]["why"]
    for name, value in deep.backbone.state_dict().items():
        assert torch.equal(result.model.backbone.state_dict()[name], value)


def test_an_edit_that_the_backbone_cannot_feel_leaves_it_and_says_so(
    deep: ecbm.ConceptBottleneck, monkeypatch: pytest.MonkeyPatch
) -> None:
    editor = ecbm.Editor(deep, DATA)
    whole = editor.apply(flips(20), budget=2.0)
    assert len(whole.report["settings"]["ladder"]) > 1
    monkeypatch.setattr("ecbm.edit.methods.auto.ladder._FEELABLE", 1e9)
    left = editor.apply(flips(20), budget=2.0)
    assert "left as it is" in left.report["settings"]["why"]
    assert left.report["settings"]["kept_rung"] == "heads exactly"


def test_heads_are_solved_to_the_recipes_tolerance_whatever_it_is(deep: ecbm.ConceptBottleneck) -> None:
    result = ecbm.Editor(deep, DATA).apply(flips(5), budget=1e-6)
    assert result.report["residual"]["concept_head"] <= 1e-6


def test_a_frozen_parameter_is_left_and_the_rest_refined() -> None:
    backbone = nn.Sequential(nn.Linear(DATA.inputs.shape[0], 6), nn.ReLU(), nn.Linear(6, 6))
    backbone[0].weight.requires_grad_(False)
    model = ecbm.train(DATA, ecbm.Recipe(backbone=backbone, epochs=2))
    result = ecbm.Editor(model, DATA).apply(flips(20), budget=3.0)
    assert torch.equal(result.model.backbone[0].weight, model.backbone[0].weight)


def test_a_budget_without_end_is_refused(deep: ecbm.ConceptBottleneck) -> None:
    with pytest.raises(ecbm.InputError, match="positive and finite"):
        ecbm.Editor(deep, DATA).apply(flips(1), budget=float("inf"))
