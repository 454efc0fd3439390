"""The scikit-learn front: scikit-learn's own checks, and what is ours."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import ecbm
from ecbm.sklearn import ConceptBottleneckClassifier


@parametrize_with_checks([ConceptBottleneckClassifier(), ConceptBottleneckClassifier(bottleneck="probabilities")])
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def tumours():
    data = ecbm.datasets.breast_cancer()
    y = np.array([data.class_names[label] for label in data.labels.tolist()])
    return data.x.numpy(), y, data.to_frame()[list(data.concept_names)]


def test_it_is_the_model_that_train_gives(tumours):
    X, y, concepts = tumours
    fitted = ConceptBottleneckClassifier().fit(X, y, concepts=concepts)
    data = ecbm.Dataset(
        [str(n) for n in range(len(X))], X, concepts.to_numpy(), y.tolist(), list(concepts), ["benign", "malignant"]
    )
    model = ecbm.train(data, backbone="linear")
    assert np.array_equal(fitted.predict_proba(X), np.asarray(model.class_probabilities(data.x)))
    assert np.array_equal(fitted.transform(X), np.asarray(model.concept_probabilities(data.x)))
    assert fitted.get_feature_names_out().tolist() == list(concepts)
    assert fitted.predict(X).tolist() == list(model.predict(data))


def test_an_edit_gives_a_new_estimator_equal_to_fitting_the_edited_labels(tumours):
    X, y, concepts = tumours
    fitted = ConceptBottleneckClassifier().fit(X, y, concepts=concepts)
    before = fitted.predict_proba(X)
    name = concepts.columns[0]
    wrong = 1 - concepts.iloc[3, 0]
    edited = fitted.edit(correct_concepts=[("3", name, wrong)])
    assert np.array_equal(fitted.predict_proba(X), before)
    again = ConceptBottleneckClassifier().fit(
        X, y, concepts=concepts.assign(**{name: [*concepts[name][:3], wrong, *concepts[name][4:]]})
    )
    assert np.abs(edited.predict_proba(X) - again.predict_proba(X)).max() < 1e-7
    assert np.abs(edited.predict_proba(X) - before).max() > 1e-6
    assert edited.edit_report_["certificate"] is not None
    removed = fitted.edit(ecbm.Edit(remove_samples=["5"]))
    assert len(removed.data_) == len(X) - 1


def test_it_is_cloned_and_cross_validated_with_its_concepts(tumours):
    X, y, concepts = tumours
    estimator = ConceptBottleneckClassifier(concept_l2=0.01, concept_types={"radius=large": "binary"})
    copied = clone(estimator)
    assert copied.get_params() == estimator.get_params()
    assert not hasattr(copied, "model_")
    scores = cross_val_score(clone(estimator), X, y, cv=3, params={"concepts": concepts})
    assert scores.min() > 0.9
    pipeline = make_pipeline(StandardScaler(), ConceptBottleneckClassifier())
    pipeline.fit(X, y, conceptbottleneckclassifier__concepts=concepts)
    assert pipeline.score(X, y) > 0.9
    search = GridSearchCV(ConceptBottleneckClassifier(), {"label_l2": [1e-3, 1.0]}, cv=2).fit(
        X, y, concepts=concepts
    )
    assert search.best_score_ > 0.9


def test_concepts_of_a_frame_may_have_types():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(80, 3))
    colour = np.array(["red", "blue", "green"])[X.argmax(1)]
    y = (X[:, 0] > 0).astype(int)
    fitted = ConceptBottleneckClassifier().fit(X, y, concepts=pd.DataFrame({"colour": colour}))
    assert fitted.data_.concept_types == {"colour": "categorical"}


def test_what_does_not_fit_is_refused_in_one_line():
    X, y = np.zeros((4, 2)), [0, 1, 0, 1]
    with pytest.raises(ecbm.InputError, match="3 rows for 4 samples"):
        ConceptBottleneckClassifier().fit(X, y, concepts=np.zeros((3, 1)))
    with pytest.raises(ecbm.InputError, match="2 names for 1 columns"):
        ConceptBottleneckClassifier(concept_names=["a", "b"]).fit(X, y, concepts=np.zeros((4, 1)))
