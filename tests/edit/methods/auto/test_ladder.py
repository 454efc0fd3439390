"""The ladder: budgets are kept, every rung can be reached, and nothing worse than the exact heads is ever kept."""

from __future__ import annotations

import copy
import dataclasses
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import nn

import ecbm
from ecbm.edit.alignment import Alignment, align
from ecbm.edit.gradients import concept_part
from ecbm.edit.methods.auto.cost import CostModel
from ecbm.edit.methods.auto.ladder import Ladder, climb
from ecbm.edit.methods.auto.moves import MOVES
from ecbm.edit.methods.auto.rungs import GradientSteps, Moved
from ecbm.edit.methods.base import Options, Outcome
from kit import tabular

DATA = tabular(60)


def train(**options: Any) -> ecbm.ConceptBottleneck:
    return ecbm.train(DATA, ecbm.Recipe(**({"backbone": "mlp", "hidden": (8,), "epochs": 3} | options)))


@pytest.fixture(scope="module")
def deep() -> ecbm.ConceptBottleneck:
    return train(head_tolerance=1e-6)


def flips(count: int) -> ecbm.Edit:
    data, name = DATA.split("train"), DATA.concept_names[0]
    return ecbm.Edit(correct_concepts=[(data.ids[r], name, 1 - float(data.concepts[r, 0])) for r in range(count)])


def aligned(model: ecbm.ConceptBottleneck, edit: ecbm.Edit) -> Alignment:
    return align(model, DATA, edit, edit.apply_to(DATA))


class Fake:
    """A move that multiplies the backbone's weights: a small factor leaves the heads nothing to read."""

    def __init__(self, name: str, factor: float) -> None:
        self.name, self.factor = name, factor

    def least(self, ladder: Ladder) -> float:
        return 0.0

    def worth_it(self, ladder: Ladder) -> bool:
        return True

    def run(self, ladder: Ladder, work: float) -> Moved | None:
        part = concept_part(ladder.last.model)
        with torch.no_grad():
            for parameter in part.backbone.parameters():
                parameter.mul_(self.factor)
        return Moved(part, {"factor": self.factor}, 1.0)


class Helpful(Fake):
    """The real gradient steps, many of them."""

    def __init__(self) -> None:
        super().__init__("helpful steps", 1.0)

    def run(self, ladder: Ladder, work: float) -> Moved | None:
        return GradientSteps().run(ladder, 200 * ladder.cost.step)


def run(model: ecbm.ConceptBottleneck, edit: ecbm.Edit, moves: Any, **options: Any) -> Outcome:
    alignment, state = aligned(model, edit), ecbm.Editor(model, DATA).state
    cost = dataclasses.replace(CostModel.of(alignment), closing=0.0, labels=0.0)
    if [type(move) for move in moves] == [GradientSteps]:
        cost = dataclasses.replace(cost, tails=())  # as if the backbone could not be cut
    return climb(alignment, state, Options(**{"budget": 1.0} | options), cost, moves)


@pytest.mark.parametrize(
    ("moves", "kept"),
    [
        ([Fake("fading", 0.1)], [True, False]),
        ([Fake("fading", 0.1), Fake("dying", 0.0)], [True, False, False]),
        ([Fake("fading", 0.1), Helpful()], [True, False, True]),
        ([Helpful(), Fake("fading", 0.1)], [True, True, False]),
        ([Fake("not a number", float("nan"))], [True, False]),
    ],
)
def test_a_rung_that_harms_is_refused_wherever_it_appears(
    deep: ecbm.ConceptBottleneck, moves: Any, kept: Any
) -> None:
    outcome = run(deep, flips(20), moves)
    ladder = outcome.settings["ladder"]
    assert ladder[0]["what"] == "heads exactly"
    assert [rung["kept"] for rung in ladder] == kept
    objectives = [rung["edited_objective"] for rung in ladder if rung["kept"]]
    assert objectives == sorted(objectives, reverse=True)
    for move, stays in zip(moves, kept[1:], strict=True):
        assert (f"{move.name} did not pay" in outcome.settings["why"]) != stays


def test_the_baseline_is_the_exact_heads_and_not_the_unedited_model(deep: ecbm.ConceptBottleneck) -> None:
    """A move between the two, better than nothing and worse than the heads, is refused."""
    outcome = run(deep, flips(20), [Fake("a little fading", 0.97)])
    exact, faded = outcome.settings["ladder"]
    editor = ecbm.Editor(deep, DATA)
    unedited = editor.apply(flips(20), "exact").report["objective"]["before"]["concepts"]
    assert exact["edited_objective"] < faded["edited_objective"] < unedited
    assert not faded["kept"]


@pytest.mark.parametrize("move", MOVES, ids=lambda move: move.name)
def test_every_move_is_reached_where_work_costs_nothing(move: Any) -> None:
    model = train(epochs=8, hidden=(16,))
    outcome = run(model, flips(20), [move])
    assert [rung["what"] for rung in outcome.settings["ladder"][1:]] == [
        move.name
    ] or move.name in outcome.settings["why"]


