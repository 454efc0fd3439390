"""Audits of a workspace: what they compute is kept, belongs to its data alone, and goes with an erasure."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ecbm
from ecbm.errors import EcbmError, InputError
from ecbm.keep import audit_crew, durable
from ecbm.keep.audit_crew import AuditCrew, Helper
from ecbm.keep.auditing import last_verdicts
from ecbm.keep.stored_references import FOLDER, StoredParts
from ecbm.keep.workspace import Workspace
from ecbm.verify.audit.asked import Asked
from kit import tabular

RECIPE = ecbm.Recipe(backbone="linear", concept_l2=1e-3)
FEW = {"references": 8, "samples": 20}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Version 1 is trained, version 2 has thirty samples removed, version 3 one label corrected."""
    folder = tmp_path_factory.mktemp("audited") / "ward"
    data = tabular(300, 30, seed=5)
    workspace = Workspace.create(folder, data, RECIPE)
    workspace.train()
    workspace.edit(ecbm.Edit(remove_samples=data.split("train").ids[:30]), "exact")
    workspace.edit(ecbm.Edit(correct_labels=[(data.split("train").ids[40], "crow")]), "exact")
    return folder


@pytest.fixture
def workspace(made: Path, tmp_path: Path) -> Workspace:
    return Workspace(shutil.copytree(made, tmp_path / "ward"))


def parts(workspace: Workspace) -> list[Path]:
    return sorted((workspace.folder / FOLDER).rglob("*.part"))


def text(result: dict[str, Any]) -> str:
    return json.dumps(result, sort_keys=True)


def test_every_version_is_verified_quickly_and_leaves_the_workspace_sound(workspace: Workspace) -> None:
    for number in (1, 2, 3):
        found = workspace.verify(version=number)
        assert found["verdict"] == "passed", found["why"]
        assert found["version"] == number
    assert workspace.verify(version=2)["controls"]["noop"]["caught"] is True
    with pytest.raises(InputError, match="has no model yet"):
        workspace.verify(version=0)
    checked = workspace.check()
    assert checked["ok"]
    assert checked["notes"] == []


def test_a_removal_is_audited_on_the_removed_samples_themselves(workspace: Workspace) -> None:
    found = workspace.verify("erasure", version=2, **FEW)
    assert found["audited"]["what"] == "edit"
    assert found["audited"]["forgotten"] == 20
    assert found["verdict"] == "passed", found["why"]
    assert found["controls"]["noop"]["caught"]
    assert not found["controls"]["retrain"]["caught"]
    # What is kept is used again: nothing is trained, and the result is the same to the byte.
    before = {path: path.stat().st_mtime_ns for path in parts(workspace)}
    assert len(before) == 8 + 3
    assert text(workspace.verify("erasure", version=2, **FEW)) == text(found)
    assert {path: path.stat().st_mtime_ns for path in parts(workspace)} == before
    assert last_verdicts(workspace, 2) == {"erasure": json.loads(text(found))}


def test_a_version_without_a_removal_is_refused_by_name_and_rehearsed_otherwise(workspace: Workspace) -> None:
    with pytest.raises(InputError, match=r"version 3 removed no training samples.*--forget random"):
        workspace.verify("erasure", version=3)
    found = workspace.verify("erasure", **FEW)
    assert found["audited"]["what"] == "rehearsal"
    assert found["audited"]["method"] == "exact"
    assert found["verdict"] in ("passed", "inconclusive")


def test_references_serve_every_method_and_no_other_data(workspace: Workspace) -> None:
    workspace.verify("erasure", forget="random", method="exact", **FEW)
    first = {path.name: path.stat().st_mtime_ns for path in parts(workspace)}
    workspace.verify("erasure", forget="random", method="hessian", **FEW)
    second = {path.name: path.stat().st_mtime_ns for path in parts(workspace)}
    assert set(second) - set(first) == {"edit-hessian.part"}
    assert all(second[name] == first[name] for name in first)
    folders = {path.parent for path in parts(workspace)}
    # One label later everything is computed again.
    sample = workspace.data().split("train").ids[3]
    workspace.edit(ecbm.Edit(correct_concepts=[(sample, "round", 0.25)]), "exact")
    workspace.verify("erasure", forget="random", method="exact", **FEW)
    assert len({path.parent for path in parts(workspace)} - folders) == 1


