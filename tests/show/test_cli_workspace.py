"""The workspace's commands, as a new user runs them in a row, and as a machine does."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import ecbm
from kit import python, tabular

COMMANDS = (
    "init", "train", "evaluate", "predict", "edit", "log", "show", "diff", "undo", "redo", "erase", "check",
    "export", "status", "suggest",
)  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(run, command):
    status, out, err = run(command, "--help")
    assert (status, err) == (0, "")
    assert f"Usage: ecbm {command}" in out
    assert "--json" in out


def test_commands_in_a_row_as_a_person(files, run):
    w = files / "w"
    source = ("--data", files / "samples.csv", "--features", files / "features.npy")
    for arguments, words in (
        (("init", w, *source, "--author", "anna"), "ecbm train"),
        (("status", w), "started with 60 samples"),
        (("train", w, "--backbone", "linear", "--seed", 3), "class accuracy"),
        (("evaluate", w), "concept accuracy"),
        (("predict", w, "s1", "--set", "color=red"), "s1"),
        (("edit", w, files / "edit.json", "--preview"), "nothing kept"),
        (("edit", w, files / "edit.json", "--reason", "second reading"), "version 2: corrected 1 concept label"),
        (("log", w), "second reading"),
        (("show", w), "certificate"),
        (("diff", w, 1, 2), "removed 1 sample"),
        (("undo", w), "version 2 → version 1"),
        (("redo", w), "version 1 → version 2"),
        (("edit", w, files / "again.json"), "added 1 concept"),
        (("log", w, "--operations"), "redo"),
        (("erase", w, "--ids", "s5", "s6", "--preview"), "destroys for good"),
        (("erase", w, "--ids", "s5", "s6", "--yes", "--reason", "withdrew consent"), "not reached:"),
        (("log", w), "destroyed by an erasure"),
        (("show", w, 2), "destroyed"),
        (("check", w), "sound"),
        (("export", w, files / "model"), "model.safetensors"),
    ):
        if arguments[-1] == files / "again.json":
            (files / "concepts.csv").write_text("id,new\n" + "".join(f"s{i},{i % 2}\n" for i in range(20, 40)))
            (files / "again.json").write_text('{"add_concepts": "concepts.csv"}')
        status, out, err = run(*arguments)
        assert (status, err) == (0, ""), arguments
        assert words in out, arguments
    assert ecbm.load(files / "model").concept_names[-1] == "new"


def test_machines_get_the_promised_shapes(workspace, files, machine):
    assert machine("status", workspace)["version"] == 1
    report = machine(
        "edit", workspace, files / "edit.json", "--method", "exact", "--reason", "why", "--author", "anna"
    )
    assert report["version"] == 2
    assert {"method", "seconds", "objective", "certificate", "not_covered", "drift"} <= set(report)
    log = machine("log", workspace)["versions"]
    assert [item["version"] for item in log] == [2, 1, 0]
    assert {"version", "parent", "time", "author", "reason", "edit", "report"} <= set(log[0])
    assert (log[0]["author"], log[0]["reason"], log[0]["parent"]) == ("anna", "why", 1)
    assert log[0]["edit"]["remove_samples"] == ["s3"]
    assert log[0]["report"]["method"] == "exact"
    assert machine("check", workspace)["ok"] is True
    assert machine("check", workspace)["problems"] == []
    metrics = machine("evaluate", workspace, "--split", "val")
    assert {"class_accuracy", "class_f1", "concept_accuracy", "concept_f1", "concept_auc", "ece"} <= set(metrics)
    assert machine("undo", workspace) == {"version": 1, "from": 2}
    assert machine("redo", workspace) == {"version": 2, "from": 1}
    assert machine("diff", workspace, "1", "head")["versions"] == [1, 2]
    assert machine("show", workspace, "2")["words"].startswith(
        "corrected 1 concept label of 1 sample; removed 1 sample"
    )
    erased = machine("erase", workspace, "--ids", "s5", "--yes")
    assert (erased["version"], erased["erased"]) == (3, 1)
    assert any(str(files / "samples.csv") in words for words in erased["not_reached"])
    assert machine("export", workspace, files / "model")["version"] == 3


def test_the_log_is_paged(workspace, files, machine):
    machine("edit", workspace, files / "edit.json")
    page = machine("log", workspace, "-n", "2")
    assert ([item["version"] for item in page["versions"]], page["next"]) == ([2, 1], 1)
    rest = machine("log", workspace, "-n", "2", "--before", page["next"])
    assert [item["version"] for item in rest["versions"]] == [0]
    assert "next" not in rest


def test_preview_changes_nothing_and_is_marked(workspace, files, machine):
    report = machine("edit", workspace, files / "edit.json", "--preview")
    assert (report["version"], report["preview"]) == (1, True)
    assert machine("status", workspace)["version"] == 1


def test_predictions_of_arrays_and_interventions(workspace, files, machine):
    np.save(files / "x.npy", np.zeros((3, 4), np.float32))
    found = machine("predict", workspace, files / "x.npy")["predictions"]
    assert len(found) == 3
    assert sum(found[0]["classes"].values()) == pytest.approx(1)
    set_by_hand = machine("predict", workspace, files / "x.npy", "--set", "size=big=1", "--set", "color=red")
    assert set_by_hand["set"] == {"size=big": 1.0, "color": "red"}
    assert set_by_hand["predictions"][0]["classes"] != found[0]["classes"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("init", "W"), "not empty"),
        (("init", "new"), "--data"),
        (("init", "new", "--builtin", "bird"), "did you mean 'birds'"),
        (("init", "new", "--builtin", "birds", "--backbone", "lineer"), "did you mean 'linear'"),
        (("init", "new", "--builtin", "birds", "--samples", "80", "--backbone", "linear"), "needs feature rows"),
        (("init", "new", "--data", "samples.csv"), "no inputs"),
        (("train", "none"), "no such folder"),
        (("train", "."), "not a workspace"),
        (("train", "W", "--epochs", "0"), "epochs"),
        (("evaluate", "W", "--split", "tests"), "did you mean 'test'"),
        (("predict", "W", "s1000"), "unknown sample id"),
        (("predict", "W", "none.npy"), "no such file"),
        (("predict", "W", "s1", "--set", "rund=1"), "did you mean 'round'"),
        (("predict", "W", "s1", "--set", "round"), "CONCEPT=VALUE"),
        (("edit", "W", "none.json"), "none.json"),
        (("edit", "W", "edit.json", "--method", "magic"), "unknown method"),
        (("edit", "W", "edit.json", "--budget", "-1"), "budget"),
        (("edit", "W", "edit.json", "--expect", "0"), "moved on since you looked"),
        (("show", "W", "9"), "unknown version"),
        (("diff", "W", "1", "x"), "not a version"),
        (("undo", "W"), "nothing to undo"),
        (("redo", "W"), "nothing to redo"),
        (("erase", "W", "--ids", "nobody"), "unknown sample id"),
        (("erase", "W", "--ids", "s1", "--yes", "--reason", "s1 asked"), "without the id"),
        (("erase", "W", "--ids", "s1"), "add --yes to do it, or --preview"),
        (("erase", "W"), "--ids"),
        (("export", "W", "W/objects"), "exports go to"),
        (("check", "none"), "no such folder"),
        (("check", "W", "1"), "add --replay"),
        (("check", "W", "--replay", "7"), "unknown version"),
    ],
)
@pytest.mark.parametrize("as_json", [(), ("--json",)])
def test_bad_input_is_one_line_and_changes_nothing(
    workspace, files, run, machine, monkeypatch, arguments, words, as_json
):
    monkeypatch.chdir(files)
    before = sorted((str(p), p.stat().st_mtime_ns) for p in files.rglob("*") if p.is_file() and p.name != "lock")
    status, out, err = run(*("w" + a[1:] if a.startswith("W") else a for a in arguments), *as_json)
    after = sorted((str(p), p.stat().st_mtime_ns) for p in files.rglob("*") if p.is_file() and p.name != "lock")
    assert (status, out) == (2, "")
    assert err.startswith("ecbm: ")
    assert len(err.splitlines()) == 1
    assert words in err
    assert after == before


def test_damage_is_reported_with_status_1(workspace, run):
    victim = next(p for p in (workspace / "objects").rglob("*") if p.is_file())
    content = bytearray(victim.read_bytes())
    content[-1] ^= 1
    victim.write_bytes(bytes(content))
    status, out, _ = run("check", workspace, "--json")
    found = json.loads(out)
    assert (status, found["ok"]) == (1, False)
    assert victim.name in found["problems"][0]["problem"]
    assert found["problems"][0]["repair"]


def test_versions_are_computed_again(workspace, files, run, machine):
    machine("edit", workspace, files / "edit.json")
    found = machine("check", workspace, "--replay")
    assert (found["ok"], found["problems"]) == (True, [])
    assert [(item["version"], item["same"]) for item in found["replayed"]] == [(0, None), (1, True), (2, True)]
    assert all(item["why"] for item in found["replayed"])
    some = machine("check", workspace, "--replay", "2")
    assert [item["version"] for item in some["replayed"]] == [2]
    status, out, _ = run("check", workspace, "--replay", "1", "2")
    assert status == 0
    assert "version 2: the same; computed again from version 1" in out
    assert "computed by ecbm" in run("show", workspace)[1]


def test_a_lost_seal_can_be_repaired(workspace, run):
    (workspace / "seal").unlink()
    assert run("check", workspace)[0] == 1
    assert run("check", workspace, "--repair")[0] == 0
    assert run("check", workspace)[0] == 0


def test_names_that_look_like_markup_are_shown_as_they_are(tmp_path, run):
    names = ["[red]round[/red]", "[bold", "plain"]
    ecbm.write_dataset(tabular(40, 4, concepts=names), tmp_path / "data")
    for arguments in (("init", tmp_path / "w", "--data", tmp_path / "data"), ("train", tmp_path / "w")):
        assert run(*arguments)[0] == 0
    assert "[red]round[/red]" in run("evaluate", tmp_path / "w")[1]


def test_looking_at_history_does_not_load_the_arrays_libraries():
    """Their import takes longer than the command; only the package's own front may load them."""
    code = (
        "import sys, types; package = types.ModuleType('ecbm'); package.__path__ = [sys.argv[1]]; "
        "sys.modules['ecbm'] = package; import ecbm.show.cli, ecbm.keep.workspace, ecbm.keep.undo; "
        "print([name for name in ('torch', 'pandas', 'sklearn', 'pyarrow') if name in sys.modules])"
    )
    done = python("-c", code, os.path.dirname(ecbm.__file__))
    assert done.stdout.strip() == "[]", done.stderr


def test_shell_completion_knows_the_commands():
    environment = os.environ | {"_ECBM_COMPLETE": "complete_bash", "COMP_WORDS": "ecbm er", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-c", "import sys; sys.argv = ['ecbm']; from ecbm.show.cli import main; main()"],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "erase" in done.stdout
