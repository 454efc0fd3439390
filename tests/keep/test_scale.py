"""A workspace with many versions and entries answers, an edit of it writes little; ``scale.py`` prints times."""

from __future__ import annotations

import json

import pytest
from attack_malformed import command
from scale import large_workspace, written_by_edit

from ecbm.keep.checking import check_workspace


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    return large_workspace(tmp_path_factory.mktemp("large") / "w", 2000, 1000, 10_000, width=8)


def test_the_whole_history_is_read(large):
    status, out, _ = command("log", large.folder, "--json")
    assert status == 0
    versions = [version["version"] for version in json.loads(out)["versions"]]
    assert versions == list(range(large.head, -1, -1))[:1000]
    assert len(versions) == 1000


@pytest.mark.parametrize("name", ["log", "show", "status"])
def test_history_is_shown_without_reading_an_array(large, name, monkeypatch):
    read = []
    monkeypatch.setattr("ecbm.keep.objects.ObjectStore.get", lambda _, digest: read.append(digest))
    for options in ([], ["--json"]):
        assert command(name, large.folder, *options)[0] == 0
    assert read == []


def test_an_edit_writes_only_what_changed(large):
    size, _ = written_by_edit(large)
    assert size < 10_000
    assert check_workspace(large.folder)["ok"]
