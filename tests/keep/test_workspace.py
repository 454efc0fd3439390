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
from ecbm.keep.actions import adopt_model, create_workspace, edit_model, preview_edit, train_model
from ecbm.keep.checking import check_workspace
from ecbm.keep.compare import compare_versions
from ecbm.keep.erasure import erase_samples
from ecbm.keep.exporting import export_version
from ecbm.keep.objects import ObjectStore
from ecbm.keep.signature import Signature
from ecbm.keep.transaction import MovedOnError
from ecbm.keep.undo import redo, undo
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
    version, report = edit_model(workspace, edit, "exact")
    assert version == 2
    assert report["method"] == "exact"
    assert same_bytes(workspace.model(), wanted.model)
    assert workspace.data() == wanted.data
    assert check_workspace(workspace.folder)["ok"]


@pytest.mark.parametrize("name", EDITS)
def test_undo_and_redo_are_exact_to_the_bit(workspace, name):
    before_model, before_data = workspace.model(), workspace.data()
    edit_model(workspace, EDITS[name](), "exact")
    after_model, after_data = workspace.model(), workspace.data()
    assert undo(workspace) == 1
    assert same_bytes(workspace.model(), before_model)
    assert workspace.data() == before_data
    assert redo(workspace) == 2
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
            edit = ecbm.Edit(correct_concepts=[(f"s{number % 17}", "round", (number % 3) / 2)])
        data = edit.apply_to(data)
        edit_model(workspace, edit, "exact")
        assert workspace.data() == data
    assert check_workspace(workspace.folder)["ok"]
    for version in range(41, 2, -1):
        assert undo(workspace) == version - 1
    assert workspace.data(2).fingerprint == workspace.data().fingerprint


def test_pictures_keep_their_bytes_but_not_their_names(tmp_path):
    data = pictures(80)
    ecbm.write_dataset(data, tmp_path / "data")
    read = ecbm.read_dataset(tmp_path / "data")
    made = create_workspace(tmp_path / "w", read)
    assert made.data() == data
    extra = ecbm.read_dataset(tmp_path / "data").select([0, 1])
    renamed = ecbm.Dataset(
        ["new1", "new2"], extra.inputs, extra.concepts, extra.labels, extra.concept_names, extra.class_names
    )
    train_model(made, ecbm.Recipe(backbone="convnet", epochs=1))
    edit_model(made, ecbm.Edit(add_samples=renamed, remove_samples=[data.split("train").ids[5]]), "exact")
    assert torch.equal(made.data().inputs.raw([len(made.data()) - 1])[0], data.inputs.raw([1])[0])
    assert check_workspace(made.folder)["ok"]


def test_an_edit_writes_only_what_changed(tmp_path):
    data = tabular(3000, 50)
    made = create_workspace(tmp_path / "w", data, RECIPE)
    train_model(made, RECIPE)
    before = made.counts()
    edit_model(made, ecbm.Edit(correct_concepts=[("s1", "round", 1)]), "exact")
    after = made.counts()
    assert after["bytes"] - before["bytes"] < 20_000 < before["bytes"] / 20
    assert made.version(2).data["chunks"] == made.version(1).data["chunks"]
    assert made.version(2).model["parts"]["backbone"] == made.version(1).model["parts"]["backbone"]


def test_a_new_edit_after_undo_goes_its_own_way(workspace):
    edit_model(workspace, EDITS["class labels"]())
    undo(workspace)
    version, _ = edit_model(workspace, EDITS["concept labels"]())
    assert (version, workspace.version().parent) == (3, 1)
    with pytest.raises(ecbm.InputError, match="nothing to redo"):
        redo(workspace)
    assert workspace.model(2).fingerprint != workspace.model(3).fingerprint


def test_who_when_why_and_what_are_in_the_log(workspace):
    edit_model(workspace, EDITS["mixed"](), signature=Signature("anna", "second reading"))
    item = workspace.described(workspace.versions())[0]
    assert (item["author"], item["reason"], item["parent"]) == ("anna", "second reading", 1)
    assert item["edit"]["remove_samples"] == ["s12"]
    assert item["edit"]["add_samples"] == ["s40", "s41"]
    assert item["edit"]["correct_concepts"] == [{"id": "s1", "concept": "round", "value": 0.5}]
    assert item["report"]["certificate"]["class_predictions_that_could_differ"] == 0
    assert "corrected 1 concept label of 1 sample" in item["summary"]["words"]


def test_the_second_of_two_editors_is_told_what_changed(workspace):
    edit_model(workspace, EDITS["class labels"](), signature=Signature("anna"))
    before = bytes_of(workspace.folder)
    with pytest.raises(MovedOnError, match=r"moved on since you looked.*version 1.*version 2"):
        edit_model(workspace, EDITS["concept labels"](), expected=1)
    assert bytes_of(workspace.folder) == before


