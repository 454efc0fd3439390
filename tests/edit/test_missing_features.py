"""Features among the columns of a table: missing ones are replaced by training means, which follow every edit."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

import ecbm
from ecbm.keep.workspace import Workspace


def lab(n: int = 160, seed: int = 0) -> pd.DataFrame:
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(n, 3)) * [1, 10, 0.1] + [0, 50, 3]
    ward = np.array(["north", "south", "west"])[generator.integers(0, 3, n)]
    fever = (x[:, 0] + 0.3 * generator.normal(size=n) > 0).astype(int)
    large = (x[:, 1] + 3 * generator.normal(size=n) > 50).astype(int)
    frame = pd.DataFrame(
        {"id": [f"p{k}" for k in range(n)], "a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "ward": ward}
    )
    for name in ("a", "b", "ward"):
        frame.loc[generator.random(n) < 0.15, name] = None
    return frame.assign(fever=fever, large=large, label=np.where(fever + large > 1, "ill", "well"))


FEATURES = ["a", "b", "c", "ward"]


@pytest.fixture(scope="module")
def data():
    return ecbm.read_dataset(lab(), features=FEATURES)


def test_words_are_one_hot_and_what_is_missing_is_missing(data):
    assert data.inputs.columns.names == ("a", "b", "c", "ward::north", "ward::south", "ward::west")
    x, frame = data.x, lab()
    assert torch.equal(x[:, 0].isnan(), torch.tensor(frame["a"].isna().tolist()))
    known = ~frame["ward"].isna().to_numpy()
    assert x[known, 3:].sum(1).eq(1).all()
    assert x[~known, 3:].isnan().all()


@pytest.mark.parametrize("backbone", ["linear", "mlp"])
def test_a_missing_value_counts_as_the_mean_of_the_training_samples_that_have_it(data, backbone):
    model = ecbm.train(data, backbone=backbone, epochs=2)
    train = data.split("train").x.double()
    rows = data.x.clone()
    for column in range(rows.shape[1]):
        present = train[:, column][~train[:, column].isnan()]
        rows[rows[:, column].isnan(), column] = float(present.mean())
    difference = (model.class_probabilities(data.x) - model.class_probabilities(rows)).abs().max()
    assert float(difference) < 1e-5


@pytest.mark.parametrize("remove", [1, 30])
def test_an_exact_edit_that_removes_samples_equals_retraining(data, remove):
    model = ecbm.train(data)
    gone = data.split("train").ids[:remove]
    result = ecbm.Editor(model, data).apply(ecbm.Edit(remove_samples=gone), "exact")
    again = ecbm.train(result.data)
    assert torch.equal(result.model.backbone.mean, again.backbone.mean)
    assert not torch.equal(result.model.backbone.mean, model.backbone.mean)
    gap = (result.model.class_probabilities(data) - again.class_probabilities(data)).abs().max()
    moved = (model.class_probabilities(data) - again.class_probabilities(data)).abs().max()
    assert float(gap) < 1e-7 < float(moved)
    assert result.report["certificate"]["class_predictions_that_could_differ"] == 0


@pytest.mark.parametrize("remove", [1, 12])
def test_so_it_does_with_concepts_of_every_type(remove):
    frame = lab()
    generator = np.random.default_rng(3)
    known = frame["b"].fillna(50)
    frame["grade"] = np.clip(np.round((known - 35) / 10 + 0.3 * generator.normal(size=len(frame))), 0, 3)
    frame["size"] = (known * 0.3 + generator.normal(size=len(frame))).round(2)
    frame["colour"] = np.where(known > 55, "red", np.where(known > 45, "green", "blue"))
    typed = ecbm.read_dataset(frame, features=FEATURES, types={"grade": "ordinal"})
    assert set(typed.concept_types.values()) == {"binary", "ordinal", "continuous", "categorical"}
    model = ecbm.train(typed)
    edit = ecbm.Edit(remove_samples=typed.split("train").ids[:remove])
    result = ecbm.Editor(model, typed).apply(edit, "exact")
    again = ecbm.train(result.data)
    gap = (result.model.class_probabilities(typed) - again.class_probabilities(typed)).abs().max()
    moved = (model.class_probabilities(typed) - again.class_probabilities(typed)).abs().max()
    assert float(gap) < 1e-6 < float(moved)
    assert result.report["certificate"]["class_predictions_that_could_differ"] == 0


def test_influence_steps_know_that_means_move(data):
    """A step from the kept heads lands nearer to retraining than nothing, also where rows move by their means."""
    model = ecbm.train(data)
    edit = ecbm.Edit(remove_samples=data.split("train").ids[:10])
    editor = ecbm.Editor(model, data)
    result = editor.apply(edit, "ekfac")
    again = ecbm.train(result.data).class_probabilities(data)
    gap = (result.model.class_probabilities(data) - again).abs().mean()
    nothing = (model.class_probabilities(data) - again).abs().mean()
    assert float(gap) < 0.3 * float(nothing)


def test_an_erasure_refits_the_means_and_keeps_the_columns(tmp_path, data):
    made = Workspace.create(tmp_path / "ward", data, ecbm.Recipe())
    made.train()
    gone = data.split("train").ids[:3]
    made.erase(gone, reason="asked")
    opened = Workspace(tmp_path / "ward")
    left, model = opened.data(), opened.model()
    assert left.inputs.columns == data.inputs.columns
    again = ecbm.train(left)
    assert torch.equal(model.backbone.mean, again.backbone.mean)
    assert opened.check()["ok"]


def test_a_dataset_with_columns_is_written_and_read_back(tmp_path, data):
    again = ecbm.read_dataset(ecbm.write_dataset(data, tmp_path / "copy"))
    assert again == data
    assert again.inputs.columns == data.inputs.columns


def test_new_rows_are_read_in_the_same_way(tmp_path, data):
    model = ecbm.train(data)
    frame = lab()[["ward", "c", "b", "a"]]
    assert torch.equal(ecbm.read_inputs(frame, data).tensor.nan_to_num(7), data.x.nan_to_num(7))
    frame.to_csv(tmp_path / "new.csv", index=False, sep=";", decimal=",")
    inputs = ecbm.read_inputs(tmp_path / "new.csv", data)
    assert model.predict(inputs) == model.predict(data)
    with pytest.raises(ecbm.InputError, match=r"row 1, column 'ward': 'east' is no value .* did you mean 'west'"):
        ecbm.read_inputs(frame.assign(ward="east"), data)
    with pytest.raises(ecbm.InputError, match="no column 'b'"):
        ecbm.read_inputs(frame.drop(columns="b"), data)


def test_an_exported_model_reads_new_rows_by_itself(tmp_path, data):
    made = Workspace.create(tmp_path / "ward", data, ecbm.Recipe())
    made.train()
    made.export(tmp_path / "out")
    inputs = ecbm.read_inputs(lab()[["ward", "c", "b", "a"]], tmp_path / "out")
    assert ecbm.load(tmp_path / "out").predict(inputs) == made.model().predict(data)
    (tmp_path / "out" / "features.json").write_text("{}")
    with pytest.raises(ecbm.InputError, match="damaged"):
        ecbm.read_inputs(lab(), tmp_path / "out")


def test_the_onnx_graph_replaces_missing_values_too(tmp_path, data):
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    from ecbm.keep.onnx import onnx_bytes

    model = ecbm.train(data)
    session = runtime.InferenceSession(onnx_bytes(model))
    found = session.run(["classes"], {"x": data.x.numpy()})[0]
    assert np.abs(found - np.asarray(model.class_probabilities(data))).max() < 1e-5


def test_samples_are_added_from_a_table_of_the_same_columns(tmp_path, data):
    more = lab(4, seed=1).assign(id=["n1", "n2", "n3", "n4"])
    more.loc[0, "a"] = None
    more.to_csv(tmp_path / "more.csv", index=False)
    (tmp_path / "edit.json").write_text('{"add_samples": "more.csv"}')
    from ecbm.edit.files import read_edit

    edit = read_edit(tmp_path / "edit.json", data)
    result = ecbm.Editor(ecbm.train(data), data).apply(edit, "exact")
    assert len(result.data) == len(data) + 4
    again = ecbm.train(result.data)
    assert float((result.model.class_probabilities(data) - again.class_probabilities(data)).abs().max()) < 1e-7


def test_what_cannot_be_a_feature_is_refused():
    frame = lab()

    def refused(**options) -> str:
        with pytest.raises(ecbm.InputError) as caught:
            ecbm.read_dataset(frame, **options)
        return str(caught.value)

    assert "unknown column 'd'" in refused(features=["a", "d"])
    assert "named twice" in refused(features=["a", "a"])
    frame["note"] = [f"remark {k}" for k in range(len(frame))]
    assert "column 'note': 160 different texts in 160 rows" in refused(features=["a", "note"])
    frame = lab()
    assert "an empty list" in refused(features=[])
    assert "features are numbers or categorical" in refused(features=["a"], types={"a": "ordinal"}, ignore=["ward"])


def test_a_backbone_that_knows_nothing_of_gaps_is_refused(data):
    with pytest.raises(ecbm.InputError, match="only the backbones 'linear' and 'mlp'"):
        ecbm.train(data, backbone=torch.nn.Linear(6, 4), patience=None)