def test_a_part_of_other_data_or_a_damaged_one_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    one = StoredParts(tmp_path, {"data": "a", "seed": 0}, lambda: None)
    other = StoredParts(tmp_path, {"data": "b", "seed": 0}, lambda: None)
    one.put("p", {"x": np.arange(3.0)})
    found = one.get("p")
    assert found is not None
    assert (found["x"] == np.arange(3.0)).all()
    assert other.get("p") is None
    other.put("q", {"x": np.zeros(1)})
    shutil.copy(one.folder / "p.part", other.folder / "p.part")
    assert other.get("p") is None, "it says whose it is"
    content = bytearray((one.folder / "p.part").read_bytes())
    for place in range(0, len(content), 7):
        spoilt = bytes(content[:place]) + bytes([content[place] ^ 1]) + bytes(content[place + 1 :])
        (one.folder / "p.part").write_bytes(spoilt)
        assert one.get("p") is None
        assert not (one.folder / "p.part").exists()


def test_a_full_disk_keeps_no_part_and_stops_no_audit(workspace: Workspace) -> None:
    def full(operation: str, what: str) -> None:
        if FOLDER in what:
            raise OSError(28, "No space left on device")

    durable.watch(full)
    try:
        found = workspace.verify("erasure", version=2, **FEW)
    finally:
        durable.watch(None)
    assert found["verdict"] == "passed"
    assert not parts(workspace)


def test_shards_together_give_the_same_bytes_as_one_process(workspace: Workspace, tmp_path: Path) -> None:
    alone = Workspace(shutil.copytree(workspace.folder, tmp_path / "alone"))
    whole = alone.verify("erasure", version=2, **FEW)
    first = workspace.verify("erasure", version=2, shard="1/2", **FEW)
    assert first["verdict"] == "inconclusive"
    assert len(first["missing"]) == 5
    assert last_verdicts(workspace, 2) == {}
    workspace.verify("erasure", version=2, shard="2/2", **FEW)
    assert text(workspace.verify("erasure", version=2, **FEW)) == text(whole)
    assert [p.read_bytes() for p in parts(workspace)] == [p.read_bytes() for p in parts(alone)]


KILLED = """
import sys, os, signal
from ecbm.keep import durable
from ecbm.keep.workspace import Workspace
seen = 0
def watch(operation, what):
    global seen
    if operation == "rename" and what.endswith(".part"):
        seen += 1
        if seen == 5:
            os.kill(os.getpid(), signal.SIGKILL)
durable.watch(watch)
Workspace(sys.argv[1]).verify("erasure", version=2, references=8, samples=20)
"""


def test_an_audit_that_was_killed_goes_on_where_it_stopped(workspace: Workspace, tmp_path: Path) -> None:
    alone = Workspace(shutil.copytree(workspace.folder, tmp_path / "alone"))
    whole = alone.verify("erasure", version=2, **FEW)
    done = subprocess.run([sys.executable, "-c", KILLED, str(workspace.folder)], env=os.environ, check=False)
    assert done.returncode == -signal.SIGKILL
    before = {path: path.stat().st_mtime_ns for path in parts(workspace)}
    assert len(before) == 4
    assert text(workspace.verify("erasure", version=2, **FEW)) == text(whole)
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in before.items())
    assert not list((workspace.folder / FOLDER).rglob("*.draft"))


def test_an_erasure_destroys_references_and_verdicts_and_is_rehearsed_afterwards(workspace: Workspace) -> None:
    workspace.verify("erasure", version=2, **FEW)
    workspace.verify()
    from ecbm.keep.erasure_plan import plan_erasure

    victim = workspace.data().split("train").ids[5]
    assert FOLDER in plan_erasure(workspace, [victim])["folders"]
    workspace.erase([victim])
    assert not (workspace.folder / FOLDER).exists()
    found = workspace.verify("erasure", **FEW)
    assert found["audited"]["what"] == "rehearsal"
    assert any("erased for good" in words for words in found["limits"])
    assert workspace.verify()["verdict"] == "passed"
    assert workspace.check()["ok"]


def test_nothing_is_written_about_a_version_that_was_erased_meanwhile(workspace: Workspace) -> None:
    from ecbm.keep.auditing import _watch

    version = workspace.version(2)
    store = StoredParts(workspace.folder, {"data": "a"}, _watch(workspace, version))
    store.put("p", {"x": np.zeros(1)})
    workspace.erase([workspace.data().split("train").ids[5]])
    with pytest.raises(EcbmError, match="was erased while it was audited"):
        store.put("q", {"x": np.zeros(1)})
    assert not (workspace.folder / FOLDER).exists()


