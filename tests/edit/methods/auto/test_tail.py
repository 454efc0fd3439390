"""The live tail: what is behind a cut moves, on kept maps, and nothing else."""

from __future__ import annotations

import copy
import dataclasses
import time
from typing import Any

import pytest
import torch
from torch import nn

import ecbm
from ecbm.edit.alignment import Alignment, align
from ecbm.edit.carry import carry
from ecbm.edit.heads import label_design, solve_concepts, solve_label, step_label
from ecbm.edit.methods.auto.cost import CostModel
from ecbm.edit.methods.auto.ladder import climb
from ecbm.edit.methods.auto.rungs import GradientSteps
from ecbm.edit.methods.auto.tail import LiveTail, _gradients, _rate
from ecbm.edit.methods.base import Options, Outcome
from ecbm.show.demo_repair import careless
from ecbm.train import stages
from ecbm.train.cuts import cuts_of
from ecbm.train.heads.objectives import LabelObjective, rows_of
from ecbm.train.terms import terms_of
from kit import tabular

CLEAN = ecbm.datasets.birds(n=240, size=24)
BIRDS = careless(CLEAN, 0)
REPAIR = ecbm.Edit.between(BIRDS, CLEAN)


@pytest.fixture(scope="module")
def birds() -> ecbm.Editor:
    return ecbm.Editor(ecbm.train(BIRDS, ecbm.Recipe(backbone="convnet", epochs=4)), BIRDS)