def test_an_edit_that_lost_the_race_is_refused_at_the_last_moment(workspace, monkeypatch):
    original = ecbm.Editor.apply

    def slow(self, *arguments, **options):
        monkeypatch.setattr(ecbm.Editor, "apply", original)
        edit_model(Workspace(workspace.folder), EDITS["class labels"](), signature=Signature("anna"))
        return original(self, *arguments, **options)

    monkeypatch.setattr(ecbm.Editor, "apply", slow)
    with pytest.raises(MovedOnError, match=r"corrected 2 class labels.*by anna"):
        edit_model(workspace, EDITS["concept labels"]())
    assert workspace.head == 2
    assert check_workspace(workspace.folder)["ok"]


def test_what_makes_no_sense_is_refused_and_changes_nothing(workspace, tmp_path):
    before = bytes_of(workspace.folder)
    for call, words in (
        (lambda: edit_model(workspace, ecbm.Edit()), "empty"),
        (lambda: edit_model(workspace, ecbm.Edit(remove_samples=["nobody"])), "unknown sample id"),
        (lambda: edit_model(workspace, EDITS["mixed"](), "magic"), "unknown method"),
        (lambda: edit_model(workspace, EDITS["mixed"](), signature=Signature("a", "\ud800")), "not valid text"),
        (lambda: undo(workspace), "nothing to undo"),
        (lambda: redo(workspace), "nothing to redo"),
        (lambda: workspace.version(9), "unknown version"),
        (lambda: workspace.version("latest"), "not a version"),
        (lambda: export_version(workspace, workspace.folder / "objects"), "exports go to"),
        (lambda: create_workspace(workspace.folder, small_data()), "not empty"),
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
        edit_model(made, EDITS["mixed"]())


def test_preview_keeps_nothing(workspace):
    before = bytes_of(workspace.folder)
    report = preview_edit(workspace, EDITS["mixed"](), budget=0.1)
    assert report["drift"]["split"] == "val"
    assert bytes_of(workspace.folder) == before


def test_versions_are_compared(workspace):
    edit_model(workspace, EDITS["mixed"](), "exact")
    found = compare_versions(workspace, "1", "head")
    assert found["versions"] == [1, 2]
    assert found["data"]["samples_added"] == 2
    assert found["predictions"]["samples"] == len(workspace.data().split("test"))
    assert set(found["concepts"]) == set(workspace.model().concept_names)


def test_an_export_stands_on_its_own_and_can_start_another_workspace(workspace, tmp_path):
    from safetensors.torch import load_file

    edit_model(workspace, EDITS["mixed"](), "exact")
    result = export_version(workspace, tmp_path / "model")
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
    other = create_workspace(tmp_path / "other", workspace.data(), RECIPE)
    assert adopt_model(other, model) == 1
    assert same_bytes(other.model(), model)
    with pytest.raises(ecbm.InputError, match="other data"):
        adopt_model(create_workspace(tmp_path / "third", small_data(), RECIPE), model)


def test_onnx_without_its_package_is_a_clear_refusal(workspace, tmp_path, monkeypatch):
    import importlib.util

    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "onnx" else real(name, *rest)
    )
    with pytest.raises(ecbm.InputError, match=r"ecbm\[onnx\]"):
        export_version(workspace, tmp_path / "model", onnx=True)
    assert not (tmp_path / "model").exists()


def test_a_lock_left_by_a_dead_process_does_not_block(workspace):
    child = os.fork()
    if child == 0:
        import fcntl

        descriptor = os.open(workspace.folder / "lock", os.O_RDWR)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        os._exit(0)
    os.waitpid(child, 0)
    assert edit_model(workspace, EDITS["class labels"]())[0] == 2


def test_history_is_one_chain_of_entries(tmp_path):
    made = edited_workspace(tmp_path / "w")
    kinds = [entry["kind"] for entry in made.entries()]
    assert kinds == ["export", "undo", "edit", "edit", "train", "init"]
    assert rows(made.folder, "SELECT count(*) FROM ledger") == [(6,)]
    assert state_of(made.folder)[1] == 2


def test_curvature_is_kept_for_the_same_version_and_damage_to_it_is_harmless(tmp_path):
    made = create_workspace(tmp_path / "w", tabular(60, 4))
    train_model(made, ecbm.Recipe(backbone="mlp", hidden=(6,), epochs=2))
    edit = ecbm.Edit(correct_concepts=[(made.data().split("train").ids[0], "round", 1)])
    first = edit_model(made, edit, "ekfac")[1]
    assert any("concept curvature" in name for name in first["seconds"])
    reached = made.model()
    undo(made)
    second = edit_model(made, edit, "ekfac")[1]
    assert not any("concept curvature" in name for name in second["seconds"])
    assert same_bytes(made.model(), reached)
    undo(made)
    for path in (made.folder / "cache").rglob("*.safetensors"):
        path.write_bytes(path.read_bytes()[:-9])
    edit_model(made, edit, "ekfac")
    assert same_bytes(made.model(), reached)
    assert check_workspace(made.folder)["ok"]


def test_a_reader_whom_an_erasure_overtakes_gets_the_version_it_made(tmp_path, monkeypatch):
    workspace = trained_workspace(tmp_path / "w")
    get, overtaken = ObjectStore.get, []

    def late(store, digest):
        if not overtaken:
            overtaken.append(True)
            erase_samples(workspace, [PATIENT], method="exact")
        return get(store, digest)

    monkeypatch.setattr(ObjectStore, "get", late)
    data = workspace.data()
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
