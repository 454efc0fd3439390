"""Features of a frozen network in a workspace: computed once, kept whole, destroyed with their samples."""

from __future__ import annotations

import os
import signal
import subprocess
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch

import ecbm
import kit
import networks_kit
from ecbm.keep import durable
from ecbm.keep.stored_features import FOLDER, StoredRows, destroy_features, open_features
from ecbm.keep.workspace import Workspace
from ecbm.read.digests import RowDigests
from ecbm.train.extraction import seen_through


@pytest.fixture(scope="module")
def data():
    return kit.pictures(80)


@pytest.fixture
def workspace(tmp_path, data):
    made = Workspace.create(tmp_path / "ward", data, networks_kit.own())
    made.train()
    return made


@pytest.fixture
def passes(monkeypatch):
    return networks_kit.counted_passes(monkeypatch)


def reopened(workspace: Workspace) -> Workspace:
    return Workspace(workspace.folder, trust=["networks_kit"])


def rows_file(folder: Path) -> Path:
    (found,) = (folder / FOLDER).glob("*.rows")
    return found


def some_more(seed: int = 5) -> ecbm.Dataset:
    other = kit.pictures(80, seed=seed).select(range(6))
    names, splits = [f"new-{name}" for name in other.ids], ["train"] * 6
    return ecbm.Dataset(
        names, other.inputs, other.concepts, other.labels, other.concept_names, other.class_names, splits
    )


def kept(folder: Path, model: ecbm.ConceptBottleneck, data: ecbm.Dataset) -> list[bool]:
    """Whose features lie on disk."""
    return open_features(folder, model.front).has(RowDigests.of(data.row_digests)).tolist()


def test_a_cold_edit_runs_no_picture_through_the_network(workspace, data, passes):
    train = data.split("train")
    _, report = reopened(workspace).edit(ecbm.Edit(remove_samples=train.ids[:2]))
    assert report["certificate"]["class_predictions_that_could_differ"] == 0
    assert passes == []


def test_a_cold_edit_needs_neither_the_network_nor_its_library(tmp_path, data):
    networks_kit.lite0()
    Workspace.create(tmp_path / "w", data, networks_kit.pretrained()).train()
    code = f"""
    import sys
    for name in ("timm", "torchvision"):
        sys.modules[name] = None
    import ecbm
    workspace = ecbm.Workspace({str(tmp_path / "w")!r})
    _, report = workspace.edit(ecbm.Edit(remove_samples=[workspace.data().split("train").ids[0]]))
    print(report["certificate"]["class_predictions_that_could_differ"])
    """
    done = kit.python("-c", textwrap.dedent(code))
    assert (done.stdout, done.returncode) == ("0\n", 0), done.stderr


def test_maps_are_kept_of_the_samples_that_training_reads(tmp_path, data):
    made = Workspace.create(tmp_path / "ward", data, networks_kit.own(frozen="until:first", epochs=1))
    made.train()
    model = made.model()
    for split, there in (("train", True), ("val", True), ("test", False)):
        assert set(kept(made.folder, model, data.split(split))) == {there}
    assert len(model.predict(data.split("test"))) == len(data.split("test"))


def test_joined_layers_behind_kept_maps_come_back_and_are_edited(tmp_path, data):
    recipe = networks_kit.own(frozen="until:first", layer=["first", "norm"], epochs=2)
    made = Workspace.create(tmp_path / "ward", data, recipe)
    made.train()
    model = made.model()
    assert model.concept_head.in_features == 8 + 16
    again = reopened(made)
    assert torch.equal(again.model().concept_logits(data), model.concept_logits(data))
    version, _ = again.edit(ecbm.Edit(remove_samples=data.split("train").ids[:2]))
    assert version == 2


def test_added_samples_are_computed_once_and_kept(workspace, passes):
    added = some_more()
    reopened(workspace).edit(ecbm.Edit(add_samples=added))
    assert sum(passes) == len(added)
    again = reopened(workspace)
    assert all(kept(workspace.folder, again.model(), again.data()))
    again.edit(ecbm.Edit(remove_samples=[added.ids[0]]))
    assert sum(passes) == len(added)


