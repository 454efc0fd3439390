"""The backbone is left alone where an edit moves predictions no more than another seed would."""

from __future__ import annotations

import pytest
import torch

import ecbm
from ecbm.edit.alignment import align
from ecbm.edit.methods.auto.leave import CLIMB_FROM, pull, wandering
from ecbm.show.demo_repair import careless

CLEAN = ecbm.datasets.birds(n=400, size=24)
BIRDS = careless(CLEAN, 0)
TRAIN = BIRDS.split("train")
REPAIR = ecbm.Edit.between(BIRDS, CLEAN)
FEW = ecbm.Edit(correct_concepts=REPAIR.correct_concepts[:1])
COLUMN = {i: float(CLEAN.concepts[CLEAN.row(i), 0]) for i in TRAIN.ids}


@pytest.fixture(scope="module")
def editor() -> ecbm.Editor:
    return ecbm.Editor(ecbm.train(BIRDS, ecbm.Recipe(backbone="convnet", epochs=6)), BIRDS)


def pull_of(editor: ecbm.Editor, edit: ecbm.Edit) -> float:
    alignment = align(editor.model, BIRDS, edit, edit.apply_to(BIRDS))
    return pull(alignment, editor.state, editor.apply(edit, "exact").model)


def test_wandering_is_found_once_and_kept(editor: ecbm.Editor) -> None:
    found = wandering(editor.state)
    assert 0.005 < found < 0.5
    spent = editor.state.seconds["wandering"]
    assert wandering(editor.state) == found
    assert editor.state.seconds["wandering"] == spent
    other = ecbm.Editor(editor.model, BIRDS)
    assert wandering(other.state) == found
    third = ecbm.Editor(editor.model, BIRDS)
    third.state.restore(editor.state.stored())
    assert wandering(third.state) == found
    assert "wandering" not in third.state.seconds


def test_finding_it_changes_nothing(editor: ecbm.Editor) -> None:
    fresh = ecbm.Editor(editor.model, BIRDS)
    before = editor.model.fingerprint
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    wandering(fresh.state)
    assert torch.equal(torch.rand(1), expected)
    assert editor.model.fingerprint == before


@pytest.mark.parametrize(
    "edit",
    [
        FEW,
        ecbm.Edit(remove_samples=TRAIN.ids[:3]),
        ecbm.Edit(remove_concepts=[BIRDS.concept_names[3]]),
    ],
    ids=["one label", "three samples", "a concept"],
)
def test_a_small_edit_leaves_the_backbone_and_says_why(editor: ecbm.Editor, edit: ecbm.Edit) -> None:
    assert pull_of(editor, edit) < CLIMB_FROM * wandering(editor.state)
    result = editor.apply(edit, budget=0.5)
    assert "no more than another seed would" in result.report["settings"]["why"]
    assert result.report["settings"]["kept_rung"] == "heads exactly"
    for name, value in editor.model.backbone.state_dict().items():
        assert torch.equal(result.model.backbone.state_dict()[name], value)
    assert result.report["residual"]["concept_head"] <= editor.model.recipe.head_tolerance


def test_a_large_correction_moves_it(editor: ecbm.Editor) -> None:
    assert pull_of(editor, REPAIR) > CLIMB_FROM * wandering(editor.state)
    assert len(editor.apply(REPAIR, budget=0.5).report["settings"]["ladder"]) == 2


def test_a_new_concept_pulls_by_as_much_as_it_says_beyond_its_share(editor: ecbm.Editor) -> None:
    """Labels that the features know pull; a concept that is always absent says nothing."""
    telling = pull_of(editor, ecbm.Edit(add_concepts={"fresh": COLUMN}))
    silent = pull_of(editor, ecbm.Edit(add_concepts={"fresh": dict.fromkeys(COLUMN, 0.0)}))
    assert telling > 5 * silent
    five = pull_of(editor, ecbm.Edit(add_concepts={f"fresh {n}": COLUMN for n in range(5)}))
    assert five > CLIMB_FROM * wandering(editor.state)
    assert five == pytest.approx(
        telling * (5 * (len(BIRDS.concept_names) + 1) / (len(BIRDS.concept_names) + 5)) ** 0.5
    )
