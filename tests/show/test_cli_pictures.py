"""Pictures on the command line: a network by name, kept features, code of one's own that has to be allowed."""

from __future__ import annotations

import json

import pytest
from PIL import Image

import kit
import networks_kit
from ecbm import trust

OWN = "networks_kit:eye"


@pytest.fixture(autouse=True)
def nobody_is_trusted(monkeypatch):
    monkeypatch.setattr(trust, "_allowed", set())


@pytest.fixture
def files(tmp_path):
    """Birds as picture files with a table, and an edit."""
    birds = kit.pictures(80)
    networks_kit.write_pictures(tmp_path, birds)
    Image.new("RGB", (32, 32), (90, 120, 40)).save(tmp_path / "new.png")
    (tmp_path / "edit.json").write_text(json.dumps({"remove_samples": [birds.split("train").ids[0]]}))
    return tmp_path


def test_code_of_ones_own_runs_only_where_it_is_allowed(files, run, monkeypatch):
    w = files / "w"
    source = ("--data", files / "samples.csv", "--images", files / "images.zip")
    assert run("init", w, *source, "--backbone", OWN, "--frozen", "yes")[0] == 0
    status, _, err = run("train", w)
    assert status == 2
    assert "--trust networks_kit" in err
    assert run("train", w, "--trust", "networks_kit")[0] == 0
    monkeypatch.setattr(trust, "_allowed", set())
    # An edit needs no picture to go through the network, so it needs none of the code.
    status, out, err = run("edit", w, files / "edit.json")
    assert (status, err) == (0, "")
    assert "certificate: at most 0 more" in out
    status, _, err = run("predict", w, files / "new.png")
    assert status == 2
    assert err.count("\n") == 1
    assert "--trust networks_kit" in err
    status, out, err = run("predict", w, files / "new.png", "--trust=networks_kit")
    assert (status, err) == (0, "")
    assert "new.png" in out


def test_trust_without_a_module_is_bad_input(run):
    status, _, err = run("status", "w", "--trust")
    assert status == 2
    assert "--trust needs the module" in err


def test_naming_the_backbone_again_allows_it(files, run):
    w = files / "w"
    assert run("init", w, "--data", files / "samples.csv", "--images", files / "images.zip")[0] == 0
    status, out, err = run("train", w, "--backbone", OWN, "--frozen", "yes", "--layer", "first+norm")
    assert (status, err) == (0, "")
    assert f"{OWN} backbone, frozen" in out


def test_a_device_that_is_not_there_is_bad_input(files, run):
    w = files / "w"
    assert run("init", w, "--data", files / "samples.csv", "--images", files / "images.zip")[0] == 0
    status, _, err = run("train", w, "--backbone", OWN, "--frozen", "yes", "--device", "nonsense")
    assert status == 2
    assert "device 'nonsense' cannot be used here" in err