def test_a_preview_leaves_nothing_on_disk(workspace):
    before = rows_file(workspace.folder).read_bytes()
    workspace.preview(ecbm.Edit(add_samples=some_more()))
    assert rows_file(workspace.folder).read_bytes() == before


def test_weights_of_the_frozen_network_are_stored_once(workspace, data):
    train = data.split("train").ids
    for name in train[:3]:
        workspace.edit(ecbm.Edit(remove_samples=[name]))
    fronts = {version.model["parts"]["front"] for version in workspace.versions() if version.model}
    assert len(fronts) == 1


def test_versions_replay_to_the_bit_and_undo_works(workspace, data):
    workspace.edit(ecbm.Edit(remove_samples=data.split("train").ids[:2]))
    workspace.edit(ecbm.Edit(add_samples=some_more()))
    replayed = reopened(workspace).check(replay=True)["replayed"]
    assert [one["same"] for one in replayed] == [None, True, True, True]
    assert workspace.undo() == 2
    assert len(workspace.data()) == 78


# -- whole, or computed again --------------------------------------------------------------------------------


def test_a_damaged_row_is_computed_again(workspace, data, passes):
    path = rows_file(workspace.folder)
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    model = reopened(workspace).model()
    rows = seen_through(model.front, data).inputs.take(range(len(data)))
    assert sum(passes) == 1
    with torch.no_grad():
        assert torch.allclose(rows, networks_kit.eye().eval()(data.x), atol=1e-5)


@pytest.mark.parametrize("which", ["rows", "index", "json"])
def test_a_file_that_is_gone_is_made_again(workspace, data, passes, which):
    rows_file(workspace.folder).with_suffix(f".{which}").unlink()
    _, report = reopened(workspace).edit(ecbm.Edit(remove_samples=[data.split("train").ids[0]]))
    assert report["certificate"]["class_predictions_that_could_differ"] == 0
    assert reopened(workspace).check()["ok"]


def test_two_writers_do_not_spoil_each_other(tmp_path, data):
    front = ecbm.train(data, networks_kit.own()).front
    draw = np.random.default_rng(0)
    digests = RowDigests(draw.integers(1, 255, (60, 16), np.uint8))
    values = torch.randn(60, *front.shape)
    (tmp_path / FOLDER).mkdir()
    first, second = (StoredRows(tmp_path / FOLDER, front, writes=True) for _ in range(2))
    for start in range(0, 60, 10):
        (first if start % 20 else second).add(digests[start : start + 10], values[start : start + 10])
    found, there = StoredRows(tmp_path / FOLDER, front, writes=False).fetch(digests)
    assert there.all()
    assert torch.equal(found, values)


KILLED = """
import os, signal, sys
import ecbm, kit, networks_kit
from ecbm.train import extraction
extraction._BATCH = 8
forward, seen = networks_kit.Eye.forward, []
def counted(self, x):
    seen.append(len(x))
    if int(sys.argv[2]) and sum(seen) > int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    return forward(self, x)
networks_kit.Eye.forward = counted
ecbm.Workspace(sys.argv[1], trust=["networks_kit"]).train()
print(sum(seen) - 1)
"""


def test_a_killed_extraction_goes_on_and_repeats_at_most_one_batch(tmp_path, data):
    Workspace.create(tmp_path / "w", data, networks_kit.own())
    path = f"{Path(__file__).parents[1]}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"

    def run(after: int) -> subprocess.CompletedProcess[str]:
        return kit.python("-c", KILLED, tmp_path / "w", str(after), PYTHONPATH=path)

    done = run(40)
    assert done.returncode == -signal.SIGKILL, done.stderr
    done = run(0)
    assert done.returncode == 0, done.stderr
    # One trial picture and 32 whole ones were through before the kill, in batches of 8.
    assert 80 - 40 <= int(done.stdout) <= 80 - 40 + 8
    assert Workspace(tmp_path / "w", trust=["networks_kit"]).check(replay=True)["replayed"][1]["same"]


