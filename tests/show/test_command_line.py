"""The command line: exit status 2 and one line for bad input, one object for --json, nothing else."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

import ecbm
from ecbm.show import cli
from kit import CONCEPTS, python, tabular

TABLE = "id,split,label,wing=blue,wing=red\na,train,finch,1,0\nb,train,wren,0,1\nc,test,wren,,0.5\n"


@pytest.fixture
def table(tmp_path):
    (tmp_path / "samples.csv").write_text(TABLE)
    np.save(tmp_path / "x.npy", np.zeros((3, 4), dtype=np.float32))
    return tmp_path / "samples.csv"


def assert_refused(result, *words):
    status, out, err = result
    assert status == 2
    assert out == ""
    assert err.startswith("ecbm: ")
    assert len(err.splitlines()) == 1, err
    for word in words:
        assert word in err


def test_version(run):
    assert run("--version") == (0, f"ecbm {ecbm.__version__}\n", "")


@pytest.mark.parametrize("arguments", [(), ("--help",), ("describe", "--help"), ("demo", "--help")])
def test_help_is_there(run, arguments):
    status, out, err = run(*arguments)
    assert status == 0
    assert "Usage: ecbm" in out
    assert err == ""


def test_describe_shows_what_a_dataset_holds(run, table):
    status, out, _ = run("describe", table, "--features", table.parent / "x.npy")
    assert status == 0
    assert "3 samples" in out
    assert "wing=blue" in out
    assert "33.3%" in out


def test_describe_as_json_is_one_object_and_nothing_else(run, table):
    status, out, err = run("describe", table, "--features", table.parent / "x.npy", "--json")
    found = json.loads(out)
    assert (status, err) == (0, "")
    assert out.count("\n") == 1
    assert found["samples"] == 3
    assert found["splits"] == {"train": 2, "test": 1}
    assert found["classes"] == {"finch": 1, "wren": 2}
    assert found["groups"] == {"wing": ["wing=blue", "wing=red"]}
    assert found["concepts"]["wing=red"] == {"mean": 0.5, "missing": 0.0}
    assert found["concepts"]["wing=blue"]["missing"] == pytest.approx(1 / 3)


def test_describe_reads_a_folder_that_was_written(run, tmp_path):
    data = tabular(20)
    ecbm.write_dataset(data, tmp_path / "data")
    status, out, _ = run("describe", tmp_path / "data", "--json")
    assert status == 0
    assert json.loads(out)["fingerprint"] == data.fingerprint
    assert set(json.loads(out)["concepts"]) == set(CONCEPTS)


def test_what_is_not_defined_is_null_in_json(run, table):
    table.write_text(TABLE.replace("1,0", ",0").replace("0,1", ",1"))
    _, out, _ = run("describe", table, "--features", table.parent / "x.npy", "--json")
    assert json.loads(out)["concepts"]["wing=blue"]["mean"] is None


@pytest.mark.parametrize("as_json", [(), ("--json",)])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("b,train", "a,train"), ("samples.csv", "duplicate id 'a'")),
        (("0,1\n", "0,1.5\n"), ("samples.csv", "wing=red", "1.5")),
        (("c,test,wren,,0.5\n", ""), ("x.npy", "3", "2")),
    ],
)
def test_bad_tables_are_refused_and_nothing_is_written(run, table, change, words, as_json):
    table.write_text(TABLE.replace(*change))
    before = sorted(table.parent.iterdir())
    assert_refused(run("describe", table, "--features", table.parent / "x.npy", *as_json), *words)
    assert sorted(table.parent.iterdir()) == before


def test_missing_files_are_refused(run, table):
    assert_refused(run("describe", "none.csv", "--features", table.parent / "x.npy"), "none.csv")
    assert_refused(run("describe", table, "--features", "none.npy"), "none.npy")
    table.write_text("id,label,image,round\na,finch,a.jpg,1\n")
    assert_refused(run("describe", table, "--images", "none.zip"), "none.zip")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("describes",), ("No such command 'describes'",)),
        (("describe",), ("Missing argument",)),
        (("describe", "a.csv", "--feature", "x"), ("--feature", "--features")),
        (("demo", "--seed", "many"), ("--seed",)),
        (("demo", "extra"), ("extra",)),
        (("--versio",), ("--versio",)),
    ],
)
def test_wrong_usage_is_one_line_too(run, arguments, words):
    assert_refused(run(*arguments), *words, "see 'ecbm --help'")


def test_errors_of_the_system_are_one_line(run, monkeypatch):
    def full(*_):
        raise PermissionError(13, "Permission denied", "/somewhere/index.html")

    monkeypatch.setattr("ecbm.show.demo.run_demo", full)
    assert_refused(run("demo"), "/somewhere/index.html", "Permission denied")


def test_a_mistake_in_the_program_is_not_hidden(monkeypatch):
    def broken(*_):
        raise RuntimeError("a bug")

    monkeypatch.setattr("ecbm.show.demo.run_demo", broken)
    monkeypatch.setattr(sys, "argv", ["ecbm", "demo"])
    with pytest.raises(RuntimeError, match="a bug"):
        cli.main()


def test_an_interrupt_ends_with_the_status_of_an_interrupt(run, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("ecbm.show.demo.run_demo", interrupted)
    status, out, err = run("demo")
    assert (status, out) == (130, "")
    assert "Traceback" not in err


def test_the_installed_command_is_this_one(table):
    done = python("-m", "ecbm.show.cli", "describe", table, "--features", "none.npy")
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
