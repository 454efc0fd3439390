"""``ecbm init`` of concepts without labels."""

from __future__ import annotations

import numpy as np
import pytest

from ecbm.keep.workspace import Workspace


@pytest.fixture
def embeddings(tmp_path):
    generator = np.random.default_rng(0)
    # At right angles: what shows one concept then says nothing of another, and nothing shows the last.
    texts = 5 * np.linalg.qr(generator.normal(size=(32, 32)))[0][:4]
    truth = generator.random((400, 3)) < 0.4
    np.save(tmp_path / "I.npy", generator.normal(size=(400, 32)) + truth @ texts[:3])
    np.save(tmp_path / "T.npy", texts)
    (tmp_path / "names.txt").write_text("striped\ncrest\nlong bill\nunicorn\n")
    rows = [f"b{n},{'jay' if row[0] else 'robin'},{int(row[1]) if n < 5 else ''}" for n, row in enumerate(truth)]
    (tmp_path / "birds.csv").write_text("\n".join(["id,label,crest", *rows]) + "\n")
    options = ("--image-embeddings", "I.npy", "--concept-embeddings", "T.npy", "--concepts", "names.txt")
    return [str(tmp_path / word) if "." in word else word for word in options], truth


def test_embeddings_alone_make_a_workspace(embeddings, tmp_path, run, machine):
    options, _ = embeddings
    status, out, err = run("init", tmp_path / "ward", *options)
    assert (status, err) == (0, "")
    assert "3 of 4 concepts can be seen" in out
    assert "dropped, since nobody can see them in the data: unicorn" in out
    assert "--data" in out
    assert machine("train", tmp_path / "ward")["version"] == 1


def test_classes_and_true_labels_come_from_a_table(embeddings, tmp_path, machine):
    options, truth = embeddings
    made = machine("init", tmp_path / "ward", "--data", tmp_path / "birds.csv", *options)
    assert (made["classes"], made["concepts"]) == (2, 3)
    data = Workspace(tmp_path / "ward").data()
    assert data.concepts[:5, 1].tolist() == truth[:5, 1].astype(float).tolist()
    soft = data.concepts[5:, 1]
    assert bool(((soft > 0) & (soft < 1)).float().mean() > 0.9)
    assert data.ids[0] == "b0"


def test_half_of_the_options_is_refused(embeddings, tmp_path, run):
    options, _ = embeddings
    status, _, err = run("init", tmp_path / "ward", *options[:2])
    assert (status, err.count("\n")) == (2, 1)
    assert "--concept-embeddings" in err
    status, _, err = run("init", tmp_path / "ward", *options, "--builtin", "birds")
    assert status == 2
    assert not (tmp_path / "ward").exists()
