"""Arrays are read once, from files no larger than needed, and what others change meanwhile is noticed."""

from __future__ import annotations

import json
from collections import Counter

import pytest
import torch
from attack_malformed import command
from safetensors.torch import load as tensors_from
from safetensors.torch import save as tensor_bytes
from workspace_kit import EDITS, PATIENT, RECIPE, trained_workspace

import ecbm
from ecbm.errors import InputError
from ecbm.keep.objects import ObjectStore
from ecbm.keep.workspace import Workspace
from kit import pictures, python, same_bytes, tabular


@pytest.fixture
def reads(monkeypatch):
    """How often each array file was read."""
    counts: Counter[str] = Counter()
    get = ObjectStore.get

    def counted(store, digest):
        counts[digest] += 1
        return get(store, digest)

    monkeypatch.setattr(ObjectStore, "get", counted)
    return counts


def test_commands_read_every_file_once(tmp_path, reads):
    folder = trained_workspace(tmp_path / "w").folder
    (tmp_path / "edit.json").write_text(json.dumps({"correct_labels": [{"id": "s4", "label": "crow"}]}))
    for arguments in (
        ("train", folder),
        ("edit", folder, tmp_path / "edit.json", "--preview"),
        ("edit", folder, tmp_path / "edit.json"),
        ("evaluate", folder),
        ("predict", folder, "s1"),
        ("export", folder, tmp_path / "model"),
    ):
        reads.clear()
        status, _, err = command(*map(str, arguments))
        assert (status, err) == (0, ""), arguments
        assert reads, arguments
        assert set(reads.values()) == {1}, arguments


def test_an_erasure_reads_again_only_what_it_rewrites(tmp_path, reads):
    made = Workspace.create(tmp_path / "w", tabular(9000, 300), RECIPE)
    chunks = made.version().data["chunks"]
    reads.clear()
    Workspace(made.folder).erase(["s5"])
    assert [reads[chunk["data"]] for chunk in chunks] == [2] + [1] * (len(chunks) - 1)


def test_versions_share_what_was_read(tmp_path, reads):
    workspace = trained_workspace(tmp_path / "w")
    inputs = {chunk["data"] for chunk in workspace.version().data["chunks"]}
    reads.clear()
    for name in ("class labels", "concept labels", "remove samples", "remove concepts"):
        before = workspace.data()
        workspace.edit(EDITS[name](), "exact")
        assert workspace.data() == EDITS[name]().apply_to(before)
    assert all(reads[digest] <= 1 for digest in inputs)


def test_an_erasure_by_another_process_is_noticed(tmp_path):
    workspace = trained_workspace(tmp_path / "w")
    assert PATIENT in workspace.data().ids
    model = workspace.model()
    Workspace(workspace.folder).erase([PATIENT])
    assert PATIENT not in workspace.data().ids
    assert not same_bytes(workspace.model(), model)
    for number in (0, 1):
        with pytest.raises(InputError, match="destroyed by an erasure"):
            workspace.data(number)
    with pytest.raises(InputError, match="destroyed by an erasure"):
        workspace.model(1)


def test_an_erasure_leaves_nothing_in_memory(tmp_path):
    workspace = trained_workspace(tmp_path / "w")
    workspace.data(), workspace.model()
    workspace.erase([PATIENT])
    assert (workspace._reader, workspace._model) == (None, None)
    other = Workspace(workspace.folder)
    other.data()
    Workspace(workspace.folder).erase(["s1"])
    other.data()
    assert all("s1" not in data.ids for data in other._reader._datasets.values())
    assert len(other._reader._pool[0]) == len(other.data())


def test_a_model_that_was_handed_out_may_be_changed(tmp_path):
    workspace = trained_workspace(tmp_path / "w")
    first = workspace.model()
    with torch.no_grad():
        first.label_head.bias.add_(1)
    assert not same_bytes(first, workspace.model())
    assert workspace.check()["ok"]
    version, _ = workspace.edit(EDITS["class labels"](), "exact")
    other = Workspace(workspace.folder)
    other.undo()
    again, _ = other.edit(EDITS["class labels"](), "exact")
    assert same_bytes(workspace.model(version), workspace.model(again))


def test_a_convolution_keeps_its_memory_format(tmp_path):
    workspace = Workspace.create(tmp_path / "w", pictures(80), ecbm.Recipe(backbone="convnet", epochs=1))
    workspace.train()
    first, second = workspace.model(), workspace.model()
    assert [p.stride() for p in first.parameters()] == [p.stride() for p in second.parameters()]
    assert same_bytes(first, second)


def test_pandas_is_not_loaded(tmp_path):
    """Arrow would, in each of its conversions; that takes longer than reading."""
    folder = trained_workspace(tmp_path / "w").folder
    code = (
        "import sys, ecbm; workspace = ecbm.Workspace(sys.argv[1]); more = workspace.data().select([0]); "
        "names = more.concept_names, more.class_names; "
        "more = ecbm.Dataset(['n'], more.inputs, more.concepts, more.labels, *names); "
        "workspace.edit(ecbm.Edit(add_samples=more, remove_samples=['s4'])); workspace.erase(['s1']); "
        "print('pandas' in sys.modules)"
    )
    done = python("-c", code, folder)
    assert done.stdout.strip() == "False", done.stderr


def half_data(rows: int = 60) -> ecbm.Dataset:
    data = tabular(rows, 4)
    x = data.x.half().float()
    x[0] = torch.tensor([0.0, -0.0, 2.0**-24, 65504.0])
    return ecbm.Dataset(data.ids, x, data.concepts, data.labels, data.concept_names, data.class_names, data.splits)


def test_features_of_half_precision_are_kept_so_and_come_back_to_the_bit(tmp_path):
    data = half_data()
    workspace = Workspace.create(tmp_path / "w", data, RECIPE)
    kept = tensors_from(workspace.store.get(workspace.version().data["chunks"][0]["data"]))["x"]
    assert kept.dtype == torch.float16
    assert workspace.data().x.numpy().tobytes() == data.x.numpy().tobytes()
    assert workspace.data().fingerprint == data.fingerprint
    assert workspace.check()["ok"]


def test_features_of_full_precision_may_follow_such_of_half(tmp_path):
    workspace = Workspace.create(tmp_path / "w", half_data(), RECIPE)
    workspace.train()
    extra = tabular(62, 4, seed=3).select([60, 61])
    workspace.edit(ecbm.Edit(add_samples=extra), "exact")
    kinds = [
        tensors_from(workspace.store.get(chunk["data"]))["x"].dtype
        for chunk in [*workspace.version().data["chunks"], *workspace.version().data["deltas"][0]["chunks"]]
    ]
    assert kinds == [torch.float16, torch.float32]
    assert torch.equal(Workspace(workspace.folder).data().x[-2:], extra.x)
    assert workspace.check()["ok"]


def test_chunks_that_an_earlier_ecbm_wrote_in_full_precision_are_read(tmp_path, monkeypatch):
    data = half_data()
    monkeypatch.setattr("ecbm.keep.stored_inputs._row_bytes", lambda rows: tensor_bytes({"x": rows.contiguous()}))
    workspace = Workspace.create(tmp_path / "w", data, RECIPE)
    kept = tensors_from(workspace.store.get(workspace.version().data["chunks"][0]["data"]))["x"]
    assert kept.dtype == torch.float32
    assert workspace.data() == data
    assert workspace.check()["ok"]
