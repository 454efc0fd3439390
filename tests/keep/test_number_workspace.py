"""Workspaces, saved models and exports where the label is a number."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner
from workspace_kit import SIGNATURE, run

import ecbm
from ecbm.keep.workspace import Workspace
from ecbm.options import named_as_flags
from ecbm.show.cli import app
from kit import same_bytes
from number_kit import edits, numbered

DATA = numbered(90)
RECIPE = ecbm.Recipe(backbone="linear")
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
    assert again.target_unit == "EUR"
    assert again.predict(DATA) == model.predict(DATA)
    assert "The number **price** in EUR" in (tmp_path / "model" / "README.md").read_text()


def test_a_damaged_target_of_a_saved_model_is_refused(tmp_path: Path) -> None:
    folder = ecbm.save(ecbm.train(DATA, RECIPE), tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    for wrong in ("number", {"kind": "class", "unit": ""}, {"kind": "number"}, None):
        (folder / "config.json").write_text(json.dumps(config | {"target": wrong}))
        with pytest.raises(ecbm.InputError):
            ecbm.load(folder)


def test_every_edit_is_kept_undone_and_replayed(workspace: Workspace) -> None:
    for name, edit in edits(DATA).items():
        version, report = workspace.edit(edit, **SIGNATURE)
        assert report["certificate"]["largest_prediction_change"] < 1e-3, name
        opened = Workspace(workspace.folder)
        assert opened.data(version).fingerprint == edit.apply_to(DATA).fingerprint, name
        assert opened.model(version).predicts_number
        workspace.undo(**SIGNATURE)
        assert workspace.data() == DATA
    checked = Workspace(workspace.folder).check(replay=True)
    assert checked["ok"], checked["problems"]
    assert [one["version"] for one in checked["replayed"] if one["same"] is not True] == [0]


def test_an_erasure_refits_mean_and_scale_and_leaves_no_figure_of_the_old_model(workspace: Workspace) -> None:
    workspace.edit(ecbm.Edit(correct_labels=[(A, 5000.5)]), **SIGNATURE)
    workspace.erase([A], reason="withdrawn", author="tester")
    data, model = workspace.data(), workspace.model()
    again = ecbm.train(data, RECIPE)
    assert A not in data
    assert torch.equal(model.target_scaling, again.target_scaling)
    np.testing.assert_allclose(model.predict(DATA), again.predict(DATA), rtol=1e-8)
    assert "prediction_largest_change" not in workspace.version().summary
    assert workspace.check()["ok"]


def test_the_last_labels_of_a_concept_are_erased_with_it(tmp_path: Path) -> None:
    only = DATA.concepts.clone()
    only[:, 0] = torch.nan
    only[DATA.row(A), 0] = 1.0
    made = Workspace.create(tmp_path / "ward", DATA.replace(concepts=only), RECIPE, **SIGNATURE)
    made.train(**SIGNATURE)
    made.erase([A], reason="withdrawn", author="tester")
    assert "striped" not in made.model().concept_names
    assert made.data().labels.tolist() == DATA[[i for i in DATA.ids if i != A]].labels.tolist()


def test_a_table_goes_through_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    frame = DATA.to_frame().rename(columns={"label": "price"})
    names = ["striped", "size", "crest"]
    frame[["id", "split", "price", *names]].to_csv("homes.csv", index=False)
    np.save("x.npy", DATA.x.numpy())
    source = ["--data", "homes.csv", "--features", "x.npy", "--label-column", "price"]
    with named_as_flags():
        asked = CliRunner().invoke(app, ["init", "ward", *source])
    assert isinstance(asked.exception, ecbm.InputError)
    assert "--type price=continuous" in str(asked.exception)
    assert not Path("ward").exists()
    said = ["--type", "price=continuous:EUR"]
    described = json.loads(run("describe", "homes.csv", *source[2:], *said, "--json"))
    assert described["target"]["unit"] == "EUR"
    assert "price" in run("describe", "homes.csv", *source[2:], *said)
    run("init", "ward", *source, *said, "--author", "tester", "--reason", "start")
    assert "R²" in run("train", "ward", "--backbone", "linear", "--author", "tester", "--reason", "first")
    assert {"rmse", "mae", "r2"} <= set(json.loads(run("evaluate", "ward", "--json")))
    assert "rmse" in run("evaluate", "ward")
    Path("edit.json").write_text(
        json.dumps({"correct_labels": [{"id": A, "label": 2345.5}], "remove_samples": [B]})
    )
    report = json.loads(
        run("edit", "ward", "edit.json", "--author", "tester", "--reason", "a typing error", "--json")
    )
    assert report["certificate"]["largest_prediction_change"] < 1e-3
    shown = run("show", "ward")
    assert f"{A}: price {float(DATA.labels[DATA.row(A)])} → 2345.5" in shown
    assert "from the exact solution" in shown
    predicted = json.loads(run("predict", "ward", A, "--set", "striped=1", "--json"))["predictions"][0]
    assert predicted["number"] != predicted["before"]["number"]
    assert predicted["unit"] == "EUR"
    assert "EUR" in run("predict", "ward", A)
    assert "EUR" in run("predict", "ward", A, "--set", "striped=1")
    assert "price" in run("predict", "ward", "--split", "test")
    run("predict", "ward", "--split", "test", "--out", "out.csv")
    assert Path("out.csv").read_text().startswith("id,number,concept:")
    assert "differ, by at most" in run("diff", "ward", "1", "2")
    assert "price" in run("status", "ward")
    run("undo", "ward", "--author", "tester", "--reason", "no")
    run("erase", "ward", "--ids", B, "--yes", "--author", "tester", "--reason", "withdrawn")
    assert json.loads(run("check", "ward", "--replay", "--json"))["ok"]
    run("export", "ward", "copy", "--author", "tester", "--reason", "out")
    assert "error (root mean square)" in Path("copy/README.md").read_text()
    assert ecbm.load("copy").predict(DATA) == Workspace("ward").model().predict(DATA)


def test_new_samples_of_a_table_have_numbers(workspace: Workspace, tmp_path: Path) -> None:
    ids = [f"new{row}" for row in range(12)]
    for name in ("label", "price"):
        rows = "".join(f"{i},{10 * row}.25,1\n" for row, i in enumerate(ids))
        (tmp_path / "more.csv").write_text(f"id,{name},striped\n{rows}")
        np.save(tmp_path / "more.npy", np.zeros((12, 5), np.float32))
        (tmp_path / "edit.json").write_text(json.dumps({"add_samples": "more.csv"}))
        version, _ = workspace.edit(tmp_path / "edit.json", **SIGNATURE)
        assert workspace.data(version)["new3"].label == 30.25
        workspace.undo(**SIGNATURE)


@pytest.mark.skipif(importlib.util.find_spec("onnxruntime") is None, reason="needs onnxruntime")
def test_the_onnx_graph_gives_the_number(workspace: Workspace, tmp_path: Path) -> None:
    import onnxruntime

    workspace.export(tmp_path / "out", onnx=True, **SIGNATURE)
    session = onnxruntime.InferenceSession(str(tmp_path / "out" / "model.onnx"))
    _, numbers = session.run(None, {"x": DATA.x.numpy()})
    np.testing.assert_allclose(numbers[:, 0], workspace.model().predict(DATA), rtol=1e-5)
