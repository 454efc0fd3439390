"""A saved model comes back bit for bit, and anything else is refused in one line."""

from __future__ import annotations

import json
import os

import pytest
import torch
from safetensors.torch import load_file, save_file

import ecbm
from ecbm import InputError
from kit import pictures, same_bytes, tabular

RECIPES = {
    "linear": ecbm.Recipe(backbone="linear"),
    "linear, all fields": ecbm.Recipe(
        backbone="linear", regime="independent", bottleneck="probabilities", pos_weight={"round": 3}, seed=7
    ),
    "mlp": ecbm.Recipe(backbone="mlp", hidden=(7, 5), epochs=1, pos_weight="balanced"),
    "joint": ecbm.Recipe(backbone="mlp", hidden=(4,), epochs=1, regime="joint", bottleneck="probabilities"),
    "convnet": ecbm.Recipe(backbone="convnet", epochs=1),
}


@pytest.mark.parametrize("name", RECIPES)
def test_the_round_trip_is_bit_exact(name, tmp_path):
    data = pictures() if name == "convnet" else tabular(60, missing=0.1)
    model = ecbm.train(data, RECIPES[name])
    folder = ecbm.save(model, tmp_path / "deep" / "folder", metrics=ecbm.evaluate(model, data))
    again = ecbm.load(folder)
    assert same_bytes(model, again)
    assert again.recipe == model.recipe
    assert (again.concept_names, again.class_names) == (data.concept_names, data.class_names)
    assert again.input_shape == model.input_shape
    assert again.fingerprint == model.fingerprint
    assert again.provenance.data_fingerprint == data.fingerprint
    assert torch.equal(model.class_probabilities(data.inputs), again.class_probabilities(data.inputs))
    assert not again.training
    ecbm.save(again, tmp_path / "second", metrics=ecbm.evaluate(again, data))
    for file in ("config.json", "model.safetensors", "README.md"):
        assert (folder / file).read_bytes() == (tmp_path / "second" / file).read_bytes()


def test_a_saved_model_is_a_folder_of_three_files_and_nothing_else(tmp_path):
    ecbm.save(ecbm.train(tabular(60)), tmp_path / "model")
    assert sorted(os.listdir(tmp_path / "model")) == ["README.md", "config.json", "model.safetensors"]
    assert os.listdir(tmp_path) == ["model"]


def test_the_model_card_says_what_the_model_is(tmp_path):
    data = tabular(60)
    model = ecbm.train(data)
    figures = ecbm.evaluate(model, data.split("test"))
    card = (ecbm.save(model, tmp_path / "model", metrics=figures) / "README.md").read_text()
    for text in ("5 concepts in 3 groups", "3 classes", "size=big", "finch", data.fingerprint, "gradient norm"):
        assert text in card
    assert f"| class accuracy | {figures['class_accuracy']:.4f} |" in card


def test_saving_replaces_a_model_and_nothing_else(tmp_path):
    first, second = (ecbm.train(tabular(60, seed=seed)) for seed in (0, 1))
    ecbm.save(first, tmp_path / "model")
    ecbm.save(second, tmp_path / "model")
    assert same_bytes(ecbm.load(tmp_path / "model"), second)
    assert os.listdir(tmp_path) == ["model"]
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_text("cat")
    (tmp_path / "file").write_text("text")
    for name in ("photos", "file"):
        with pytest.raises(InputError, match="is not a saved model; choose another folder"):
            ecbm.save(first, tmp_path / name)
    assert (tmp_path / "photos" / "cat.jpg").read_text() == "cat"
    assert (tmp_path / "file").read_text() == "text"
    (tmp_path / "empty").mkdir()
    assert same_bytes(ecbm.load(ecbm.save(first, tmp_path / "empty")), first)


@pytest.mark.parametrize("where", ["write_text", "write_safetensors"])
def test_a_failed_save_leaves_the_old_model(tmp_path, monkeypatch, where):
    first, second = (ecbm.train(tabular(60, seed=seed)) for seed in (0, 1))
    ecbm.save(first, tmp_path / "model")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(f"ecbm.keep.saving.{where}", full)
    with pytest.raises(OSError, match="No space left"):
        ecbm.save(second, tmp_path / "model")
    assert same_bytes(ecbm.load(tmp_path / "model"), first)
    assert os.listdir(tmp_path) == ["model"]


def test_loading_leaves_the_callers_random_numbers_alone(tmp_path):
    ecbm.save(ecbm.train(tabular(60), RECIPES["mlp"]), tmp_path / "model")
    torch.manual_seed(1)
    expected = torch.rand(2)
    torch.manual_seed(1)
    ecbm.load(tmp_path / "model")
    assert torch.equal(torch.rand(2), expected)


def config(change):
    def spoil(folder):
        value = json.loads((folder / "config.json").read_text())
        change(value)
        (folder / "config.json").write_text(json.dumps(value))

    return spoil


def weights(change):
    def spoil(folder):
        state = {name: value.clone() for name, value in load_file(folder / "model.safetensors").items()}
        change(state)
        save_file(state, folder / "model.safetensors")

    return spoil


def cut(name, keep):
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:keep])


def lost(name):
    return lambda folder: (folder / name).unlink()


def swapped(state):
    state["low"], state["high"] = state["high"], state["low"]


def wider(value):
    value["recipe"]["hidden"] = [8]


