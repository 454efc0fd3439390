"""One seed gives one model, bit for bit, whether or not training was interrupted."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import pytest
import torch
from safetensors import safe_open
from torch import nn

import ecbm
from ecbm.train import loop, stages
from kit import pictures, python, same_bytes, tabular


def with_dropout() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5))


RECIPES = {
    "linear": ecbm.Recipe(backbone="linear"),
    "mlp": ecbm.Recipe(backbone="mlp", hidden=(8,), epochs=4, batch_size=16),
    "joint mlp": ecbm.Recipe(backbone="mlp", hidden=(8,), epochs=4, batch_size=16, regime="joint"),
    "dropout": ecbm.Recipe(backbone=with_dropout(), epochs=4, batch_size=16),
    "convnet": ecbm.Recipe(backbone="convnet", epochs=2, batch_size=16),
    "augmented": ecbm.Recipe(
        backbone="convnet",
        epochs=2,
        batch_size=8,
        accumulate=2,
        class_balanced=True,
        backbone_rate=0.5,
        augment="flip,vertical_flip,crop,zoom,colour",
    ),
}


def data_for(name):
    return pictures(80) if name in ("convnet", "augmented") else tabular(80, missing=0.1)


@pytest.mark.parametrize("name", RECIPES)
def test_the_same_recipe_and_data_give_the_same_bytes_in_memory_and_on_disk(name, tmp_path):
    data, recipe = data_for(name), RECIPES[name]
    models = []
    for turn in (1, 2):
        torch.manual_seed(turn)  # the caller's generator has no influence
        models.append(ecbm.train(data, recipe))
        ecbm.save(models[-1], tmp_path / str(turn))
    assert same_bytes(*models)
    assert models[0].fingerprint == models[1].fingerprint
    for file in ("model.safetensors", "config.json", "README.md"):
        assert (tmp_path / "1" / file).read_bytes() == (tmp_path / "2" / file).read_bytes(), file


def test_training_leaves_the_callers_random_numbers_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    ecbm.train(tabular(60), RECIPES["dropout"])
    assert torch.equal(torch.rand(3), expected)


def test_another_seed_gives_another_model():
    data, recipe = tabular(80), RECIPES["mlp"]
    assert not same_bytes(ecbm.train(data, recipe), ecbm.train(data, recipe.replace(seed=1)))


def interrupt_after(monkeypatch, steps, error):
    """Raise in the middle of training, after this many steps."""
    real, taken = loop._reduce_gradients, []

    def step(parameters):
        taken.append(1)
        if len(taken) > steps:
            raise error
        real(parameters)

    monkeypatch.setattr(loop, "_reduce_gradients", step)


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize(
    ("name", "steps"), [("mlp", 7), ("joint mlp", 7), ("dropout", 7), ("convnet", 5), ("augmented", 5)]
)
def test_interrupted_and_resumed_training_gives_the_same_bytes(monkeypatch, tmp_path, name, steps, error):
    data, recipe, checkpoint = data_for(name), RECIPES[name], tmp_path / "new" / "folder" / "state"
    whole = ecbm.train(data, recipe)
    with monkeypatch.context() as patch:
        interrupt_after(patch, steps, error)
        with pytest.raises(error):
            ecbm.train(data, recipe, checkpoint=checkpoint)
    assert checkpoint.is_file()
    resumed = ecbm.train(data, recipe, checkpoint=checkpoint)
    assert same_bytes(whole, resumed)
    assert len(resumed.provenance.training["epochs"]) == len(whole.provenance.training["epochs"])
    assert not checkpoint.exists(), "a finished training leaves no checkpoint"


def test_an_interrupt_in_the_first_epoch_leaves_nothing_and_starting_over_works(monkeypatch, tmp_path):
    data, recipe, checkpoint = tabular(80), RECIPES["mlp"], tmp_path / "state"
    with monkeypatch.context() as patch:
        interrupt_after(patch, 1, KeyboardInterrupt)
        with pytest.raises(KeyboardInterrupt):
            ecbm.train(data, recipe, checkpoint=checkpoint)
    assert list(tmp_path.iterdir()) == []
    assert same_bytes(ecbm.train(data, recipe, checkpoint=checkpoint), ecbm.train(data, recipe))


def test_an_interrupt_between_the_deep_stage_and_the_heads_repeats_no_epoch(monkeypatch, tmp_path):
    data, recipe, checkpoint = tabular(80), RECIPES["mlp"], tmp_path / "state"
    with monkeypatch.context() as patch:
        patch.setattr(stages, "fit_label_head", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            ecbm.train(data, recipe, checkpoint=checkpoint)
    with monkeypatch.context() as patch:
        interrupt_after(patch, 0, AssertionError("trained again"))
        resumed = ecbm.train(data, recipe, checkpoint=checkpoint)
    assert same_bytes(resumed, ecbm.train(data, recipe))


KILLED = """
import sys, time
import ecbm
from kit import tabular
from ecbm.train import loop, stages
from test_reproducible import RECIPES
real = loop._reduce_gradients
def slowly(parameters):
    time.sleep(0.02)
    real(parameters)
