"""Versions come out of their parents again, to the bit; what does not is found, and what cannot be said is said."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from attack_malformed import command
from attack_resign import flip_label, flip_weight
from workspace_kit import EDITS, RECIPE, copy, more_samples, small_data, trained_workspace

import ecbm
from ecbm.keep import environment, replay
from ecbm.keep.records import Version
from ecbm.keep.workspace import Workspace
from kit import pictures, tabular


def verdicts(workspace, *numbers):
    """What a replay says: version to ``same``."""
    result = workspace.check(replay=list(numbers) or True)
    return {item["version"]: item["same"] for item in result["replayed"]}


def reasons(workspace, number):
    (item,) = workspace.check(replay=[number])["replayed"]
    return item["same"], item["why"]


@pytest.fixture(scope="module")
def edited(tmp_path_factory):
    """Version 2 is made from 1, and 3 from 2."""
    made = trained_workspace(tmp_path_factory.mktemp("replay") / "w")
    made.edit(EDITS["mixed"](), "exact")
    made.edit(EDITS["class labels"](), "exact")
    return made.folder


@pytest.fixture
def workspace(edited, tmp_path):
    return Workspace(copy(edited, tmp_path / "w"))


@pytest.mark.parametrize("method", ["exact", "auto", "ekfac", "hessian", "retrain"])
def test_every_level_of_edit_comes_out_again(tmp_path, method):
    made = trained_workspace(tmp_path / "w")
    for name in EDITS:
        made.edit(EDITS[name](), method)
        made.undo()
    result = Workspace(made.folder).check(replay=True)
    assert (result["ok"], result["problems"]) == (True, [])
    found = {item["version"]: item["same"] for item in result["replayed"]}
    assert found == {0: None} | dict.fromkeys(range(1, 2 + len(EDITS)), True)


def test_edits_in_a_row_each_from_the_one_before(tmp_path):
    made = trained_workspace(tmp_path / "w")
    names = ["class labels", "add samples", "concept labels", "add concepts", "remove samples", "remove concepts"]
    for name in names:
        made.edit(EDITS[name](), "exact")
    made.undo()
    found = verdicts(made)
    assert found.pop(0) is None
    assert list(found.values()) == [True] * (1 + len(names))


@pytest.mark.parametrize("method", ["exact", "ekfac"])
def test_edits_of_separate_processes_whose_facts_came_forward_or_were_lost(tmp_path, method):
    """Each edit is opened anew and starts from kept facts, or from fresh ones once they are gone."""
    made = trained_workspace(tmp_path / "w")
    names = ["class labels", "concept labels", "add samples", "add concepts", "remove samples", "remove concepts"]
    for turn, name in enumerate(names):
        opened = Workspace(made.folder)
        if turn == 2:
            shutil.rmtree(made.folder / "cache")
        if turn == 4:
            opened.preview(EDITS[name](), "hessian")
        opened.edit(EDITS[name](), method if turn % 2 else "exact")
    for numbers in ([7], [3], list(range(2, 8))):  # alone, and all in a row
        assert set(verdicts(Workspace(made.folder), *numbers).values()) == {True}


@pytest.mark.parametrize("backbone", ["mlp", "convnet"])
def test_an_auto_edit_of_a_deep_model_comes_out_again_where_its_backbone_moved(tmp_path, backbone, monkeypatch):
    monkeypatch.setattr("ecbm.edit.methods.auto.ladder.CLIMB_FROM", -1.0)
    data = tabular(300, 12) if backbone == "mlp" else pictures(160)
    recipe = ecbm.Recipe(backbone=backbone, hidden=(32,), epochs=3, batch_size=16)
    made = Workspace.create(tmp_path / "w", data, recipe)
    made.train()
    train, moved = data.split("train"), 0
    for turn in range(2):
        name, rows = data.concept_names[turn], range(20 * turn, 20 * turn + 40)
        flips = [(train.ids[r], name, 1 - float(train.concepts[r, turn])) for r in rows]
        _, report = Workspace(made.folder).edit(ecbm.Edit(correct_concepts=flips), budget=1.0)
        moved += len(report["settings"]["ladder"]) > 1
    assert moved
    assert verdicts(made) == {0: None, 1: True, 2: True, 3: True}


def test_an_edit_that_found_curvature_gives_the_bytes_of_one_that_fitted_it(tmp_path):
    """Arrays that were read lie elsewhere in memory than computed ones; products must not show it."""
    names = [f"concept{number}" for number in range(13)]
    made = Workspace.create(tmp_path / "w", tabular(800, 64, concepts=names), RECIPE)
    made.train()
    edit = ecbm.Edit(correct_concepts=[("s1", names[3], 1), ("s3", names[5], None)], remove_samples=["s10"])
    for _ in range(2):
        made.edit(edit, "hessian")
        made.undo()
    assert list((made.folder / "cache").glob("curvature-*"))
    assert made.model(2).fingerprint == made.model(3).fingerprint
    assert verdicts(made, 2, 3) == {2: True, 3: True}


def test_samples_that_replace_others_and_new_concepts_of_new_samples(tmp_path):
    made = trained_workspace(tmp_path / "w")
    extra = more_samples()
    renamed = ecbm.Dataset(
        ["zz", "s12"], extra.inputs, extra.concepts, extra.labels, extra.concept_names, extra.class_names
    )
    new = {"zz": 1, "s12": 0.25, **{f"s{i}": i % 2 for i in range(20, 30)}}
    made.edit(ecbm.Edit(remove_samples=["s12"], add_samples=renamed, add_concepts={"new": new, "b": {"zz": 1}}))
    assert verdicts(made, 2) == {2: True}


def test_an_edit_of_more_items_than_a_log_shows(tmp_path):
    made = Workspace.create(tmp_path / "w", tabular(2000, 4), RECIPE)
    made.train()
    names = made.data().split("train").ids[:1100]
    made.edit(ecbm.Edit(correct_concepts=[(name, "round", 0.75) for name in names]))
    assert verdicts(made, 2) == {2: True}


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("ekfac", {"damping": 0.3, "relative": False}),
        ("ekfac", {"fisher": "empirical", "gradient": "full"}),
        ("retrain", {"warm_start": True}),
        ("retrain", {}),
        ("exact", {}),
    ],
)
def test_deep_models_and_options(tmp_path, method, options):
    recipe = ecbm.Recipe(backbone="mlp", hidden=(8,), epochs=2, seed=4)
    made = Workspace.create(tmp_path / "w", tabular(80, 4), recipe)
    made.train()
    sample = made.data().split("train").ids[3]
    made.edit(ecbm.Edit(correct_concepts=[(sample, "round", 0.5)]), method, **options)
    assert verdicts(made) == {0: None, 1: True, 2: True}


def test_pictures(tmp_path):
    made = Workspace.create(tmp_path / "w", pictures(80), ecbm.Recipe(backbone="convnet", epochs=2))
    made.train()
    made.edit(ecbm.Edit(remove_samples=[made.data().split("train").ids[3]]), "ekfac")
    assert verdicts(made) == {0: None, 1: True, 2: True}


def test_a_training_that_was_interrupted_comes_out_as_one_that_was_not(tmp_path, monkeypatch):
    from ecbm.train.checkpoint import Checkpoint

    made = Workspace.create(tmp_path / "w", tabular(80, 4), ecbm.Recipe(backbone="mlp", hidden=(8,), epochs=4))
    save, saved = Checkpoint.save, []

    def interrupted(self, *arguments):
        save(self, *arguments)
        saved.append(self.path)
        if len(saved) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(Checkpoint, "save", interrupted)
    with pytest.raises(KeyboardInterrupt):
        made.train()
    assert saved[0].exists()
    made.train()
    assert len(saved) == 4
    assert verdicts(made) == {0: None, 1: True}


def test_a_recipe_that_was_given_to_the_training_alone_is_the_one_that_counts(tmp_path):
    made = Workspace.create(tmp_path / "w", small_data(), RECIPE)
    made.train(RECIPE.replace(concept_l2=0.7, pos_weight={"round": 2.0}))
    assert verdicts(made) == {0: None, 1: True}


def test_what_cannot_be_computed_again_is_said(tmp_path):
    made = trained_workspace(tmp_path / "w")
    made.edit(EDITS["class labels"](), "exact")
    made.erase(["s1"])
    made.train()
    made.edit(EDITS["concept labels"]() if "s1" in made.data().ids else ecbm.Edit(remove_samples=["s4"]))
    made.adopt(made.model())
    result = made.check(replay=True)
    assert result["ok"]
    found = {item["version"]: (item["same"], item["why"]) for item in result["replayed"]}
    assert [found[number][0] for number in range(7)] == [None, None, None, None, True, True, None]
    for number in (0, 1, 2):
        assert "destroyed by an erasure" in found[number][1]
    assert "destroyed with the erasure" in found[3][1]
    assert "trained elsewhere" in found[6][1]
    assert "as it was given" in reasons(Workspace.create(tmp_path / "new", small_data()), 0)[1]


# -- what was tampered with --------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "part"), [(1, "label_head"), (2, "concept_head"), (3, "label_head")])
def test_one_changed_bit_of_a_weight_is_found_however_well_it_is_signed(workspace, number, part):
    flip_weight(workspace.folder, number, part)
    assert workspace.check()["ok"]
    result = Workspace(workspace.folder).check(replay=True)
    assert not result["ok"]
    found = {item["version"]: item["same"] for item in result["replayed"]}
    # What is made from it may come out all the same: an exact edit ends at the optimum wherever it starts.
    assert [found[other] for other in range(1, number + 1)] == [True] * (number - 1) + [False]
    (problem,) = [item for item in result["problems"] if item["problem"].startswith(f"version {number}:")]
    assert "the kept model is not what comes out of version" in problem["problem"]
    assert problem["repair"]


def test_a_changed_label_is_found_however_well_it_is_signed(workspace):
    flip_label(workspace.folder, 2)
    assert workspace.check()["ok"]
    assert verdicts(Workspace(workspace.folder), 1, 2, 3) == {1: True, 2: False, 3: False}


def test_a_changed_label_of_the_first_data_does_not_give_the_model_that_was_trained_on_it(workspace):
    flip_label(workspace.folder, 0)
    assert workspace.check()["ok"]
    assert verdicts(Workspace(workspace.folder), 0, 1) == {0: None, 1: False}


def test_plain_damage_is_a_problem_and_a_difference_not_a_crash(workspace):
    path = workspace.store.path(workspace.version(2).model["parts"]["label_head"])
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))
    result = Workspace(workspace.folder).check(replay=True)
    assert not result["ok"]
    found = {item["version"]: (item["same"], item["why"]) for item in result["replayed"]}
    assert [found[number][0] for number in range(4)] == [None, True, False, None]
    assert "damaged" in found[2][1]
    assert "version 2, which it was made from, cannot be read" in found[3][1]


def test_records_that_cannot_be_read_are_a_problem_not_a_crash(workspace):
    path = workspace.folder / "records.sqlite"
    path.write_bytes(b"not a database" * 1000)
    status, out, _ = command("check", str(workspace.folder), "--replay", "--json")
    assert status == 1
    assert json.loads(out)["replayed"] == []


# -- what cannot be compared -------------------------------------------------------------------------------


def test_other_libraries(workspace, monkeypatch):
    here = environment._constant()
    monkeypatch.setattr(environment, "_constant", lambda: here | {"torch": "9.9"})
    same, why = reasons(workspace, 2)
    assert same is None
    assert f"made with torch {here['torch']}, here it is 9.9" in why


def test_another_processor_is_no_excuse_for_the_same_bytes_but_one_for_others(workspace, monkeypatch):
    here = environment._constant()
    monkeypatch.setattr(environment, "_constant", lambda: here | {"processor": "another"})
    assert reasons(workspace, 2)[0] is True
    flip_weight(workspace.folder, 2)
    same, why = reasons(Workspace(workspace.folder), 2)
    assert same is None
    assert "perhaps because it was made with a processor" in why


def threads_of_edits(monkeypatch):
    """On how many threads each edit from now on is made, as a list that grows."""
    used, apply = [], ecbm.Editor.apply

    def watched(*arguments, **options):
        used.append(torch.get_num_threads())
        return apply(*arguments, **options)

    monkeypatch.setattr(ecbm.Editor, "apply", watched)
    return used


def test_as_many_threads_as_there_were(tmp_path, monkeypatch):
    before = torch.get_num_threads()
    made = trained_workspace(tmp_path / "w")
    torch.set_num_threads(before + 1)
    try:
        made.edit(EDITS["mixed"](), "exact")
    finally:
        torch.set_num_threads(before)
    used = threads_of_edits(monkeypatch)
    assert verdicts(made, 2) == {2: True}
    assert used == [before + 1]
    assert torch.get_num_threads() == before


def test_against_a_clock(tmp_path, monkeypatch):
    made = trained_workspace(tmp_path / "w")
    apply = ecbm.Editor.apply
    monkeypatch.setattr(
        ecbm.Editor, "apply", lambda self, edit, method="auto", *, seconds=None: apply(self, edit, method)
    )
    made.edit(EDITS["mixed"](), seconds=0.5)
    same, why = reasons(made, 2)
    assert same is None
    assert "clock" in why


def test_versions_on_the_way_are_computed_as_they_were(tmp_path, monkeypatch):
    """Facts that version 3 started from came forward through version 2, which was made on more threads."""
    before = torch.get_num_threads()
    made = trained_workspace(tmp_path / "w")
    torch.set_num_threads(before + 1)
    try:
        made.edit(EDITS["class labels"](), "exact")
    finally:
        torch.set_num_threads(before)
    Workspace(made.folder).edit(EDITS["concept labels"](), "exact")
    used = threads_of_edits(monkeypatch)
    assert verdicts(made, 3) == {3: True}
    assert used == [before + 1, before]
    assert torch.get_num_threads() == before


def test_a_long_way_from_the_root_is_gone_step_by_step(tmp_path, monkeypatch):
    """Thousands of edits may lie between a version and the one at which its facts were computed."""
    made, far = trained_workspace(tmp_path / "w"), 3000
    editors, going = replay._Editors(made), []
    monkeypatch.setattr(
        made, "version", lambda number: Version(number, number - 1, "edit", "", 0, {}, None, None), raising=False
    )
    monkeypatch.setattr(replay, "_details", lambda *_: [])
    monkeypatch.setattr(replay, "_how", lambda _: ({"threads": torch.get_num_threads()}, {}))
    monkeypatch.setattr(replay, "Editor", lambda model, data: "editor 1")
    monkeypatch.setattr(made, "model", lambda number: None, raising=False)
    monkeypatch.setattr(made, "data", lambda number: None, raising=False)
    monkeypatch.setattr(editors, "_checked", lambda version, root: f"editor {version.version}")
    monkeypatch.setattr(
        editors, "applied", lambda version, root, parent, *_: going.append((parent, version.version))
    )
    assert editors.at(made.version(far), 1) == f"editor {far}"
    assert going == [(f"editor {number - 1}", number) for number in range(2, far + 1)]


def test_a_clock_on_the_way_is_no_proof_of_tampering(tmp_path, monkeypatch):
    made = trained_workspace(tmp_path / "w")
    apply, turns = ecbm.Editor.apply, iter(range(1, 100))

    def against_a_clock(self, edit, method="auto", **options):
        result = apply(self, edit, method)
        if "seconds" in options:
            with torch.no_grad():
                result.model.label_head.bias.add_(1e-9 * next(turns))
        return result

    monkeypatch.setattr(ecbm.Editor, "apply", against_a_clock)
    made.edit(EDITS["class labels"](), seconds=0.5)
    Workspace(made.folder).edit(EDITS["concept labels"](), "exact")
    same, why = reasons(made, 3)
    assert same is None
    assert "version 2" in why
    assert "clock" in why


def test_versions_of_an_ecbm_that_did_not_record_it(tmp_path, monkeypatch):
    monkeypatch.setattr("ecbm.keep.actions.computed", lambda *given: [])
    same, why = reasons(trained_workspace(tmp_path / "w"), 1)
    assert same is None
    assert "not recorded" in why


def test_weights_from_a_file_that_is_gone(tmp_path, monkeypatch):
    from ecbm.keep.actions import computed

    (tmp_path / "weights").write_bytes(b"weights")
    monkeypatch.setattr("ecbm.keep.actions.computed", lambda given, _=None: computed(given, tmp_path / "weights"))
    same, why = reasons(trained_workspace(tmp_path / "w"), 1)
    assert same is None
    assert "gone or has changed" in why


# -- in use ------------------------------------------------------------------------------------------------


def test_others_may_write_while_versions_are_computed_again(workspace, monkeypatch):
    again = replay.replay_versions

    def busy(opened, numbers):
        Workspace(workspace.folder).undo()
        return again(opened, numbers)

    monkeypatch.setattr(replay, "replay_versions", busy)
    assert verdicts(workspace, 3) == {3: True}
    assert workspace.head == 2


def test_a_replay_changes_nothing(workspace):
    before = sorted((str(p), p.stat().st_mtime_ns) for p in workspace.folder.rglob("*") if p.is_file())
    assert verdicts(workspace, 2, 3) == {2: True, 3: True}
    assert sorted((str(p), p.stat().st_mtime_ns) for p in workspace.folder.rglob("*") if p.is_file()) == before


def test_versions_are_named_in_any_order_and_form(workspace):
    result = workspace.check(replay=["head", 1, "v1"])
    assert [item["version"] for item in result["replayed"]] == [1, 3]
    with pytest.raises(ecbm.InputError, match="unknown version"):
        workspace.check(replay=[1, 9])
    assert "replayed" not in workspace.check()
