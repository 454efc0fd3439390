"""Every snippet of the README and of the guides runs as it stands there, every link leads somewhere, and examples
in the program's own documentation are right.
"""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
import shlex
import sys
import warnings

import pytest

import ecbm
from ecbm.show import cli
from snippets_kit import EXCEPTED, FILES, GUIDES, PRINTED, ROOT, blocks, excepted, smaller

KNOWN = {"python", "sh", "json", "csv", "text"}
RUNNING = [guide for guide in GUIDES if any(block.language in ("python", "sh") for block in blocks(guide))]


def commands(text: str) -> list[list[str]]:
    """The commands of a block of shell, one after another."""
    found = []
    for line in text.splitlines():
        words, command = shlex.split(line, comments=True), []
        for word in words:
            if word == "&&":
                found.append(command)
                command = []
            else:
                command.append(word)
        if command:
            found.append(command)
    return found


@pytest.mark.parametrize("guide", RUNNING)
def test_the_snippets_of_a_guide_run_in_a_row(guide, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    if guide in FILES:
        FILES[guide](tmp_path)
    names: dict[str, object] = {}
    printed = ""
    for block in blocks(guide):
        if block.language == "python":
            code = "\n" * (block.line - 1) + smaller(block.text)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # faces of the miniature archive are left out
                exec(compile(code, guide, "exec"), names)
        elif block.language == "sh":
            for command in commands(smaller(block.text)):
                if excepted(" ".join(command)):
                    continue
                assert command[0] == "ecbm", f"{guide}: {command[0]} is neither run nor excepted"
                monkeypatch.setattr(sys, "argv", command)
                with pytest.raises(SystemExit) as stopped:
                    cli.main()
                out, err = capsys.readouterr()
                assert (int(stopped.value.code or 0), err) == (0, ""), (guide, command)
                assert out, command
        printed += capsys.readouterr().out
    for line in PRINTED.get(guide, []):
        assert line in printed


@pytest.mark.parametrize("guide", GUIDES)
def test_blocks_are_of_a_kind_that_is_checked(guide):
    assert {block.language for block in blocks(guide)} <= KNOWN


def test_every_exception_is_needed_and_has_its_reason():
    lines = [" ".join(c) for g in GUIDES for b in blocks(g) if b.language == "sh" for c in commands(b.text)]
    text = "\n".join((ROOT / guide).read_text(encoding="utf-8") for guide in GUIDES)
    for name, why in EXCEPTED.items():
        assert any(line.startswith(name) for line in lines) or f"`{name}" in text, name
        assert len(why.split()) > 3
    assert not excepted("ecbm init")
    assert not excepted("makefile")
    assert not excepted("pipe")


@pytest.mark.parametrize("guide", GUIDES)
def test_links_lead_somewhere(guide):
    text = (ROOT / guide).read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)", text):
        path, _, anchor = target.partition("#")
        page = (ROOT / guide).parent / path if path else ROOT / guide
        assert page.exists(), target
        if anchor:
            titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in [re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles], target


def test_the_readme_is_short():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 95
    assert text.count("![") == 5  # a walk, three screens of the page, and what it reaches
    assert len(re.findall(r"^\|[-: |]+\|$", text, re.MULTILINE)) == 2  # the screens, and one result
    assert re.search(r"^pip install \.", text, re.MULTILINE)


def test_every_guide_is_reached_from_the_readme():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for guide in GUIDES:
        assert guide == "README.md" or f"({guide})" in text, guide


MODULES = sorted(
    found.name for found in pkgutil.walk_packages(ecbm.__path__, "ecbm.") if not found.name.endswith("__main__")
)


def test_the_examples_in_docstrings_are_right():
    tried = 0
    for name in MODULES:
        outcome = doctest.testmod(importlib.import_module(name))
        assert not outcome.failed, name
        tried += outcome.attempted
    assert tried > 50
