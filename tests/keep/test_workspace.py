"""Versions, undo and redo, sharing, and what is refused."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from workspace_kit import (
    EDITS,
    PATIENT,
    RECIPE,
    bytes_of,
    copy,
    edited_workspace,
    new_workspace,
    rows,
    small_data,
    state_of,
    trained_workspace,
)  # fmt: skip

import ecbm
from ecbm.errors import InputError
from ecbm.keep.compare import compare_versions
from ecbm.keep.objects import ObjectStore
from ecbm.keep.transaction import MovedOnError
from ecbm.keep.workspace import Workspace
from kit import pictures, same_bytes, tabular


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return trained_workspace(tmp_path_factory.mktemp("trained") / "w").folder


@pytest.fixture
def workspace(trained, tmp_path):
    return Workspace(copy(trained, tmp_path / "w"))


def test_data_comes_back_to_the_bit(tmp_path):
    data = small_data()
    found = new_workspace(tmp_path / "w").data()
    assert found == data
    assert found.ids == data.ids
    assert found.splits == data.splits
    assert found.concepts.numpy().tobytes() == data.concepts.numpy().tobytes()
    assert torch.equal(found.x, data.x)


@pytest.mark.parametrize("name", EDITS)
def test_every_level_of_edit_is_kept_as_the_library_makes_it(workspace, name):
    edit = EDITS[name]()
    wanted = ecbm.Editor(workspace.model(), workspace.data()).apply(edit, "exact")
    version, report = workspace.edit(edit, "exact")
    assert version == 2
    assert report["method"] == "exact"
    assert same_bytes(workspace.model(), wanted.model)
    assert workspace.data() == wanted.data
    assert workspace.check()["ok"]


@pytest.mark.parametrize("name", EDITS)
def test_undo_and_redo_are_exact_to_the_bit(workspace, name):
    before_model, before_data = workspace.model(), workspace.data()
    workspace.edit(EDITS[name](), "exact")
    after_model, after_data = workspace.model(), workspace.data()
    assert workspace.undo() == 1
    assert same_bytes(workspace.model(), before_model)
    assert workspace.data() == before_data
    assert workspace.redo() == 2
    assert same_bytes(workspace.model(), after_model)
    assert workspace.data() == after_data


def test_many_edits_in_a_row_read_back_as_they_were(workspace):
    """More edits than deltas are kept unmerged; samples come, go, and come back under their old id."""
    data = workspace.data()
    for number in range(40):
        if number % 10 == 3:
            edit = ecbm.Edit(remove_samples=[f"s{20 + number // 10}"])
        elif number % 10 == 7:
            extra = tabular(40, 4, seed=number)
            edit = ecbm.Edit(add_samples=extra.select([20 + number // 10]))
        elif number % 10 == 8:
            edit = ecbm.Edit(add_concepts={f"new{number}": {f"s{i}": (i + number) % 2 for i in range(19)}})
        else:
            edit = ecbm.Edit(correct_concepts=[(f"s{number % 17}", "round", (number + 1) / 64)])
        data = edit.apply_to(data)
        workspace.edit(edit, "exact")
        assert workspace.data() == data
    assert workspace.check()["ok"]
    for version in range(41, 2, -1):
        assert workspace.undo() == version - 1
    assert workspace.data(2).fingerprint == workspace.data().fingerprint


def test_pictures_keep_their_bytes_but_not_their_names(tmp_path):
    data = pictures(80)
    ecbm.write_dataset(data, tmp_path / "data")
    read = ecbm.read_dataset(tmp_path / "data")
    made = Workspace.create(tmp_path / "w", read)
    assert made.data() == data
    extra = ecbm.read_dataset(tmp_path / "data").select([0, 1])
    renamed = ecbm.Dataset(
        ["new1", "new2"], extra.inputs, extra.concepts, extra.labels, extra.concept_names, extra.class_names
    )
    made.train(ecbm.Recipe(backbone="convnet", epochs=1))
    made.edit(ecbm.Edit(add_samples=renamed, remove_samples=[data.split("train").ids[5]]), "exact")
    assert torch.equal(made.data().inputs.raw([len(made.data()) - 1])[0], data.inputs.raw([1])[0])
    assert made.check()["ok"]


def test_an_edit_writes_only_what_changed(tmp_path):
    data = tabular(3000, 50)
    made = Workspace.create(tmp_path / "w", data, RECIPE)
    made.train(RECIPE)
    before = made.counts()
    made.edit(ecbm.Edit(correct_concepts=[("s1", "round", 1)]), "exact")
    after = made.counts()
    assert after["bytes"] - before["bytes"] < 20_000 < before["bytes"] / 20
    assert made.version(2).data["chunks"] == made.version(1).data["chunks"]
    assert made.version(2).model["parts"]["backbone"] == made.version(1).model["parts"]["backbone"]


def test_a_new_edit_after_undo_goes_its_own_way(workspace):
    workspace.edit(EDITS["class labels"]())
    workspace.undo()
    version, _ = workspace.edit(EDITS["concept labels"]())
    assert (version, workspace.version().parent) == (3, 1)
    with pytest.raises(ecbm.InputError, match="nothing to redo"):
        workspace.redo()
    assert workspace.model(2).fingerprint != workspace.model(3).fingerprint


def test_who_when_why_and_what_are_in_the_log(workspace):
    workspace.edit(EDITS["mixed"](), author="anna", reason="second reading")
    item = workspace.described(workspace.versions())[0]
    assert (item["author"], item["reason"], item["parent"]) == ("anna", "second reading", 1)
    assert item["edit"]["remove_samples"] == ["s12"]
    assert item["edit"]["add_samples"] == ["s40", "s41"]
    assert item["edit"]["correct_concepts"] == [{"id": "s1", "concept": "round", "value": 0.5}]
    assert item["report"]["certificate"]["class_predictions_that_could_differ"] == 0
    assert "corrected 1 concept label of 1 sample" in item["summary"]["words"]


def test_the_second_of_two_editors_is_told_what_changed(workspace):
    workspace.edit(EDITS["class labels"](), author="anna")
    before = bytes_of(workspace.folder)
    with pytest.raises(MovedOnError, match=r"moved on since you looked.*version 1.*version 2"):
        workspace.edit(EDITS["concept labels"](), expect=1)
    assert bytes_of(workspace.folder) == before


def test_an_edit_that_lost_the_race_is_refused_at_the_last_moment(workspace, monkeypatch):
    original = ecbm.Editor.apply

    def slow(self, *arguments, **options):
        monkeypatch.setattr(ecbm.Editor, "apply", original)
        Workspace(workspace.folder).edit(EDITS["class labels"](), author="anna")
        return original(self, *arguments, **options)

    monkeypatch.setattr(ecbm.Editor, "apply", slow)
    with pytest.raises(MovedOnError, match=r"now it is version 2 \(by anna: corrected 2 class labels"):
        workspace.edit(EDITS["concept labels"]())
    assert workspace.head == 2
    assert workspace.check()["ok"]


def test_what_makes_no_sense_is_refused_and_changes_nothing(workspace, tmp_path):
    before = bytes_of(workspace.folder)
    for call, words in (
        (lambda: workspace.edit(ecbm.Edit()), "empty"),
        (lambda: workspace.edit(ecbm.Edit(remove_samples=["nobody"])), "unknown sample id"),
        (lambda: workspace.edit(EDITS["mixed"](), "magic"), "unknown method"),
        (lambda: workspace.edit(EDITS["mixed"](), author="a", reason="\ud800"), "not valid text"),
        (workspace.undo, "nothing to undo"),
        (workspace.redo, "nothing to redo"),
        (lambda: workspace.version(9), "unknown version"),
        (lambda: workspace.version("latest"), "not a version"),
        (lambda: workspace.export(workspace.folder / "objects"), "exports go to"),
        (lambda: Workspace.create(workspace.folder, small_data()), "not empty"),
        (lambda: Workspace(tmp_path), "not a workspace"),
        (lambda: Workspace(tmp_path / "none"), "no such folder"),
    ):
        with pytest.raises(ecbm.InputError, match=words):
            call()
    assert bytes_of(workspace.folder) == before


def test_a_workspace_without_a_model_says_so(tmp_path):
    made = new_workspace(tmp_path / "w")
    with pytest.raises(ecbm.InputError, match="ecbm train"):
        made.model()
    with pytest.raises(ecbm.InputError, match="ecbm train"):
        made.edit(EDITS["mixed"]())


def test_an_edit_may_be_given_as_a_file(workspace, tmp_path):
    path = tmp_path / "edit.json"
    path.write_text('{"correct_labels": [{"id": "s4", "label": "crow"}, {"id": "s5", "label": "wren"}]}')
    preview = workspace.preview(str(path), "exact")
    version, report = workspace.edit(path, "exact")
    assert report["edit"] == preview["edit"] == str(EDITS["class labels"]())
    workspace.undo()
    again, _ = workspace.edit(EDITS["class labels"](), "exact")
    assert same_bytes(workspace.model(version), workspace.model(again))
    with pytest.raises(InputError, match="an Edit or the path of an edit file, got list"):
        workspace.edit([EDITS["class labels"]()])


def test_a_workspace_remembers_its_recipe_and_a_training_may_have_another(tmp_path):
    made = Workspace.create(tmp_path / "w", small_data(), RECIPE.replace(concept_l2=0.5))
    assert made.recipe == RECIPE.replace(concept_l2=0.5)
    assert made.train() == 1
    assert made.model().recipe == made.recipe
    assert made.train(RECIPE, expect=1) == 2
    assert made.model().recipe == RECIPE
    with pytest.raises(MovedOnError):
        made.train(expect=1)


def test_preview_keeps_nothing(workspace):
    before = bytes_of(workspace.folder)
    report = workspace.preview(EDITS["mixed"](), budget=0.1)
    assert report["drift"]["split"] == "val"
    assert bytes_of(workspace.folder) == before


def test_versions_are_compared(workspace):
    workspace.edit(EDITS["mixed"](), "exact")
    found = compare_versions(workspace, "1", "head")
    assert found["versions"] == [1, 2]
    assert found["data"]["samples_added"] == 2
    assert found["predictions"]["samples"] == len(workspace.data().split("test"))
    assert set(found["concepts"]) == set(workspace.model().concept_names)


def test_versions_are_judged_by_the_same_samples_and_labels(workspace):
    test = workspace.data().split("test")
    other = next(name for name in test.class_names if name != test.label_of(0))
    edit = ecbm.Edit(
        correct_concepts=[(test.ids[1], name, 1 - float(test.concepts[1, 0])) for name in test.concept_names[:1]],
        correct_labels=[(test.ids[0], other)],
        remove_samples=[test.ids[2]],
    )
    workspace.edit(edit, "exact")
    found = compare_versions(workspace, "1", "2")
    assert found["predictions"]["changed"] == 0
    for name, (before, after) in found["metrics"].items():
        assert before == pytest.approx(after, abs=1e-9), name


def test_an_export_stands_on_its_own_and_can_start_another_workspace(workspace, tmp_path):
    from safetensors.torch import load_file

    workspace.edit(EDITS["mixed"](), "exact")
    result = workspace.export(tmp_path / "model")
    model = ecbm.load(tmp_path / "model")
    assert same_bytes(model, workspace.model())
    assert torch.equal(
        load_file(tmp_path / "model" / "model.safetensors")["label_head.bias"], model.label_head.bias
    )
    card = (tmp_path / "model" / "README.md").read_text()
    for words in ("## Data", "## Metrics on test", "## Edit history", "removed 1 sample", "## Limits"):
        assert words in card
    assert "s12" not in card
    assert set(result["files"]) == {"README.md", "config.json", "history.json", "model.safetensors"}
    other = Workspace.create(tmp_path / "other", workspace.data(), RECIPE)
    assert other.adopt(model) == 1
    assert same_bytes(other.model(), model)
    with pytest.raises(ecbm.InputError, match="other data"):
        Workspace.create(tmp_path / "third", small_data(), RECIPE, model=model)
    assert not (tmp_path / "third").exists()


def test_onnx_without_its_package_is_a_clear_refusal(workspace, tmp_path, monkeypatch):
    import importlib.util

    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "onnx" else real(name, *rest)
    )
    with pytest.raises(ecbm.InputError, match=r"ecbm\[onnx\]"):
        workspace.export(tmp_path / "model", onnx=True)
    assert not (tmp_path / "model").exists()


def test_a_lock_left_by_a_dead_process_does_not_block(workspace):
    child = os.fork()
    if child == 0:
        import fcntl

        descriptor = os.open(workspace.folder / "lock", os.O_RDWR)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        os._exit(0)
    os.waitpid(child, 0)
    assert workspace.edit(EDITS["class labels"]())[0] == 2


def test_history_is_one_chain_of_entries(tmp_path):
    made = edited_workspace(tmp_path / "w")
    kinds = [entry["kind"] for entry in made.entries()]
    assert kinds == ["export", "undo", "edit", "edit", "train", "init"]
    assert rows(made.folder, "SELECT count(*) FROM ledger") == [(6,)]
    assert state_of(made.folder)[1] == 2


def test_curvature_is_kept_for_the_same_version_and_damage_to_it_is_harmless(tmp_path):
    made = Workspace.create(tmp_path / "w", tabular(60, 4))
    made.train(ecbm.Recipe(backbone="mlp", hidden=(6,), epochs=2))
    edit = ecbm.Edit(correct_concepts=[(made.data().split("train").ids[0], "round", 1)])
    first = made.edit(edit, "ekfac")[1]
    assert any("concept curvature" in name for name in first["seconds"])
    reached = made.model()
    made.undo()
    second = made.edit(edit, "ekfac")[1]
    assert not any("concept curvature" in name for name in second["seconds"])
    assert same_bytes(made.model(), reached)
    made.undo()
    for path in (made.folder / "cache").rglob("*.safetensors"):
        path.write_bytes(path.read_bytes()[:-9])
    made.edit(edit, "ekfac")
    assert same_bytes(made.model(), reached)
    assert made.check()["ok"]


def test_a_reader_whom_an_erasure_overtakes_gets_the_version_it_made(tmp_path, monkeypatch):
    workspace = trained_workspace(tmp_path / "w")
    get, overtaken = ObjectStore.get, []

    def late(store, digest):
        if not overtaken:
            overtaken.append(True)
            workspace.erase([PATIENT], method="exact")
        return get(store, digest)

    monkeypatch.setattr(ObjectStore, "get", late)
    data = Workspace(workspace.folder).data()
    assert overtaken
    assert PATIENT not in data.ids
    with pytest.raises(InputError, match="destroyed by an erasure"):
        workspace.data(0)


def test_history_is_shown_without_loading_torch(tmp_path):
    folder = trained_workspace(tmp_path / "w").folder
    for command in ("log", "show", "status"):
        script = "import sys; from ecbm.show.cli import main; sys.argv[0] = 'ecbm'\ntry: main()\n"
        script += "except SystemExit as end: assert not end.code, end.code\nassert 'torch' not in sys.modules"
        subprocess.run([sys.executable, "-c", script, command, folder], check=True, capture_output=True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("t.csv",), "Workspace.create: expected a Dataset"),
        ((small_data(), {"backbone": "linear"}), r"expected a Recipe, got a mapping; write Recipe\("),
    ],
)
def test_wrong_kinds_make_no_workspace(tmp_path, arguments, words):
    with pytest.raises(ecbm.InputError, match=words):
        Workspace.create(tmp_path / "w", *arguments)
    assert not (tmp_path / "w").exists()


def test_a_text_is_not_taken_for_the_ids_of_its_letters(workspace):
    with pytest.raises(ecbm.InputError, match=r"expected a list of ids, got the text 's1'; write \['s1'\]"):
        workspace.erase("s1")
    assert workspace.head == 1
