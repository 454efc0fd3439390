"""Facts are kept between processes, checked when read, dropped when of no use, and destroyed by an erasure."""

from __future__ import annotations

import json

import pytest
from workspace_kit import EDITS, trained_workspace

import ecbm
from ecbm.keep import facts
from ecbm.keep.workspace import Workspace


def fitted(report: dict) -> list[str]:
    """What an edit had to compute of what is kept."""
    return [name for name in report["seconds"] if name.startswith("fit") and "features" not in name]


@pytest.fixture
def workspace(tmp_path):
    return trained_workspace(tmp_path / "w")


def listed(workspace: Workspace) -> list[dict]:
    return [json.loads(path.read_text()) for path in sorted((workspace.folder / "cache").glob("facts-*.json"))]


def test_an_edit_in_a_new_process_computes_only_what_it_changes(workspace):
    for name in ("concept labels", "class labels"):
        _, report = Workspace(workspace.folder).edit(EDITS[name](), "exact")
        assert fitted(report) == []


def test_files_that_an_edit_leaves_as_they_are_are_shared(workspace):
    Workspace(workspace.folder).edit(EDITS["concept labels"](), "exact")
    first, second = listed(workspace)
    assert first["groups"]["preconditioner"] == second["groups"]["preconditioner"]
    assert first["groups"]["heads"] != second["groups"]["heads"]
    assert {item["root"] for item in (first, second)} == {1}


@pytest.mark.parametrize("harm", ["a byte", "cut short", "gone", "another list", "another format", "no list"])
def test_what_is_damaged_is_computed_again_with_the_same_result(workspace, harm):
    cache = workspace.folder / "cache"
    wanted = ecbm.Editor(workspace.model(), workspace.data()).apply(EDITS["concept labels"](), "exact")
    for path in cache.glob("*.facts"):
        content = path.read_bytes()
        if harm == "a byte":
            path.write_bytes(content[:-3] + bytes([content[-3] ^ 1]) + content[-2:])
        elif harm == "cut short":
            path.write_bytes(content[: len(content) // 2])
        elif harm == "gone":
            path.unlink()
    for path in cache.glob("facts-*.json"):
        if harm == "another list":
            path.write_text(f'{{"format": {facts._FORMAT}, "root": 1, "groups": ["heads"]}}')
        elif harm == "another format":
            path.write_text(path.read_text().replace(f'"format": {facts._FORMAT}', '"format": 99'))
        elif harm == "no list":
            path.write_text("not JSON")
    version, report = Workspace(workspace.folder).edit(EDITS["concept labels"](), "exact")
    assert fitted(report)
    assert Workspace(workspace.folder).model(version).fingerprint == wanted.model.fingerprint
    assert workspace.check()["ok"]


def test_facts_of_older_versions_are_dropped(workspace, monkeypatch):
    monkeypatch.setattr(facts, "_MOST_VERSIONS", 2)
    for name in ("concept labels", "class labels", "remove samples", "remove concepts"):
        Workspace(workspace.folder).edit(EDITS[name](), "exact")
    lists = listed(workspace)
    assert len(lists) == 2
    named = {f"{digest}.facts" for item in lists for digest in item["groups"].values()}
    assert {path.name for path in (workspace.folder / "cache").glob("*.facts")} == named


def test_an_erasure_destroys_all_facts(workspace):
    Workspace(workspace.folder).edit(EDITS["concept labels"](), "exact")
    assert listed(workspace)
    workspace.erase([workspace.data().split("train").ids[2]])
    assert not list(workspace.folder.rglob("*.facts"))
    assert not list(workspace.folder.rglob("facts-*.json"))


def test_a_full_disk_is_no_reason_to_refuse_an_edit(workspace, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(facts.durable, "replace_unflushed", full)
    version, _ = Workspace(workspace.folder).edit(EDITS["concept labels"](), "exact")
    assert version == 2
