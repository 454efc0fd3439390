"""With what every version was computed is in the ledger, and says nothing about who or where."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import platform
from pathlib import Path

import numpy
import pytest
import torch
from workspace_kit import EDITS, RECIPE, trained_workspace

import ecbm
from ecbm.keep import environment as facts
from ecbm.keep.environment import as_in, environment, obstacles, suspects
from ecbm.keep.workspace import Workspace


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    made = trained_workspace(tmp_path_factory.mktemp("environment") / "w")
    made.edit(EDITS["mixed"](), "ekfac", damping=0.25, relative=False)
    made.erase(["s1"])
    Workspace.create(made.folder.parent / "other", made.data(), RECIPE, model=made.model())
    return made


def test_every_kind_of_version_has_it(workspace):
    for made in (workspace, Workspace(workspace.folder.parent / "other")):
        for item in made.log():
            found = item["environment"]
            assert found["torch"] == torch.__version__
            assert found["numpy"] == numpy.__version__
            assert found["ecbm"] == ecbm.__version__
            assert found["threads"] == torch.get_num_threads()
            assert found["capability"] == torch.backends.cpu.get_cpu_capability()
            assert platform.machine() in found["machine"]


def test_it_names_no_user_host_or_folder(workspace):
    texts = [json.dumps([item["environment"], item["options"]]) for item in workspace.log()]
    names = {getpass.getuser(), platform.node(), str(Path.home()), os.getcwd(), str(workspace.folder), "/"}
    for text in texts:
        assert not [name for name in names if len(name) > 2 and name in text]
        assert "/" not in text


def test_what_the_computation_was_given_is_recorded(workspace):
    options = {item["version"]: item["options"] for item in workspace.log()}
    assert options[0] == {}
    assert options[1] == {"recipe": RECIPE.to_dict()}
    assert options[2] == {"method": "ekfac", "damping": 0.25, "relative": False}
    assert options[3] == {"method": "auto"}


def test_here_nothing_differs():
    assert obstacles(environment()) == []
    assert suspects(environment()) == []
    assert json.loads(json.dumps(environment())) == environment()


@pytest.mark.parametrize("name", ["ecbm", "torch", "numpy", "scipy", "machine", "capability", "processes"])
def test_what_is_decisive_is_an_obstacle(name):
    (words,) = obstacles(environment() | {name: "another"})
    assert "another" in words
    assert str(environment()[name]) in words


@pytest.mark.parametrize("name", ["code", "python", "processor", "blas"])
def test_what_may_be_without_effect_is_only_suspected(name):
    assert obstacles(environment() | {name: None}) == []
    assert len(suspects(environment() | {name: None})) == 1


def test_the_number_of_threads_is_set_for_the_time_being():
    before = torch.get_num_threads()
    recorded = environment() | {"threads": before + 2}
    with contextlib.suppress(ZeroDivisionError), as_in(recorded):
        assert torch.get_num_threads() == before + 2
        raise ZeroDivisionError
    assert torch.get_num_threads() == before


def test_a_changed_line_of_code_that_computes_changes_the_digest(tmp_path, monkeypatch):
    import shutil

    copied = Path(shutil.copytree(Path(ecbm.__file__).parent, tmp_path / "ecbm"))
    monkeypatch.setattr(facts, "__file__", str(copied / "keep" / "environment.py"))
    first = facts._code_digest()
    (copied / "show" / "page.py").write_text("# another page\n")
    assert facts._code_digest() == first
    with (copied / "train" / "train.py").open("a") as file:
        file.write("# another remark\n")
    assert facts._code_digest() != first