def test_what_is_spent_stays_near_what_was_given() -> None:
    data = tabular(2000, 24)
    model = ecbm.train(data, ecbm.Recipe(backbone="mlp", hidden=(128,), epochs=20, patience=None))
    part, name = data.split("train"), data.concept_names[0]
    edit = ecbm.Edit(correct_concepts=[(i, name, 1.0) for i in part.ids[:600]])
    editor = ecbm.Editor(model, data)
    for budget in (0.2, 0.5):
        settings = editor.apply(edit, budget=budget).report["settings"]
        assert settings["share_spent"] <= 1.15 * budget
        assert settings["work"]["allowed"] == pytest.approx(budget * settings["work"]["retraining"])


def test_a_small_budget_ends_with_the_heads_and_says_so(deep: ecbm.ConceptBottleneck) -> None:
    result = ecbm.Editor(deep, DATA).apply(flips(5), budget=1e-6)
    assert result.report["settings"]["kept_rung"] == "heads exactly"
    assert "no room for the backbone" in result.report["settings"]["why"]
    assert result.report["residual"]["concept_head"] <= 1e-6  # the recipe's own tolerance


def test_an_edit_of_classes_leaves_the_backbone(deep: ecbm.ConceptBottleneck) -> None:
    data = DATA.split("train")
    other = next(name for name in DATA.class_names if name != DATA.class_names[int(data.labels[0])])
    result = ecbm.Editor(deep, DATA).apply(ecbm.Edit(correct_labels=[(data.ids[0], other)]), budget=1.0)
    assert "nothing that the backbone was trained on" in result.report["settings"]["why"]
    for name, value in deep.backbone.state_dict().items():
        assert torch.equal(result.model.backbone.state_dict()[name], value)


@pytest.mark.parametrize("method", ["auto", "exact", "ekfac", "hessian", "retrain"])
@pytest.mark.parametrize("edit", ["flips", "new concept", "removed samples"])
@pytest.mark.parametrize("frozen", ["one weight", "a layer", "everything"])
def test_no_method_moves_a_frozen_parameter(frozen: str, edit: str, method: str) -> None:
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Linear(DATA.inputs.shape[0], 6), nn.ReLU(), nn.Linear(6, 6))
    names = {"one weight": ["0.weight"], "a layer": ["0.weight", "0.bias"], "everything": None}[frozen]
    for name, parameter in backbone.named_parameters():
        parameter.requires_grad_(not (names is None or name in names))
    model = ecbm.train(DATA, ecbm.Recipe(backbone=backbone, epochs=2))
    before = copy.deepcopy(model.backbone.state_dict())
    ids = DATA.split("train").ids
    change = {
        "flips": flips(20),
        "new concept": ecbm.Edit(add_concepts={"fresh": {i: float(n % 2) for n, i in enumerate(ids)}}),
        "removed samples": ecbm.Edit(remove_samples=ids[10:13]),
    }[edit]
    result = ecbm.Editor(model, DATA).apply(change, method, **({"budget": 1.0} if method == "auto" else {}))
    for name, parameter in model.backbone.named_parameters():
        if not parameter.requires_grad:
            assert torch.equal(result.model.backbone.get_parameter(name), before[name])
    assert bool(torch.isfinite(result.model.class_probabilities(DATA.x)).all())


@pytest.mark.parametrize("budget", [float("inf"), float("nan"), 0.0, -1.0, 1.5, 20])
def test_a_budget_that_is_no_share_is_refused(deep: ecbm.ConceptBottleneck, budget: float) -> None:
    with pytest.raises(ecbm.InputError, match="share of retraining's work"):
        ecbm.Editor(deep, DATA).apply(flips(1), budget=budget)


def test_a_clock_is_a_named_alternative_and_says_that_it_cannot_be_replayed(deep: ecbm.ConceptBottleneck) -> None:
    settings = ecbm.Editor(deep, DATA).apply(flips(20), seconds=0.5).report["settings"]
    assert settings["seconds_allowed"] == 0.5
    assert "clock" in settings["replayable"]
    assert settings["budget"] is None
    for wrong in (0, -1.0, float("inf"), "soon"):
        with pytest.raises(ecbm.InputError, match="seconds must be positive"):
            ecbm.Editor(deep, DATA).apply(flips(1), seconds=wrong)


SCRIPT = """
import torch
torch.set_num_threads(1)
import ecbm
from kit import tabular
data = tabular(400, 12)
model = ecbm.train(data, ecbm.Recipe(backbone="mlp", hidden=(64,), epochs=4))
part, name = data.split("train"), data.concept_names[0]
edit = ecbm.Edit(correct_concepts=[(i, name, 1.0) for i in part.ids[:120]])
result = ecbm.Editor(model, data).apply(edit, budget=0.5)
assert len(result.report["settings"]["ladder"]) > 1, result.report["settings"]
print(result.model.fingerprint)
"""


def test_the_same_edit_gives_the_same_bytes_on_an_idle_and_on_a_busy_machine() -> None:
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        loaded = subprocess.run(
            [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, cwd="tests"
        )
    finally:
        for process in busy:
            process.kill()
            process.wait()
    idle = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, cwd="tests")
    assert loaded.stdout == idle.stdout != ""
