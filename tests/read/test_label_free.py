"""Concepts without labels: calibrated on data where the truth is known, and dropped where nothing is to be seen."""

from __future__ import annotations

import numpy as np
import pytest

import ecbm
from ecbm.errors import InputError
from ecbm.read.label_free import calibrate, label_free_and_tell
from ecbm.verify.evaluate import expected_calibration_error

N, WIDTH, SEEN, UNSEEN = 1200, 48, 8, 3
NAMES = [f"c{number}" for number in range(SEEN + UNSEEN)]


def world(strength: float = 0.55, seed: int = 0):
    """Pictures that show concepts of different frequency, three of the concepts not at all; and the truth."""
    generator = np.random.default_rng(seed)
    texts = generator.normal(size=(SEEN + UNSEEN, WIDTH))
    truth = generator.random((N, SEEN)) < np.linspace(0.05, 0.85, SEEN)
    common = 2 * generator.normal(size=WIDTH)
    pictures = generator.normal(size=(N, WIDTH)) + strength * truth @ texts[:SEEN] + common
    return pictures, texts, truth


def error_of(soft, truth) -> float:
    import torch

    confidence = torch.tensor(np.maximum(soft, 1 - soft))
    correct = torch.tensor((soft >= 0.5) == truth)
    return float(expected_calibration_error(confidence, correct))


def test_soft_labels_are_calibrated_and_right():
    pictures, texts, truth = world()
    found = label_free_and_tell(pictures, texts, NAMES)
    soft = found.data.concepts.double().numpy()
    assert found.data.concept_names == tuple(NAMES[:SEEN])
    assert ((soft >= 0.5) == truth).mean() > 0.93
    for column in range(SEEN):
        assert error_of(soft[:, column], truth[:, column]) < 0.06
        assert abs(soft[:, column].mean() - truth[:, column].mean()) < 0.05
    # Not only right or wrong: some pictures are in between, and said to be.
    assert ((soft > 0.1) & (soft < 0.9)).mean() > 0.02


def test_concepts_that_nobody_can_see_are_dropped_and_said():
    pictures, texts, _ = world()
    with pytest.warns(UserWarning, match=r"nobody can see them in the data: c8 .* c9 .* c10"):
        data = ecbm.datasets.label_free(pictures, texts, NAMES)
    assert len(data.concept_names) == SEEN
    with pytest.raises(InputError, match="none of 3 concepts can be seen"):
        ecbm.datasets.label_free(pictures, texts[SEEN:], NAMES[SEEN:])


def test_one_bell_curve_is_no_concept_whatever_its_seed():
    draws = np.random.default_rng(1).normal(size=(400, 200))
    assert calibrate(draws).visible.mean() < 0.03
    assert not calibrate(np.ones((50, 2))).visible.any()


def test_scale_and_offset_of_similarities_make_no_difference():
    pictures, texts, _ = world()
    soft = label_free_and_tell(pictures, texts, NAMES).data.concepts
    again = label_free_and_tell(7 * pictures, 0.1 * texts, NAMES).data.concepts
    assert np.allclose(soft, again, atol=1e-5)


def test_held_out_pictures_do_not_calibrate():
    pictures, texts, _ = world()
    splits = ["train"] * 800 + ["test"] * 400
    first = label_free_and_tell(pictures, texts, NAMES, splits=splits)
    other = pictures.copy()
    other[800:] += np.random.default_rng(2).normal(size=(400, WIDTH))
    second = label_free_and_tell(other, texts, NAMES, splits=splits)
    assert np.array_equal(first.calibration.slope, second.calibration.slope)
    assert np.array_equal(first.data.concepts[:800], second.data.concepts[:800])


def test_a_handful_of_true_labels_corrects_soft_ones_by_the_same_edits():
    pictures, texts, truth = world()
    labels = ["both" if row[4] and row[5] else "not both" for row in truth]
    data = label_free_and_tell(pictures, texts, NAMES, labels).data
    model = ecbm.train(data)
    train = data.split("train")
    rows = [data.row(sample) for sample in train.ids[:20]]
    edit = ecbm.Edit(correct_concepts=[(data.ids[row], "c4", float(truth[row, 4])) for row in rows])
    result = ecbm.Editor(model, data).apply(edit)
    assert result.report["certificate"]["class_predictions_that_could_differ"] == 0
    known = {"c4": {data.ids[row]: float(truth[row, 4]) for row in rows}}
    given = label_free_and_tell(pictures, texts, NAMES, labels, known=known).data
    assert np.array_equal(given.concepts, result.data.concepts)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"concept_embeddings": np.ones((11, 3))}, "must come from one model"),
        ({"concepts": ["one"]}, "1 concept names for 11"),
        ({"concepts": ["one"] * 11}, "named twice"),
        ({"labels": ["x"]}, "1 labels for 1200"),
        ({"image_embeddings": np.full((20, WIDTH), np.nan)}, "row 1 is not finite"),
        ({"image_embeddings": np.zeros((20, WIDTH))}, "row 1 is all zeros"),
        ({"image_embeddings": np.ones((3, WIDTH))}, "needs 10 or more"),
        ({"concepts": "nowhere.txt"}, "cannot be read"),
    ],
)
def test_what_does_not_fit_is_refused(change, words):
    pictures, texts, _ = world()
    given = {"image_embeddings": pictures, "concept_embeddings": texts, "concepts": NAMES} | change
    with pytest.raises(InputError, match=words):
        ecbm.datasets.label_free(**given)
