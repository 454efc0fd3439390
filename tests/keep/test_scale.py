"""A workspace with many versions and entries answers quickly, and an edit of it writes little."""

from __future__ import annotations

import time

import pytest
from attack_malformed import command
from scale import large_workspace, written_by_edit

from ecbm.keep.checking import check_workspace


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    return large_workspace(tmp_path_factory.mktemp("large") / "w", 2000, 1000, 10_000, width=8)


@pytest.mark.parametrize("name", ["log", "show", "status"])
def test_history_is_read_in_less_than_a_second(large, name):
    assert command(name, large.folder)[0] == 0
    started = time.process_time()
    assert command(name, large.folder, "--json")[0] == 0
    assert time.process_time() - started < 1


def test_an_edit_writes_only_what_changed(large):
    size, _ = written_by_edit(large)
    assert size < 10_000
    assert check_workspace(large.folder)["ok"]