loop._reduce_gradients = slowly
ecbm.train(tabular(80, missing=0.1), RECIPES["dropout"].replace(epochs=200, patience=None), checkpoint=sys.argv[1])
"""


def test_a_training_killed_by_the_system_resumes_to_the_same_bytes(tmp_path):
    checkpoint = tmp_path / "state"
    recipe = RECIPES["dropout"].replace(epochs=200, patience=None)
    paths = f"import sys; sys.path[:0] = {[p for p in sys.path if p]!r}\n"
    process = subprocess.Popen([sys.executable, "-c", paths + KILLED, checkpoint], stderr=subprocess.PIPE)
    deadline = time.monotonic() + 120

    def epochs_done():
        if not checkpoint.exists():
            return 0
        with safe_open(checkpoint, framework="pt") as file:
            return len(json.loads(file.metadata()["checkpoint"])["history"])

    while epochs_done() < 3:
        assert process.poll() is None, process.stderr.read().decode()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stderr.close()
    assert 3 <= epochs_done() < 200
    data = tabular(80, missing=0.1)
    assert same_bytes(ecbm.train(data, recipe, checkpoint=checkpoint), ecbm.train(data, recipe))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda path: path.write_bytes(b""), "not a training checkpoint"),
        (lambda path: path.write_bytes(path.read_bytes()[:-9]), "not a training checkpoint"),
        (lambda path: path.write_bytes(b"a letter to a friend"), "not a training checkpoint"),
    ],
)
def test_a_damaged_checkpoint_is_refused_in_one_line_and_kept(monkeypatch, tmp_path, spoil, message):
    data, recipe, checkpoint = tabular(80), RECIPES["mlp"], tmp_path / "state"
    with monkeypatch.context() as patch:
        interrupt_after(patch, 7, KeyboardInterrupt)
        with pytest.raises(KeyboardInterrupt):
            ecbm.train(data, recipe, checkpoint=checkpoint)
    spoil(checkpoint)
    with pytest.raises(ecbm.InputError, match=message) as caught:
        ecbm.train(data, recipe, checkpoint=checkpoint)
    assert "\n" not in str(caught.value)
    assert checkpoint.exists()


def test_a_checkpoint_of_another_training_is_refused(monkeypatch, tmp_path):
    data, recipe, checkpoint = tabular(80), RECIPES["mlp"], tmp_path / "state"
    with monkeypatch.context() as patch:
        interrupt_after(patch, 7, KeyboardInterrupt)
        with pytest.raises(KeyboardInterrupt):
            ecbm.train(data, recipe, checkpoint=checkpoint)
    for other_data, other in ((data, recipe.replace(seed=1)), (tabular(80, seed=1), recipe)):
        with pytest.raises(ecbm.InputError, match="another training"):
            ecbm.train(other_data, other, checkpoint=checkpoint)


def test_a_checkpoint_of_another_custom_backbone_is_refused(monkeypatch, tmp_path):
    data, checkpoint = tabular(80), tmp_path / "state"
    recipe = RECIPES["mlp"].replace(backbone=nn.Linear(6, 3))
    with monkeypatch.context() as patch:
        interrupt_after(patch, 7, KeyboardInterrupt)
        with pytest.raises(KeyboardInterrupt):
            ecbm.train(data, recipe, checkpoint=checkpoint)
    with pytest.raises(ecbm.InputError, match="the backbone differs"):
        ecbm.train(data, recipe.replace(backbone=nn.Linear(6, 4)), checkpoint=checkpoint)


def test_a_checkpoint_that_names_a_folder_is_refused_before_training(tmp_path):
    with pytest.raises(ecbm.InputError, match="is a folder"):
        ecbm.train(tabular(80), RECIPES["mlp"], checkpoint=tmp_path)


def test_training_that_needs_no_checkpoint_leaves_the_file_of_that_name_alone(tmp_path):
    (tmp_path / "notes").write_text("keep me")
    ecbm.train(tabular(80), RECIPES["linear"], checkpoint=tmp_path / "notes")
    assert (tmp_path / "notes").read_text() == "keep me"


def test_another_process_gives_the_same_bytes(tmp_path):
    script = (
        f"import sys; sys.path[:0] = {[p for p in sys.path if p]!r}\n"
        "import ecbm; from kit import tabular; from test_reproducible import RECIPES\n"
        "ecbm.save(ecbm.train(tabular(80, missing=0.1), RECIPES['mlp']), sys.argv[1])"
    )
    done = python("-c", script, tmp_path / "model")
    assert done.returncode == 0, done.stderr
    assert same_bytes(ecbm.load(tmp_path / "model"), ecbm.train(tabular(80, missing=0.1), RECIPES["mlp"]))