DAMAGE = {
    "no config": (lost("config.json"), r"not a saved model \(no config.json\)"),
    "no weights": (lost("model.safetensors"), r"no model.safetensors"),
    "empty weights": (cut("model.safetensors", 0), "cannot be read"),
    "header cut": (cut("model.safetensors", 40), "cannot be read"),
    "data cut": (cut("model.safetensors", -8), "cannot be read"),
    "text as weights": (lambda f: (f / "model.safetensors").write_text("hello " * 9), "cannot be read"),
    "empty config": (cut("config.json", 0), "cannot be read"),
    "config cut": (cut("config.json", -9), "cannot be read"),
    "config not text": (lambda f: (f / "config.json").write_bytes(b"\xff\xfe\x00"), "cannot be read"),
    "config too deep": (lambda f: (f / "config.json").write_text("[" * 100_000), "cannot be read"),
    "config a list": (lambda f: (f / "config.json").write_text("[]"), "not the config of an ecbm model"),
    "another format": (config(lambda c: c.update(format="other")), "not the config of an ecbm model"),
    "newer version": (config(lambda c: c.update(format_version=99)), "format version 99; this ecbm reads 1"),
    "no version": (config(lambda c: c.pop("format_version")), "format version None"),
    "no recipe": (config(lambda c: c.pop("recipe")), "'recipe' is missing"),
    "names not a list": (
        config(lambda c: c.update(concept_names="abc")),
        "'concept_names' is missing or not a list",
    ),
    "names not text": (config(lambda c: c.update(class_names=[1, 2, 3])), "'class_names' must list names"),
    "no names": (config(lambda c: c.update(class_names=[])), "'class_names' must list names"),
    "a name lost": (config(lambda c: c["concept_names"].pop()), "expected torch.float64"),
    "a name changed": (config(lambda c: c["concept_names"].__setitem__(0, "x")), "fingerprints differ"),
    "names exchanged": (config(lambda c: c["class_names"].reverse()), "fingerprints differ"),
    "strange shape": (config(lambda c: c.update(input_shape=[-6])), "'input_shape' must list positive sizes"),
    "huge shape": (config(lambda c: c.update(input_shape=[99999, 99999])), "'input_shape' is too large"),
    "other shape": (config(lambda c: c.update(input_shape=[5])), "expected torch.float"),
    "unknown field": (config(lambda c: c["recipe"].update(colour=1)), "recipe cannot be built"),
    "strange field": (config(lambda c: c["recipe"].update(epochs="many")), "recipe cannot be built"),
    "strange width": (config(lambda c: c["recipe"].update(hidden=5)), "recipe cannot be built"),
    "endless width": (config(lambda c: c["recipe"].update(hidden=[10**15])), "recipe cannot be built"),
    "other backbone": (config(lambda c: c["recipe"].update(backbone="resnet18")), "lacks 'backbone.bn1.bias'"),
    "custom backbone": (config(lambda c: c["recipe"].update(backbone="custom")), "pass the module as backbone="),
    "other width": (config(wider), "expected torch.float32"),
    "other recipe": (config(lambda c: c["recipe"].update(bottleneck="probabilities")), "fingerprints differ"),
    "NaN": (weights(lambda s: s["label_head.bias"].fill_(torch.nan)), "'label_head.bias' contains NaN"),
    "infinity": (weights(lambda s: s["low"].fill_(torch.inf)), "'low' contains NaN or infinity"),
    "wrong shape": (weights(lambda s: s.update(low=torch.zeros(4).double())), r"'low' is torch.float64 \(4,\)"),
    "wrong type": (weights(lambda s: s.update(low=s["low"].float())), "'low' is torch.float32"),
    "extra tensor": (weights(lambda s: s.update(extra=torch.ones(1))), "unexpected tensor 'extra'"),
    "lost tensor": (weights(lambda s: s.pop("high")), "lacks 'high'"),
    "swapped tensors": (weights(swapped), "fingerprints differ"),
    "one bit": (weights(lambda s: s["high"].view(torch.int64).__ixor__(1)), "fingerprints differ"),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    model = ecbm.train(tabular(60), ecbm.Recipe(backbone="mlp", hidden=(7,), epochs=1))
    return ecbm.save(model, tmp_path_factory.mktemp("saved") / "model")


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_model_is_refused_in_one_line(damage, saved, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    for file in saved.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    spoil, message = DAMAGE[damage]
    spoil(folder)
    with pytest.raises(InputError, match=message) as caught:
        ecbm.load(folder)
    assert str(folder) in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_weights_of_another_model_are_refused(saved, tmp_path):
    other = ecbm.train(tabular(60, seed=9), ecbm.Recipe(backbone="mlp", hidden=(7,), epochs=1))
    folder = ecbm.save(other, tmp_path / "model")
    (folder / "model.safetensors").write_bytes((saved / "model.safetensors").read_bytes())
    with pytest.raises(InputError, match="weights and config do not belong together"):
        ecbm.load(folder)


def test_what_is_no_folder_is_refused(tmp_path):
    (tmp_path / "file").write_text("text")
    for path in (tmp_path / "nowhere", tmp_path / "file", tmp_path):
        with pytest.raises(InputError, match="not a saved model"):
            ecbm.load(path)


def test_a_place_that_cannot_be_written_is_refused_in_one_line(tmp_path, monkeypatch):
    model = ecbm.train(tabular(30))
    (tmp_path / "file").write_text("text")
    with pytest.raises(
        ecbm.InputError, match=r"below: cannot be written \(a file is in the way\); give another folder"
    ):
        ecbm.save(model, tmp_path / "file" / "below")

    def read_only(*_, **__):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("tempfile.mkdtemp", read_only)
    with pytest.raises(ecbm.InputError, match=r"cannot be written \(Read-only file system\)"):
        ecbm.save(model, tmp_path / "new")
    with pytest.raises(ecbm.InputError, match="expected a trained model, got Dataset"):
        ecbm.save(tabular(30), tmp_path / "new")