def test_rows_are_whole_before_the_index_speaks_of_them(tmp_path, data):
    front = ecbm.train(data, networks_kit.own()).front
    (tmp_path / FOLDER).mkdir()
    store = StoredRows(tmp_path / FOLDER, front, writes=True)
    digests = RowDigests(np.random.default_rng(0).integers(1, 255, (20, 16), np.uint8))
    values = torch.randn(20, *front.shape)
    store.add(digests[:10], values[:10])

    def stop(operation: str, what: str) -> None:
        if operation == "append" and what.endswith(".index"):
            raise KeyboardInterrupt

    durable.watch(stop)
    try:
        with pytest.raises(KeyboardInterrupt):
            store.add(digests[10:], values[10:])
    finally:
        durable.watch(None)
    again = StoredRows(tmp_path / FOLDER, front, writes=True)
    assert again.has(digests).tolist() == [True] * 10 + [False] * 10
    again.add(digests[10:], values[10:])
    found, there = StoredRows(tmp_path / FOLDER, front, writes=False).fetch(digests)
    assert there.all()
    assert torch.equal(found, values)


# -- erasure -------------------------------------------------------------------------------------------------


def test_an_erasure_destroys_the_features_of_its_samples_alone(workspace, data, passes):
    victim = data.split("train").ids[4]
    model = workspace.model()
    row = seen_through(model.front, data).inputs.take([data.row(victim)])[0].numpy().tobytes()
    digest = data.row_digests[data.row(victim)]
    folder = workspace.folder / FOLDER
    assert row in rows_file(workspace.folder).read_bytes()
    result = workspace.erase([victim])
    assert not any("backbone learnt" in words for words in result["not_reached"])
    for path in folder.iterdir():
        content = path.read_bytes()
        assert row not in content, path
        assert digest not in content, path
    again = reopened(workspace)
    assert all(kept(again.folder, again.model(), again.data()))
    again.edit(ecbm.Edit(remove_samples=[data.split("train").ids[0]]))
    assert passes == []
    assert again.check()["ok"]


def test_an_erasure_also_destroys_features_of_samples_that_an_edit_removed(workspace, data):
    gone, erased = data.split("train").ids[:2]
    workspace.edit(ecbm.Edit(remove_samples=[gone]))
    workspace.erase([erased])
    content = b"".join(path.read_bytes() for path in (workspace.folder / FOLDER).iterdir())
    for name in (gone, erased):
        assert data.row_digests[data.row(name)] not in content


def test_what_a_killed_process_left_behind_the_index_is_destroyed_too(workspace, data):
    path = rows_file(workspace.folder)
    with path.open("ab") as file:
        file.write(b"left behind by somebody")
    destroy_features(workspace.folder, RowDigests.of(data.row_digests))
    assert b"left behind" not in path.read_bytes()
    assert all(kept(workspace.folder, workspace.model(), data))


# -- as files for others -------------------------------------------------------------------------------------


def test_a_saved_model_loads_without_the_network(tmp_path, data, monkeypatch):
    networks_kit.lite0()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    model = ecbm.train(data, networks_kit.pretrained())
    ecbm.save(model, tmp_path / "m")
    again = ecbm.load(tmp_path / "m")
    assert again.fingerprint == model.fingerprint
    assert torch.equal(again.class_probabilities(data.x[:5]), model.class_probabilities(data.x[:5]))


@pytest.mark.parametrize("frozen", [True, False, "until:first"])
def test_every_kind_of_front_is_saved_and_loaded(tmp_path, data, frozen):
    model = ecbm.train(data, networks_kit.own(frozen=frozen, epochs=1))
    ecbm.save(model, tmp_path / "m")
    again = ecbm.load(tmp_path / "m", trust=["networks_kit"])
    assert again.fingerprint == model.fingerprint
    assert torch.equal(again.class_probabilities(data.x[:5]), model.class_probabilities(data.x[:5]))


def test_a_frozen_module_is_loaded_with_the_module_given(tmp_path, data):
    model = ecbm.train(data, backbone=networks_kit.eye(), frozen=True)
    ecbm.save(model, tmp_path / "m")
    with pytest.raises(ecbm.InputError, match="custom backbone"):
        ecbm.load(tmp_path / "m")
    again = ecbm.load(tmp_path / "m", backbone=networks_kit.eye(seed=9))
    assert torch.equal(again.class_probabilities(data.x[:5]), model.class_probabilities(data.x[:5]))


