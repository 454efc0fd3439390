"""The attacks on the workspace, in short; ``make torture`` runs them in full."""

from __future__ import annotations

import attack_syscalls
import pytest
from attack_faults import Case, run_faults
from attack_malformed import Malformed
from attack_others import run_editors, run_flips
from workspace_kit import OPERATIONS


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_fault_at_a_durable_step_leaves_the_old_state_or_the_new_one(tmp_path, name):
    case = Case(name, tmp_path)
    # A different set of steps for each operation: together they cover all kinds of steps.
    first = 1 + list(OPERATIONS).index(name) % 5
    for mode in ("twice", "fail", "full"):
        for at in range(first, case.steps + 1, max(1, case.steps // 3)):
            assert case.attack(at, mode) is None, (at, mode)


def test_the_last_steps_of_an_erasure(tmp_path):
    case = Case("erase", tmp_path)
    for at in range(case.steps - 9, case.steps + 1, 2):
        assert case.attack(at, "kill") is None, at


def test_faults_are_counted(tmp_path):
    tried, failures = run_faults(tmp_path, ["undo"], ["kill"], every=8)
    assert failures == []
    assert sum(tried.values()) >= 2


@pytest.mark.skipif(attack_syscalls.available() is not None, reason=str(attack_syscalls.available()))
def test_faults_inside_sqlite():
    found = attack_syscalls.run_syscalls(["undo"], ["kill", "fail"], every=14)
    assert found["failures"] == []
    assert sum(found["tried"].values()) >= 10


@pytest.mark.parametrize(("processes", "edits"), [(2, 8), (8, 8)])
def test_no_edit_is_lost_when_many_edit_at_once(tmp_path, processes, edits):
    assert run_editors(tmp_path / "w", processes, edits) == (edits, [])


def test_a_flipped_byte_is_found(tmp_path):
    assert run_flips(tmp_path, 60) == (60, [])


@pytest.fixture(scope="module")
def malformed(tmp_path_factory):
    return Malformed(tmp_path_factory.mktemp("malformed"), seed=1)


@pytest.mark.parametrize(("kind", "count"), [("edits", 120), ("tables", 30), ("datasets", 50), ("models", 150)])
def test_malformed_files_are_refused_in_one_line(malformed, kind, count):
    ended, failures = malformed.run(kind, count)
    assert failures == []
    assert ended[kind] == count
