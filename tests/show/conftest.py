"""What the tests of the command line share."""

from __future__ import annotations

import sys

import pytest

from ecbm.show import cli


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