def test_frozen_weights_that_were_changed_are_refused(tmp_path, data):
    model = ecbm.train(data, networks_kit.own())
    ecbm.save(model, tmp_path / "m")
    path = tmp_path / "m" / "front.safetensors"
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    with pytest.raises(ecbm.InputError, match="are not those of the model"):
        ecbm.load(tmp_path / "m", trust=["networks_kit"]).class_probabilities(data.x[:2])


def onnx_answers(content: bytes, x: torch.Tensor) -> list[np.ndarray]:
    runtime = pytest.importorskip("onnxruntime", reason="needs ecbm[pretrained]")
    session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return session.run(["concepts", "classes"], {"x": x.numpy()})


@pytest.mark.parametrize(
    "fields",
    [{}, {"feature_precision": "float16"}, {"layer": "first+norm"}, {"frozen": "until:first", "epochs": 1},
     {"frozen": "until:first", "layer": "first+norm", "epochs": 1},
     {"preprocessing": {"size": 24, "crop": 0.8, "mean": [0.4, 0.5, 0.6], "std": [0.2, 0.2, 0.3]}}],
)  # fmt: skip
def test_an_exported_graph_takes_the_picture_as_it_is(data, fields):
    pytest.importorskip("onnx", reason="needs ecbm[onnx]")
    from ecbm.keep.onnx import onnx_bytes

    model = ecbm.train(data, networks_kit.own(**fields))
    concepts, classes = onnx_answers(onnx_bytes(model), data.x[:7])
    assert np.abs(concepts - model.concept_probabilities(data.x[:7]).numpy()).max() < 2e-3
    assert np.abs(classes - model.class_probabilities(data.x[:7]).numpy()).max() < 2e-3


def test_a_network_from_an_onnx_file(tmp_path, data):
    pytest.importorskip("onnx", reason="needs ecbm[onnx]")
    pytest.importorskip("onnxruntime", reason="needs ecbm[pretrained]")
    from ecbm.keep.onnx import _exported, onnx_bytes

    content = _exported(networks_kit.eye(), torch.zeros(2, 3, 32, 32), "picture", ["rows"])
    (tmp_path / "eye.onnx").write_bytes(content)
    model = ecbm.train(data, backbone=f"onnx:{tmp_path / 'eye.onnx'}")
    rows = seen_through(model.front, data).inputs.take(range(9))
    with torch.no_grad():
        assert torch.allclose(rows, networks_kit.eye().eval()(data.x[:9]), atol=1e-5)
    ecbm.save(model, tmp_path / "m")
    (tmp_path / "eye.onnx").unlink()  # the model has its own
    again = ecbm.load(tmp_path / "m")
    assert torch.allclose(again.class_probabilities(data.x[:4]), model.class_probabilities(data.x[:4]))
    edited = ecbm.Editor(again, data).apply(ecbm.Edit(remove_samples=[data.split("train").ids[0]]))
    assert edited.report["certificate"]["class_predictions_that_could_differ"] == 0
    concepts, classes = onnx_answers(onnx_bytes(again), data.x[:5])
    assert np.abs(classes - again.class_probabilities(data.x[:5]).numpy()).max() < 1e-4
    assert np.abs(concepts - again.concept_probabilities(data.x[:5]).numpy()).max() < 1e-4


def test_a_file_that_is_no_onnx_graph_is_refused(tmp_path, data):
    pytest.importorskip("onnxruntime", reason="needs ecbm[pretrained]")
    (tmp_path / "a.onnx").write_bytes(b"no graph")
    with pytest.raises(ecbm.InputError, match="cannot be run"):
        ecbm.train(data, backbone=f"onnx:{tmp_path / 'a.onnx'}")
    with pytest.raises(ecbm.InputError, match="cannot be read"):
        ecbm.train(data, backbone=f"onnx:{tmp_path / 'b.onnx'}")