@pytest.fixture(autouse=True)
def always_climb(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ecbm.edit.methods.auto.ladder.CLIMB_FROM", 0.0)


def aligned(editor: ecbm.Editor, edit: ecbm.Edit) -> Alignment:
    return align(editor.model, editor.data, edit, edit.apply_to(editor.data))


def run(editor: ecbm.Editor, edit: ecbm.Edit, cost: Any = None, **options: Any) -> Outcome:
    alignment = aligned(editor, edit)
    prices = CostModel.of(alignment) if cost is None else dataclasses.replace(CostModel.of(alignment), **cost)
    return climb(alignment, editor.state, Options(**{"budget": 0.5} | options), prices, [LiveTail()])


@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_every_cut_is_reached_and_its_front_is_left(birds: ecbm.Editor, place: int) -> None:
    """With injected prices: tails that are too long cost more than there is."""
    cost = CostModel.of(aligned(birds, REPAIR))
    steps = 5 * cost.samples / cost.batch
    price = 0.25 * cost.retraining / (steps * 3.3 * cost.batch)
    tails = tuple(price if n <= place else 1000 * price for n in range(4))
    outcome = run(birds, REPAIR, {"tails": tails, "closing": cost.forward * (cost.samples + cost.validation)})
    rung = outcome.settings["ladder"][1]
    cut, moved = (cuts_of(model.backbone)[place] for model in (birds.model, outcome.model))
    assert rung["cut"] == cut.name
    for name, value in cut.front.state_dict().items():
        assert torch.equal(moved.front.state_dict()[name], value)
    weights = zip(cut.tail.parameters(), moved.tail.parameters(), strict=True)
    assert rung["kept"] == any(not torch.equal(one, other) for one, other in weights)


def test_it_pays_and_says_what_it_did(birds: ecbm.Editor) -> None:
    result = birds.apply(REPAIR, budget=0.5)
    settings = result.report["settings"]
    exact, tail = settings["ladder"]
    assert tail["kept"]
    assert tail["edited_objective"] < exact["edited_objective"]
    assert settings["kept_rung"] == "live tail"
    assert tail["steps"] > 1
    assert tail["layers_in_axes"] >= 1
    assert settings["share_spent"] <= 1.15 * 0.5
    assert "in front of" in result.report["not_covered"]["BatchNorm statistics"]


def test_the_same_edit_twice_gives_equal_fingerprints(birds: ecbm.Editor) -> None:
    fresh = ecbm.Editor(birds.model, BIRDS)
    first, second = (fresh.apply(REPAIR, budget=0.3) for _ in range(2))
    assert len(first.report["settings"]["ladder"]) == 2
    assert first.model.fingerprint == second.model.fingerprint
    assert first.report["settings"]["work"] == second.report["settings"]["work"]
    torch.manual_seed(99)
    assert birds.apply(REPAIR, budget=0.3).model.fingerprint == first.model.fingerprint


def test_its_features_are_those_of_the_model(birds: ecbm.Editor) -> None:
    outcome = run(birds, REPAIR)
    assert outcome.settings["kept_rung"] == "live tail"
    assert outcome.facts.design is not None
    expected = stages.feature_design(outcome.model.backbone, CLEAN.split("train").inputs)
    assert torch.equal(outcome.facts.design, expected)


def test_features_of_rounded_maps_are_no_facts(birds: ecbm.Editor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ecbm.edit.maps._SINGLE_BYTES", 1000)
    outcome = run(ecbm.Editor(birds.model, BIRDS), REPAIR, budget=0.1)
    assert outcome.settings["ladder"][1]["maps"] == "float16"
    assert (outcome.facts.design is None) == outcome.settings["ladder"][1]["kept"]


def test_statistics_behind_the_cut_become_those_of_the_edited_data(birds: ecbm.Editor) -> None:
    outcome = run(birds, REPAIR)
    rung = outcome.settings["ladder"][1]
    names = [cut.name for cut in cuts_of(outcome.model.backbone)]
    cut, before = (cuts_of(model.backbone)[names.index(rung["cut"])] for model in (outcome.model, birds.model))
    norms = [m for m in cut.tail.modules() if isinstance(m, nn.BatchNorm2d)]
    old = [m for m in before.tail.modules() if isinstance(m, nn.BatchNorm2d)]
    assert norms
    for module, other in zip(norms, old, strict=True):
        assert not torch.equal(module.running_mean, other.running_mean)
        assert not module.training


def test_frozen_layers_and_their_statistics_stay() -> None:
    data = tabular(120)
    torch.manual_seed(0)
    backbone = nn.Sequential(
        nn.Linear(data.inputs.shape[0], 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 8), nn.BatchNorm1d(8)
    )
    for layer in (backbone[1], backbone[3]):
        layer.requires_grad_(False)
    editor = ecbm.Editor(ecbm.train(data, ecbm.Recipe(backbone=backbone, epochs=3)), data)
    before = copy.deepcopy(editor.model.backbone.state_dict())
    train, name = data.split("train"), data.concept_names[0]
    edit = ecbm.Edit(
        correct_concepts=[(i, name, 1 - float(train.concepts[train.row(i), 0])) for i in train.ids[:40]]
    )
    outcome = run(editor, edit, budget=1.0)
    assert len(outcome.settings["ladder"]) == 2
    after = outcome.model.backbone.state_dict()
    for layer in ("1", "3"):
        for key in before:
            if key.startswith(layer):
                assert torch.equal(after[key], before[key]), key


def test_a_backbone_that_cannot_be_cut_takes_gradient_steps() -> None:
    data = tabular(120)

    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(data.inputs.shape[0], 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.tanh(self.layer(x))

    editor = ecbm.Editor(ecbm.train(data, ecbm.Recipe(backbone=Whole(), epochs=3)), data)
    train, name = data.split("train"), data.concept_names[0]
    edit = ecbm.Edit(
        correct_concepts=[(i, name, 1 - float(train.concepts[train.row(i), 0])) for i in train.ids[:40]]
    )
    rungs = editor.apply(edit, budget=1.0).report["settings"]["ladder"]
    assert [rung["what"] for rung in rungs] == ["heads exactly", GradientSteps.name]


def test_a_clock_ends_it(birds: ecbm.Editor) -> None:
    birds.apply(REPAIR, budget=0.3)  # maps and features are kept
    started = time.monotonic()
    settings = birds.apply(REPAIR, seconds=2.0).report["settings"]
    assert time.monotonic() - started < 30
    assert settings["seconds_allowed"] == 2.0


def test_heads_are_closed_as_far_as_the_budget_goes(birds: ecbm.Editor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ecbm.edit.methods.auto.ladder._THOROUGH", 1.0)
    thorough = run(birds, REPAIR)
    assert "to the end" in thorough.settings["heads"]
    monkeypatch.setattr("ecbm.edit.methods.auto.ladder._THOROUGH", 0.0)
    monkeypatch.setattr("ecbm.edit.methods.auto.ladder._SOLVED", 1.0)
    stepped = run(birds, REPAIR)
    assert "2 steps of the label head" in stepped.settings["heads"]
    assert "solved to a gradient of 0.0001" in stepped.settings["heads"]
    monkeypatch.setattr("ecbm.edit.methods.auto.ladder._SOLVED", 0.0)
    assert "as trained" in run(birds, REPAIR).settings["heads"]


def test_steps_of_the_label_head_lower_its_objective_and_go_most_of_the_way(birds: ecbm.Editor) -> None:
    alignment, state = aligned(birds, REPAIR), birds.state
    solved = solve_concepts(carry(alignment), alignment, state.design)
    inverses = state.label_inverses(alignment)
    assert inverses is not None
    design = label_design(solved.model, alignment, solved.logits)
    objective = LabelObjective(design, alignment.after.labels, None, solved.model.recipe.label_regularisation)

    def value(model: ecbm.ConceptBottleneck) -> float:
        rows = rows_of(model.label_head)
        return float(objective.value(rows, design @ rows.T))

    start, end = value(solved.model), value(solve_label(solved.model, alignment, solved.logits, inverses).model)
    one, two = (value(step_label(solved.model, alignment, solved.logits, inverses, n).model) for n in (1, 2))
    assert start > one > two > end
    assert two - end < 0.5 * (start - end)


@pytest.mark.parametrize(
    ("steps", "work", "rate"),
    [
        (0.001, 0.01, 0.2), (0.1, 0.05, 0.5), (0.2, 0.1, 1.0), (0.5, 0.105, 1.0), (0.4, 0.14, 0.75),
        (0.5, 0.5, 0.5), (5.0, 1.0, 0.5), (0.1, 0.21, 0.25),
    ],
)  # fmt: skip
def test_the_rate_follows_steps_and_work(steps: float, work: float, rate: float) -> None:
    assert _rate(steps, work) == pytest.approx(rate)


def moved_by(editor: ecbm.Editor, **fields: Any) -> tuple[float, dict[str, Any]]:
    """How far the live tail takes the last block's weights under a recipe with other fields, and its record."""
    model = copy.deepcopy(editor.model)
    model.recipe = model.recipe.replace(**fields)
    outcome = run(ecbm.Editor(model, editor.data), REPAIR)
    before, after = (cuts_of(one.backbone)[0].tail.state_dict() for one in (model, outcome.model))
    far = max(float((after[name] - before[name]).abs().max()) for name in before if name.endswith("weight"))
    return far, outcome.settings["ladder"][1]


def test_the_backbones_share_of_the_rate_holds_for_it_too(birds: ecbm.Editor) -> None:
    usual, record = moved_by(birds)
    slow, slowly = moved_by(birds, backbone_rate=1e-3)
    assert record["learning_rate"] == slowly["learning_rate"]
    assert record["steps"] == slowly["steps"]
    assert slow < 0.05 * usual


def test_its_steps_take_as_many_samples_as_those_of_training(birds: ecbm.Editor) -> None:
    _, small = moved_by(birds, batch_size=24)
    _, large = moved_by(birds, batch_size=12, accumulate=2)
    assert small["learning_rate"] == large["learning_rate"]
    assert abs(small["steps"] - large["steps"]) <= 1


def test_accumulated_gradients_are_those_of_the_large_batch() -> None:
    torch.manual_seed(0)
    data = tabular(60)
    network, parameters = nn.Linear(6, len(data.concept_names)), []
    parameters += network.parameters()
    terms = terms_of(data, torch.ones(len(data.concept_names)), None)
    for rows in (torch.arange(40), torch.arange(33)):
        (whole, one), (parts, several) = (
            _gradients(network, parameters, data.inputs, terms, rows, size) for size in (64, 16)
        )
        assert whole == pytest.approx(parts, rel=1e-5)
        for a, b in zip(one, several, strict=True):
            torch.testing.assert_close(a, b)
