"""A concept bottleneck as a scikit-learn classifier, for pipelines and cross-validation.

>>> import numpy, ecbm
>>> from sklearn.model_selection import cross_val_score
>>> from ecbm.sklearn import ConceptBottleneckClassifier
>>> data = ecbm.datasets.breast_cancer()
>>> X, y, C = data.x.numpy(), data.labels.numpy(), data.concepts.numpy()
>>> classifier = ConceptBottleneckClassifier(concept_names=list(data.concept_names)).fit(X, y, concepts=C)
>>> bool(classifier.score(X, y) > 0.9)
True
>>> bool(cross_val_score(ConceptBottleneckClassifier(), X, y, cv=3, params={"concepts": C}).min() > 0.9)
True
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from ecbm.edit.edit import Edit
from ecbm.edit.editor import Editor
from ecbm.errors import InputError
from ecbm.read.dataset import Dataset
from ecbm.read.reading import Asked, read_and_tell
from ecbm.train.recipe import Recipe
from ecbm.train.train import train

__all__ = ["ConceptBottleneckClassifier"]


class ConceptBottleneckClassifier(ClassifierMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A concept bottleneck model of feature rows.

    Parameters
    ----------
    backbone
        ``"linear"`` (the features as they are: both heads are convex and solved exactly) or ``"mlp"``.
    regime, bottleneck, hidden, epochs, concept_l2, label_l2, pos_weight
        As in :class:`ecbm.Recipe`; ``None`` takes its default.
    concept_names
        Names of the columns of ``concepts``, where it is an array; a DataFrame brings its own.
    concept_types
        From concepts to types, as ``types`` of :func:`ecbm.read_dataset`.
    random_state
        Seed.

    Attributes
    ----------
    classes_
        The classes.
    model_
        The :class:`ecbm.ConceptBottleneck`.
    data_
        The :class:`ecbm.Dataset` it was fitted on, which edits refer to.
    edit_report_
        The report of the edit that made this estimator; only after :meth:`edit`.

    Examples
    --------
    >>> import numpy
    >>> X = numpy.random.default_rng(0).normal(size=(60, 4))
    >>> concepts = (X[:, :2] > 0).astype(float)
    >>> y = numpy.where(concepts.all(1), "both", "not both")
    >>> classifier = ConceptBottleneckClassifier(concept_names=["a", "b"]).fit(X, y, concepts=concepts)
    >>> classifier.predict(X[:2]).tolist() == y[:2].tolist(), classifier.transform(X).shape
    (True, (60, 2))
    >>> corrected = classifier.edit(correct_concepts=[("0", "a", 1 - concepts[0, 0])])
    >>> corrected.edit_report_["certificate"]["class_predictions_that_could_differ"]
    0
    """

    def __init__(
        self,
        backbone: str = "linear",
        *,
        regime: str | None = None,
        bottleneck: str | None = None,
        hidden: Sequence[int] | None = None,
        epochs: int | None = None,
        concept_l2: float | None = None,
        label_l2: float | None = None,
        pos_weight: Any = None,
        concept_names: Sequence[str] | None = None,
        concept_types: Mapping[str, str] | None = None,
        random_state: int = 0,
    ) -> None:
        self.backbone = backbone
        self.regime = regime
        self.bottleneck = bottleneck
        self.hidden = hidden
        self.epochs = epochs
        self.concept_l2 = concept_l2
        self.label_l2 = label_l2
        self.pos_weight = pos_weight
        self.concept_names = concept_names
        self.concept_types = concept_types
        self.random_state = random_state

    def fit(
        self, X: Any, y: Any, concepts: Any = None, ids: Sequence[str] | None = None
    ) -> ConceptBottleneckClassifier:
        """Train on all rows.

        Parameters
        ----------
        X
            (n, d) features.
        y
            (n,) classes.
        concepts
            (n, k) concept labels: 0, 1, between, or NaN for missing; or a DataFrame, whose columns may be of every
            type that :func:`ecbm.read_dataset` knows. Without them each class is its own concept, and the model is
            a plain linear classifier.
        ids
            Names of the rows, for edits; ``"0"``, ``"1"``, … by default.
        """
        X, y = validate_data(self, X, y, dtype="numeric", y_numeric=False)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"the training data has one class only ({self.classes_[0]!r}); two or more are needed")
        names = _class_names(self.classes_)
        rows = [str(number) for number in range(len(X))] if ids is None else [str(name) for name in ids]
        labels = [names[code] for code in codes]
        bare = concepts is None
        self.data_ = self._dataset(X, codes, labels, names, rows, concepts)
        with warnings.catch_warnings():
            if bare:
                # That concepts repeat the classes is what was asked for.
                warnings.simplefilter("ignore")
            self.model_ = train(self.data_, self._recipe())
        return self

    def _recipe(self) -> Recipe:
        fields = {
            "regime": self.regime, "bottleneck": self.bottleneck, "epochs": self.epochs,
            "concept_l2": self.concept_l2, "label_l2": self.label_l2, "pos_weight": self.pos_weight,
            "hidden": None if self.hidden is None else tuple(self.hidden),
        }  # fmt: skip
        given = {name: value for name, value in fields.items() if value is not None}
        return Recipe(backbone=self.backbone, seed=int(self.random_state), **given)

    def _dataset(
        self, X: Any, codes: NDArray[np.int64], labels: list[str], names: list[str], ids: list[str], concepts: Any
    ) -> Dataset:
        inputs = torch.from_numpy(np.ascontiguousarray(X, np.float32))
        if concepts is None:
            onehot = np.eye(len(names), dtype=np.float32)[codes]
            return Dataset(ids, inputs, onehot, codes, [f"class={name}" for name in names], names)
        table = self._concept_table(concepts, len(ids))
        table.insert(0, "\0label", labels)
        table.insert(0, "\0id", ids)
        asked = Asked(
            features=inputs, splits=(1.0, 0.0, 0.0), id_column="\0id", label_column="\0label",
            split_column="\0split", image_column="\0image", types=self.concept_types,
            label_type="class",
        )  # fmt: skip
        data = read_and_tell(table, asked).data
        order = [data.class_names.index(name) for name in names]
        return data.replace(labels=torch.from_numpy(np.argsort(order)[data.labels.numpy()]), class_names=names)

    def _concept_table(self, concepts: Any, count: int) -> Any:
        import pandas

        if hasattr(concepts, "columns"):
            table = pandas.DataFrame(concepts).reset_index(drop=True)
        else:
            array = np.asarray(concepts)
            array = array[:, None] if array.ndim == 1 else array
            if array.ndim != 2:
                raise InputError(f"concepts: shape {array.shape}; give one row a sample and one column a concept")
            names = self.concept_names
            names = [f"concept{column}" for column in range(array.shape[1])] if names is None else list(names)
            if len(names) != array.shape[1]:
                raise InputError(f"concept_names: {len(names)} names for {array.shape[1]} columns of concepts")
            table = pandas.DataFrame(array, columns=[str(name) for name in names])
        if len(table) != count:
            raise InputError(f"concepts: {len(table)} rows for {count} samples; give one row a sample")
        return table

    def _rows(self, X: Any) -> torch.Tensor:
        check_is_fitted(self, "model_")
        X = validate_data(self, X, dtype="numeric", reset=False)
        return torch.from_numpy(np.ascontiguousarray(X, np.float32))

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """(n, classes) probabilities, in the order of ``classes_``."""
        rows = self._rows(X)
        return np.asarray(self.model_.class_probabilities(rows), np.float64)

    def predict(self, X: Any) -> NDArray[Any]:
        """(n,) the most likely classes."""
        likeliest = self.predict_proba(X).argmax(1)
        return np.asarray(self.classes_[likeliest])

    def transform(self, X: Any) -> NDArray[np.float64]:
        """(n, k) what the model sees: concept probabilities, and values of continuous concepts."""
        rows = self._rows(X)
        return np.asarray(self.model_.concept_probabilities(rows), np.float64)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Names of the columns of :meth:`transform`."""
        check_is_fitted(self, "model_")
        return np.asarray(self.model_.concept_names, object)

    def edit(self, edit: Edit | None = None, *, method: str = "auto", **fields: Any) -> ConceptBottleneckClassifier:
        """A new estimator on edited data; this one is not changed.

        Parameters
        ----------
        edit
            An :class:`ecbm.Edit`; or its fields by name: ``edit(remove_samples=["17"])``.
        method
            As in :meth:`ecbm.Editor.apply`.
        """
        check_is_fitted(self, "model_")
        options = {name: fields.pop(name) for name in ("budget", "seconds") if name in fields}
        if edit is not None and fields:
            raise InputError("give an Edit, or its fields by name, not both")
        result = Editor(self.model_, self.data_).apply(
            edit if edit is not None else Edit(**fields), method, **options
        )
        other = copy.copy(self)
        other.model_, other.data_, other.edit_report_ = result.model, result.data, result.report
        return other


def _class_names(classes: NDArray[Any]) -> list[str]:
    names = [str(name) for name in classes.tolist()]
    if len(set(names)) < len(names):
        raise ValueError("two classes are written in the same way; rename one of them")
    return names
