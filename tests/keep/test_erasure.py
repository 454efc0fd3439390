"""Erasure: no byte of the erased is left anywhere in the workspace, and the ledger still verifies."""

from __future__ import annotations

import io
import sqlite3

import numpy as np
import pytest
import torch
from PIL import Image, PngImagePlugin
from workspace_kit import EDITS, RECIPE, bytes_of, rows, small_data, trained_workspace

import ecbm
from ecbm.keep import durable
from ecbm.keep.workspace import Workspace
from kit import pictures, tabular

CANARY = "CANARY-c0ffee-4711"
# A float32 and a soft label whose bytes do not occur by chance.
FEATURE = np.float32(np.pi * 1e7)
SOFT = 0.7390851


def hits(folder, *needles: bytes) -> list[str]:
    """Files of a folder (names too) in which one of the needles occurs."""
    found = []
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder)).encode()
        content = path.read_bytes() if path.is_file() else b""
        found += [f"{path}: {needle!r}" for needle in needles if needle in content or needle in name]
    return found


def needles() -> list[bytes]:
    text = CANARY.encode()
    return [
        text, text[::-1], CANARY.lower().encode(), CANARY.encode("utf-16-le"), text.hex().encode(),
        np.float32(FEATURE).tobytes() * 2, np.float32(SOFT).tobytes(),
    ]  # fmt: skip


def canary_data(class_canary: bool = False) -> ecbm.Dataset:
    data = small_data()
    x = data.x.clone()
    x[1] = float(FEATURE)
    concepts, labels = data.concepts.clone(), data.labels.clone()
    concepts[1, :], concepts[1, data.concept_index("round")] = SOFT, 0.0
    classes = list(data.class_names)
    if class_canary:
        classes.append(f"class {CANARY}")
        labels[1] = len(classes) - 1
    ids = list(data.ids)
    ids[1] = CANARY
    return ecbm.Dataset(ids, x, concepts, labels, data.concept_names, classes, data.splits)


def busy_workspace(folder, data):
    """A workspace in which the canary went through everything."""
    made = Workspace.create(folder, data, RECIPE, source=f"/data/{CANARY}.csv")
    made.train(RECIPE)
    made.edit(ecbm.Edit(correct_concepts=[(CANARY, "round", SOFT)]), author="a", reason=f"for {CANARY}")
    made.edit(ecbm.Edit(correct_labels=[(CANARY, "crow"), ("s4", "crow")]))
    made.edit(ecbm.Edit(add_concepts={"new": {CANARY: SOFT, **{f"s{i}": i % 2 for i in range(20, 30)}}}))
    made.undo()
    made.redo()
    made.undo()
    made.export(folder / "exports" / "one")
    (folder / "thumbnails").mkdir()
    (folder / "thumbnails" / f"{CANARY}.png").write_bytes(CANARY.encode())
    (folder / "cache").mkdir(exist_ok=True)
    (folder / "cache" / "training.safetensors").write_bytes(CANARY.encode())
    (folder / "unfinished" / "left").write_bytes(CANARY.encode())
    return made


def test_no_byte_of_the_erased_is_left(tmp_path):
    made = busy_workspace(tmp_path / "w", canary_data())
    assert hits(made.folder, *needles())
    weights = made.version(1).model["parts"]["concept_head"]
    result = made.erase([CANARY], author="dpo", reason="consent withdrawn")
    assert hits(made.folder, *needles()) == []
    assert not made.store.path(weights).exists()
    assert made.check() == {
        "ok": True, "problems": [], "notes": [], "checked": {"versions": 6, "ledger_entries": 10, "files": 8},
    }  # fmt: skip
    assert result["erased"] == 1
    assert any("elsewhere" in words or "read from" in words for words in result["not_reached"])
    last = made.entries()[0]
    assert (last["kind"], last["samples"], last["reason"]) == ("erase", 1, "consent withdrawn")


def test_the_erased_model_is_the_one_without_the_sample(tmp_path):
    data = canary_data()
    made = busy_workspace(tmp_path / "w", data)
    current = made.data()
    wanted = ecbm.Editor(made.model(), current).apply(ecbm.Edit(remove_samples=[CANARY]))
    made.erase([CANARY])
    assert made.model().fingerprint == wanted.model.fingerprint
    assert made.data() == wanted.data
    assert set(made.model().provenance.training) <= {"seconds", "deep_seconds", "concept_work", "label_work"}


