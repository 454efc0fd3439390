"""What the tests of the command line share."""

from __future__ import annotations

import json
import os
import pty
import sys

import pytest

import ecbm
from ecbm.show import cli
from kit import tabular


@pytest.fixture
def run(monkeypatch, capsys):
    """Run the command in this process; returns status, output and error output."""

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["ecbm", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        out = capsys.readouterr()
        return int(stopped.value.code or 0), out.out, out.err

    return run


@pytest.fixture
def machine(run):
    """Run the command with ``--json``; returns the object."""

    def machine(*arguments: object) -> dict:
        status, out, err = run(*arguments, "--json")
        assert (status, err) == (0, "")
        assert out.count("\n") == 1
        return json.loads(out)

    return machine


@pytest.fixture
def files(tmp_path):
    """A table with features and an edit file."""
    ecbm.write_dataset(tabular(60, 4), tmp_path / "data")
    os.rename(tmp_path / "data" / "samples.csv", tmp_path / "samples.csv")
    os.rename(tmp_path / "data" / "features.npy", tmp_path / "features.npy")
    content = {"correct_concepts": [{"id": "s1", "concept": "round", "value": 1}], "remove_samples": ["s3"]}
    (tmp_path / "edit.json").write_text(json.dumps(content))
    return tmp_path


@pytest.fixture
def workspace(files, machine):
    machine("init", files / "w", "--data", files / "samples.csv", "--features", files / "features.npy")
    machine("train", files / "w")
    return files / "w"


@pytest.fixture
def terminal():
    """Run the command in a terminal of its own; returns status and everything it showed."""

    def run_in_terminal(*arguments: object, answer: str = "", **environment: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "ecbm.show.cli", *map(str, arguments)]
        # COLUMNS would be taken for the width of the terminal everywhere, and CI may set colours off.
        clean = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
        child, screen = pty.fork()
        if child == 0:
            os.execve(sys.executable, command, clean | {"TERM": "xterm-256color"} | environment)
        if answer:
            os.write(screen, answer.encode())
        shown = b""
        while True:
            try:
                piece = os.read(screen, 65536)
            except OSError:  # how Linux says that the other side of a terminal is closed
                break
            if not piece:
                break
            shown += piece
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os.close(screen)
        return status, shown.decode(errors="replace").replace("\r\n", "\n")

    return run_in_terminal