def test_weights_that_were_exchanged_under_the_same_record_are_caught(workspace: Workspace) -> None:
    class Doctored(Workspace):
        def model(self, number: Any = None) -> ecbm.ConceptBottleneck:
            model = super().model(number)
            with torch.no_grad():
                model.label_head.weight[0, 0] += 1e-3
            return model

    found = Doctored(workspace.folder).verify()
    assert found["verdict"] == "failed"
    assert "not the one in the ledger" in found["why"]
    assert "label head: gradient" in found["why"], "also where the ledger was made anew"


def test_named_samples_are_rehearsed_and_unknown_ones_refused(workspace: Workspace) -> None:
    ids = workspace.data().split("train").ids[:12]
    found = workspace.verify("erasure", ids=ids, references=4)
    assert (found["audited"]["forget"], found["audited"]["forgotten"]) == ("ids", 12)
    with pytest.raises(InputError, match="unknown sample id 'nobody'"):
        workspace.verify("erasure", ids=["nobody"])


def test_a_mixed_edit_is_audited_beside_a_model_with_its_other_changes(workspace: Workspace) -> None:
    ids = workspace.data().split("train").ids
    edit = ecbm.Edit(remove_samples=ids[:25], remove_concepts=["round"], correct_labels=[(ids[60], "wren")])
    number, _ = workspace.edit(edit, "exact")
    found = workspace.verify("erasure", version=number, references=8)
    assert found["audited"]["forgotten"] == 25
    assert found["differences"]["edit_minus_retrain"]["difference"] == pytest.approx(0, abs=1e-9)


def test_a_model_released_with_noise_is_held_against_its_record(tmp_path: Path) -> None:
    data = tabular(120, 6)
    recipe = ecbm.Recipe(backbone="linear", certified={"epsilon": 1.0, "delta": 1e-5})
    workspace = Workspace.create(tmp_path / "ward", data, recipe)
    workspace.train()
    workspace.edit(ecbm.Edit(remove_samples=data.split("train").ids[:5]), "exact")
    for number in (1, 2):
        found = workspace.verify(version=number)
        assert found["verdict"] == "passed", found["why"]
        assert "what training on this data gives" not in found["why"], "noise is on the heads"
    assert ecbm.verify(workspace.model(), workspace.data())["verdict"] == "inconclusive", "without a record"


def test_processes_together_give_the_same_bytes_as_one(workspace: Workspace, tmp_path: Path) -> None:
    alone = Workspace(shutil.copytree(workspace.folder, tmp_path / "alone"))
    whole = alone.verify("erasure", version=2, **FEW, processes=1)
    before = torch.get_num_threads()
    asked = Asked("erasure", **FEW)
    with AuditCrew(workspace, 2, asked, named=True) as crew:
        crew._start((2, 2))
        assert crew._others[0].wait() == 0, "a helper does what the others have left undone, and ends"
    assert [p.read_bytes() for p in parts(workspace)] == [p.read_bytes() for p in parts(alone)]
    shutil.rmtree(workspace.folder / FOLDER)
    assert text(workspace.verify("erasure", version=2, **FEW, processes=2)) == text(whole)
    assert torch.get_num_threads() == before


def test_other_processes_are_started_where_much_is_left_to_do_and_end_with_the_first(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_crew, "_cores", lambda: 3)
    with AuditCrew(workspace, 2, Asked("erasure", **FEW), named=True) as crew:
        crew.worked(1.0, 20)
        assert (crew.shard, crew._others) == (None, []), "twenty seconds are not worth it"
        crew.worked(1.0, 60)
        crew.worked(1.0, 59)
        assert (crew.shard, len(crew._others)) == ((1, 3), 2)
        assert all(other.poll() is None for other in crew._others)
    assert all(other.poll() is not None for other in crew._others)
    with AuditCrew(workspace, 2, Asked("erasure", **FEW, processes=1), named=True) as crew:
        crew.worked(100.0, 60)
        assert crew.shard is None
    with pytest.raises(SystemExit):
        Helper((2, 2), parent=-1).worked(1.0, 1)


def test_a_helper_that_fails_is_not_missed(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    with pytest.warns(UserWarning, match="1 of 1 helping processes ended early"):
        found = workspace.verify("erasure", version=2, **FEW, processes=2)
    assert found["verdict"] == "passed"