def test_earlier_versions_are_gone_for_good(tmp_path):
    made = busy_workspace(tmp_path / "w", canary_data())
    made.erase([CANARY])
    with pytest.raises(ecbm.InputError, match="destroyed for good"):
        made.undo()
    with pytest.raises(ecbm.InputError, match="destroyed by an erasure"):
        made.model(1)
    with pytest.raises(ecbm.InputError, match="nothing to redo"):
        made.redo()
    with pytest.raises(ecbm.InputError, match="unknown sample id"):
        made.erase([CANARY])
    item = made.described([made.version(3)])[0]
    assert item["report"]["destroyed_by_erasure"]
    assert item["edit"] == {"correct_labels": [{"id": "s4", "label": "crow"}]}
    assert made.edit(EDITS["class labels"]())[0] == made.head


def test_nothing_in_the_records_tells_whose_record_it_was(tmp_path):
    """No fingerprint, digest or commitment that could be recomputed from the erased record is left."""
    made = busy_workspace(tmp_path / "w", canary_data())
    old = {made.data(v).fingerprint for v in range(5)} | {made.model(v).fingerprint for v in range(1, 5)}
    old |= {digest for (digest,) in rows(made.folder, "SELECT digest FROM objects")}
    made.erase([CANARY])
    kept = {digest for (digest,) in rows(made.folder, "SELECT digest FROM objects")}
    assert hits(made.folder, *(digest.encode() for digest in old - kept)) == []


def test_a_sample_that_was_removed_before_is_erased_from_history(tmp_path):
    made = busy_workspace(tmp_path / "w", canary_data())
    made.edit(ecbm.Edit(remove_samples=[CANARY]))
    model = made.model().fingerprint
    made.erase([CANARY])
    assert hits(made.folder, *needles()) == []
    assert made.model().fingerprint == model
    assert made.check()["ok"]


def test_a_class_that_only_the_erased_had_goes_too(tmp_path):
    made = Workspace.create(tmp_path / "w", canary_data(class_canary=True), RECIPE)
    made.train(RECIPE)
    result = made.erase([CANARY])
    assert hits(made.folder, *needles()) == []
    assert made.model().class_names == small_data().class_names
    assert result["report"]["method"] == "retrain"


def test_samples_of_any_split_and_without_a_model(tmp_path):
    data = canary_data()
    made = Workspace.create(tmp_path / "w", data, RECIPE)
    made.erase([CANARY])
    assert hits(made.folder, *needles()) == []
    made.train(RECIPE)
    for split in ("val", "test"):
        sample = made.data().split(split).ids[0]
        made.erase([sample])
        assert sample not in made.data().ids
    assert made.check()["ok"]


def test_pictures_and_what_is_written_in_them(tmp_path):
    drawn = pictures(80)
    folder = ecbm.write_dataset(drawn, tmp_path / "data")
    notes = PngImagePlugin.PngInfo()
    notes.add_text("patient", CANARY)
    first = drawn.split("train").ids[3]
    names = {line.split(",")[0]: line.split(",")[3] for line in (folder / "samples.csv").read_text().splitlines()}
    Image.open(folder / names[first]).save(folder / names[first], pnginfo=notes)
    for source in (ecbm.read_dataset(folder), drawn):
        made = Workspace.create(tmp_path / f"w{type(source.inputs).__name__}", source)
        pixels = source.inputs.raw([source.row(first)])[0].numpy().tobytes()
        encoded = io.BytesIO()
        Image.fromarray(source.inputs.raw([source.row(first)])[0].permute(1, 2, 0).numpy()).save(encoded, "PNG")
        assert hits(made.folder, CANARY.encode(), pixels[:64])
        made.erase([first])
        assert hits(made.folder, CANARY.encode(), pixels[:64], first.encode()) == []
        assert made.check()["ok"]
        assert torch.equal(made.data().x, source.select([r for r, i in enumerate(source.ids) if i != first]).x)


def test_ids_that_are_parts_of_others(tmp_path):
    made = trained_workspace(tmp_path / "w")
    made.edit(ecbm.Edit(correct_labels=[("s1", "crow"), ("s10", "crow")]), author="a", reason="s10 and s11")
    made.erase(["s1"])
    item = made.described([made.version(2)])[0]
    assert item["edit"] == {"correct_labels": [{"id": "s10", "label": "crow"}]}
    assert item["reason"] == "s10 and s11"


