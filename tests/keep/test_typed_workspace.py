"""Workspaces, saved models and exports with concepts of every type."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from workspace_kit import SIGNATURE, run

import ecbm
from ecbm.keep.compare import compare_versions
from ecbm.keep.workspace import Workspace
from kit import same_bytes
from types_kit import edits, mixed

DATA = mixed(60)
RECIPE = ecbm.Recipe(backbone="linear", bottleneck="probabilities")
A, B = DATA.split("train").ids[:2]


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    made = Workspace.create(tmp_path / "ward", DATA, RECIPE, **SIGNATURE)
    made.train(**SIGNATURE)
    return made


def test_a_saved_model_comes_back_bit_for_bit(tmp_path: Path) -> None:
    model = ecbm.train(DATA, RECIPE)
    again = ecbm.load(ecbm.save(model, tmp_path / "model"))
    assert same_bytes(model, again)
    assert again.fingerprint == model.fingerprint
    assert again.concept_types == DATA.concept_types
    assert again.layout.units == {"size": "mm"}
    torch.testing.assert_close(again.intervene(DATA, {"size": "p90"}), model.intervene(DATA, {"size": "p90"}))


def test_types_that_do_not_fit_a_saved_model_are_refused(tmp_path: Path) -> None:
    folder = ecbm.save(ecbm.train(DATA, RECIPE), tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    for wrong in ({"colour": "ordinal"}, {"colour": 3}, ["colour"]):
        (folder / "config.json").write_text(json.dumps(config | {"concept_types": wrong}))
        with pytest.raises(ecbm.InputError, match="types of concepts cannot be read"):
            ecbm.load(folder)
    del config["concept_types"], config["units"]
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ecbm.InputError):
        ecbm.load(folder)


def test_every_edit_is_kept_undone_and_replayed(workspace: Workspace) -> None:
    made = 1
    for name, edit in edits(DATA).items():
        version, report = workspace.edit(edit, **SIGNATURE)
        assert report["certificate"]["class_predictions_that_could_differ"] == 0, name
        data = Workspace(workspace.folder).data(version)
        assert ecbm.Edit.between(edit.apply_to(DATA), data) == ecbm.Edit(), name
        assert data.concept_types == edit.apply_to(DATA).concept_types
        assert workspace.model(version).layout == data.layout
        workspace.undo(**SIGNATURE)
        made += 2
        assert workspace.data().fingerprint == DATA.fingerprint
    checked = workspace.check(replay=True)
    assert checked["ok"], checked["problems"]
    assert {one["same"] for one in checked["replayed"]} <= {True, None}
    assert sum(one["same"] is True for one in checked["replayed"]) >= len(edits(DATA))


def test_a_chain_of_typed_edits_reads_back(workspace: Workspace) -> None:
    chain = edits(DATA)
    for name in ("correct all types", "add continuous", "add categorical", "remove ordinal"):
        workspace.edit(chain[name], **SIGNATURE)
    again = Workspace(workspace.folder)
    expected = DATA
    for name in ("correct all types", "add continuous", "add categorical", "remove ordinal"):
        expected = chain[name].apply_to(expected)
    assert again.data().fingerprint == expected.fingerprint
    assert again.data().units == {"size": "mm", "length": "cm"}
    assert again.check()["ok"]


def test_an_erasure_forgets_a_sample_and_its_share_of_every_statistic(workspace: Workspace) -> None:
    workspace.edit(ecbm.Edit([(A, "size", 900.0), (B, "colour", "blue")]), **SIGNATURE)
    with_giant = float(workspace.model().percentiles[0, -1])
    workspace.erase([A], reason="asked for", author="tester")
    model, data = workspace.model(), workspace.data()
    assert A not in data
    retrained = ecbm.train(data, model.recipe)
    torch.testing.assert_close(model.concept_head.weight, retrained.concept_head.weight, rtol=0, atol=1e-9)
    torch.testing.assert_close(model.low, retrained.low, rtol=0, atol=1e-8)
    assert torch.equal(model.percentiles, retrained.percentiles)
    assert float(model.percentiles[0, -1]) < with_giant / 2
    assert workspace.check()["ok"]


def test_removed_concepts_are_named_as_concepts_not_as_columns(workspace: Workspace) -> None:
    version, _ = workspace.edit(ecbm.Edit(remove_concepts=["colour", "severity"]), **SIGNATURE)
    assert workspace.version(version).summary["words"].startswith("removed 2 concepts")
    shown = run("show", str(workspace.folder))
    assert "  concept colour: removed\n  concept severity: removed\n" in shown
    assert "::" not in shown
    assert compare_versions(workspace, "1", "2")["data"]["concepts_removed"] == ["colour", "severity"]


def test_an_onnx_export_says_the_same(workspace: Workspace, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    workspace.export(tmp_path / "out", onnx=True)
    session = runtime.InferenceSession(str(next((tmp_path / "out").rglob("model.onnx"))))
    concepts, classes = session.run(None, {"x": DATA.x.numpy()})
    model = workspace.model()
    np.testing.assert_allclose(concepts, model.concept_probabilities(DATA).numpy(), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(classes, model.class_probabilities(DATA).numpy(), atol=1e-5)


def test_the_command_line_speaks_of_values_grades_and_units(workspace: Workspace, tmp_path: Path) -> None:
    folder = str(workspace.folder)
    (tmp_path / "edit.json").write_text(
        json.dumps(
            {
                "correct_concepts": [
                    {"id": A, "concept": "colour", "value": "blue"},
                    {"id": A, "concept": "severity", "value": 3},
                    {"id": B, "concept": "size", "value": 12.5},
                ]
            }
        )
    )
    run("edit", folder, str(tmp_path / "edit.json"), "--reason", "seen again")
    shown = run("show", folder)
    assert "colour" in shown
    assert "→ blue" in shown
    assert "→ grade 3" in shown
    assert "→ 12.5" in shown
    report = json.loads(run("evaluate", folder, "--json"))
    assert report["per_concept"]["size"]["unit"] == "mm"
    assert "concept_grade_error" in report
    people = run("evaluate", folder)
    assert "measured concept" in people
    assert "mean error in grades" in people
    predicted = run("predict", folder, A, "--set", "severity=>=2", "--set", "colour=red", "--set", "size=p10")
    assert "severity=2" in predicted
    assert "colour=red" in predicted
    diff = json.loads(run("diff", folder, "1", "2", "--json"))
    assert diff["data"]["concept_labels_corrected"] == 3
    assert set(diff["concepts"]) == {"striped", "colour", "severity", "size", "crest"}


def test_a_concept_that_repeats_the_class_is_said_on_the_command_line(tmp_path: Path) -> None:
    told = DATA.replace(
        concepts=torch.nn.functional.one_hot(DATA.labels, 3).float(),
        concept_names=["kind::a", "kind::b", "kind::c"],
        concept_types={"kind": "categorical"},
    )
    folder = str(Workspace.create(tmp_path / "ward", told, RECIPE, **SIGNATURE).folder)
    said = run("train", folder)
    assert "warning: concept 'kind' repeats the class one to one" in " ".join(said.split())


def test_the_card_says_what_each_concept_is(workspace: Workspace, tmp_path: Path) -> None:
    workspace.export(tmp_path / "out")
    card = next((tmp_path / "out").rglob("README.md")).read_text()
    assert "**colour**: one of red, blue, green" in card
    assert "**severity**: graded 0, 1, 2, 3" in card
    assert "**size**: measured in mm" in card
