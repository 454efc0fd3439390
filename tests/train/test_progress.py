"""Progress goes to standard error, with losses and the time left."""

from __future__ import annotations

import re
import sys

import pytest

import ecbm
from ecbm import progress as module
from ecbm.progress import progress, silence
from kit import tabular


@pytest.fixture
def talking(monkeypatch):
    silence(False)
    yield
    silence(True)


def test_a_log_gets_a_line_with_count_loss_and_time_left(talking, monkeypatch, capsys):
    monkeypatch.setattr(module, "_PLAIN_AFTER_SECONDS", -1.0)
    monkeypatch.setattr(module, "_PLAIN_EVERY_SECONDS", -1.0)
    ecbm.train(tabular(60), ecbm.Recipe(backbone="mlp", epochs=3))
    out = capsys.readouterr()
    assert out.out == ""
    lines = out.err.splitlines()
    assert len(lines) == 3
    assert re.fullmatch(r"Training concepts: 2/3  loss [\d.]+  val_loss [\d.]+  about \d+ s left", lines[1])


def test_a_short_task_says_nothing_in_a_log(talking, capsys):
    ecbm.train(tabular(60), ecbm.Recipe(backbone="mlp", epochs=2))
    assert capsys.readouterr() == ("", "")


def test_a_terminal_gets_a_bar(talking, monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress("Counting", 2) as bar:
        bar.advance(loss=0.5)
        bar.advance(loss=0.25)
    out = capsys.readouterr()
    assert out.out == ""
    assert "Counting" in out.err


def test_a_bar_inside_another_stands_below_it(talking, monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress("Replaying", 2) as outer:
        for _ in range(2):
            with progress("Training", 1) as inner:
                inner.advance(loss=0.5)
                assert [task.description for task in module._display.tasks] == ["Replaying", "Training"]
            assert [task.description for task in module._display.tasks] == ["Replaying"]
            outer.advance()
    assert module._display is None
    assert "Replaying" in capsys.readouterr().err


def test_time_left_counts_only_what_was_done_since_resuming(talking, monkeypatch, capsys):
    monkeypatch.setattr(module, "_PLAIN_AFTER_SECONDS", -1.0)
    monkeypatch.setattr(module, "_PLAIN_EVERY_SECONDS", -1.0)
    clock = iter([0.0, 10.0])
    monkeypatch.setattr(module.time, "monotonic", lambda: next(clock))
    with progress("Training", 100, done=98) as bar:
        bar.advance()
    assert "99/100" in (text := capsys.readouterr().err)
    assert "about 10 s left" in text


@pytest.mark.parametrize("setting", ["silenced", "another process"])
def test_only_the_first_process_talks_and_only_if_asked(talking, monkeypatch, capsys, setting):
    monkeypatch.setattr(module, "_PLAIN_AFTER_SECONDS", -1.0)
    monkeypatch.setattr(module, "_PLAIN_EVERY_SECONDS", -1.0)
    if setting == "silenced":
        silence()
    else:
        monkeypatch.setenv("RANK", "1")
    with progress("Training", 1) as bar:
        bar.advance()
    assert capsys.readouterr() == ("", "")