def test_a_reason_that_names_the_sample_is_refused(tmp_path):
    made = trained_workspace(tmp_path / "w")
    before = bytes_of(made.folder)
    with pytest.raises(ecbm.InputError, match="without the id"):
        made.erase(["s1"], author="a", reason="s1 asked for it")
    with pytest.raises(ecbm.InputError, match="unknown sample id"):
        made.erase(["s1", "nobody"])
    with pytest.raises(ecbm.InputError, match="method"):
        made.erase(["s1"], "ekfac")
    with pytest.raises(ecbm.InputError, match="no ids"):
        made.erase([])
    assert bytes_of(made.folder) == before


def test_an_erasure_that_was_interrupted_is_finished_by_the_next_command(tmp_path):
    made = busy_workspace(tmp_path / "w", canary_data())

    class Stopped(Exception):
        pass

    def stop(operation, what):
        # After the commit, before the bytes are destroyed; tidying up in the same process fails too.
        if operation in ("overwrite", "sqlite vacuum"):
            raise OSError(5, "stopped", what)

    durable.watch(stop)
    try:
        with pytest.raises(OSError, match="stopped"):
            made.erase([CANARY])
    finally:
        durable.watch(None)
    assert hits(made.folder, *needles())
    assert made.check()["ok"]
    assert hits(made.folder, *needles()) == []
    assert made.version().kind == "erase"


def test_exports_elsewhere_are_named(tmp_path):
    made = trained_workspace(tmp_path / "w")
    made.export(tmp_path / "w2")
    made.export(tmp_path / "w" / "exports" / "one")
    found = made.erase(["s1"])["not_reached"]
    assert f"a copy exported to {tmp_path / 'w2'}" in found
    assert not any(str(tmp_path / "w" / "exports") in words for words in found)
    assert (tmp_path / "w2").exists()
    assert not (tmp_path / "w" / "exports").exists()


def test_a_reader_in_the_way_delays_the_destruction_but_does_not_lose_it(tmp_path, monkeypatch):
    made = busy_workspace(tmp_path / "w", canary_data())
    monkeypatch.setattr("ecbm.keep.database._BUSY_MILLISECONDS", 50)
    reader = sqlite3.connect(made.folder / "records.sqlite", isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM ledger").fetchone()
    with pytest.raises(ecbm.EcbmError, match="ecbm check"):
        made.erase([CANARY])
    reader.close()
    assert made.check()["ok"]
    assert hits(made.folder, *needles()) == []


def test_what_stays_is_unharmed(tmp_path):
    data = tabular(9000, 300)
    made = Workspace.create(tmp_path / "w", data, RECIPE)
    chunks = made.version().data["chunks"]
    assert len(chunks) > 2
    made.erase(["s5"])
    after = made.version().data["chunks"]
    assert after[1:] == chunks[1:]
    assert made.data() == data.select([row for row in range(len(data)) if row != 5])
    assert Workspace(made.folder).counts()["versions"] == 2


def test_the_last_of_a_class_or_of_a_split(tmp_path):
    data = small_data()
    splits = ["val" if row == 0 else "train" if row < 30 else "test" for row in range(len(data))]
    labels = data.labels.clone()
    labels[labels == 2] = 0
    labels[[1, 35]] = 2  # one crow to train on, one to test
    made = Workspace.create(tmp_path / "w", data.replace(splits=splits, labels=labels), RECIPE)
    made.train(RECIPE)
    before = bytes_of(made.folder)
    with pytest.raises(ecbm.InputError, match=r"'crow' would be left without a training sample.*1 other sample"):
        made.erase(["s1"])
    with pytest.raises(ecbm.InputError, match="delete the workspace"):
        made.erase(made.data().split("train").ids)
    assert bytes_of(made.folder) == before
    assert made.erase(["s1", "s35"])["report"]["method"] == "retrain"
    assert made.model().class_names == ("finch", "wren")
    assert "val" in made.data().splits
    assert made.erase(["s0"])["report"]["method"] == "retrain"
    assert "val" not in made.data().splits
    assert made.check()["ok"]


def test_what_an_erasure_leaves_of_old_versions_is_still_guarded(tmp_path):
    made = trained_workspace(tmp_path / "w")
    made.edit(EDITS["class labels"]())
    made.erase(["s1"])
    connection = sqlite3.connect(made.folder / "records.sqlite")
    connection.execute(
        "UPDATE versions SET summary = replace(summary, 'corrected 2', 'corrected 3') WHERE version = 2"
    )
    connection.commit()
    connection.close()
    problems = [item["problem"] for item in made.check(repair=True)["problems"]]
    assert any("version 2: its record differs from the ledger" in text for text in problems)
