"""``ecbm train`` under torchrun: the processes share the pictures, and the workspace gets one version."""

from __future__ import annotations

import os
import sys

import numpy as np
import pytest
import torch

import ecbm
import kit
import networks_kit
from ecbm.keep.stored_features import FOLDER, open_features
from ecbm.keep.workspace import Workspace
from ecbm.read.digests import RowDigests
from ecbm.train.extraction import seen_through

pytestmark = pytest.mark.xdist_group("processes")

PICTURES = 150  # more than one round of two processes' batches


@pytest.fixture(scope="module")
def data():
    return kit.pictures(PICTURES)


@pytest.fixture(scope="module")
def trained(tmp_path_factory, data):
    """A workspace after ``ecbm train`` by two processes, and what they printed."""
    folder = tmp_path_factory.mktemp("processes") / "ward"
    Workspace.create(folder, data, networks_kit.own())
    paths = os.pathsep.join(path for path in sys.path if path)
    done = kit.python(
        *kit.torchrun(2), "-m", "ecbm.show.cli", "train", folder, "--trust", "networks_kit", PYTHONPATH=paths
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder, done.stdout


def test_one_version_comes_of_it_and_one_process_speaks(trained):
    folder, said = trained
    assert [line.partition(":")[0] for line in said.splitlines()] == ["version 1", "on val"]
    workspace = Workspace(folder, trust=["networks_kit"])
    assert workspace.head == 1
    assert workspace.check()["ok"]


def test_every_feature_is_computed_and_kept_once(trained, data):
    folder, _ = trained
    model = Workspace(folder, trust=["networks_kit"]).model()
    rows = open_features(folder, model.front)
    digests = RowDigests.of(data.row_digests)
    unique = len(np.unique(digests.table, axis=0))
    (index,) = (folder / FOLDER).glob("*.index")
    assert index.stat().st_size == 32 * unique == 32 * len(rows)
    kept, found = rows.fetch(digests)
    assert found.all()
    with torch.no_grad():
        assert torch.allclose(kept, networks_kit.eye().eval()(data.x), atol=1e-5)


def test_it_is_the_model_of_one_process(trained, data):
    folder, _ = trained
    model, alone = Workspace(folder, trust=["networks_kit"]).model(), ecbm.train(data, networks_kit.own())
    for part in ("concept_head", "label_head"):
        a, b = (getattr(one, part).weight for one in (model, alone))
        assert (a - b).abs().max() < 1e-6
    assert seen_through(model.front, data).inputs.missing().size == 0


def test_an_edit_afterwards_is_certified(trained, data):
    folder, _ = trained
    edit = ecbm.Edit(remove_samples=data.split("train").ids[:2])
    report = Workspace(folder, trust=["networks_kit"]).preview(edit)
    assert report["certificate"]["class_predictions_that_could_differ"] == 0
