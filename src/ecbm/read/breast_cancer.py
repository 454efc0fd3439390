"""Wisconsin diagnostic breast cancer data, from scikit-learn, as a tabular concept bottleneck."""

from __future__ import annotations

import numpy as np
import torch

from ecbm.read.dataset import Dataset

__all__ = ["breast_cancer"]


def breast_cancer(seed: int = 0) -> Dataset:
    """569 tumours: predict how extreme the worst cells are, and from that malignant or benign. No download.

    The data hold ten measurements of cell nuclei (radius, texture, ...), each as its mean over the cells, the
    standard error of that mean, and its value in the worst cells. What a model sees (``x``) are the ten means
    and ten errors. Concepts are about the ten worst values, which a model does not see: ``radius=small`` for
    the lower third of the training split, ``radius=large`` for the upper third, neither in between. So the
    concepts are thresholds of real measurements and not judgements of a pathologist; they are no labels in
    disguise, but like the measurements they come from they tell the class well.

    Parameters
    ----------
    seed
        Seed of the split: 70 % train, 10 % val, 20 % test within each class.

    Returns
    -------
    Dataset
        20 inputs, 20 concepts in 10 groups, classes ``malignant`` and ``benign``.

    Examples
    --------
    >>> data = breast_cancer()
    >>> len(data), len(data.concept_names), data.groups["radius"]
    (569, 20, ('radius=small', 'radius=large'))
    """
    from sklearn.datasets import load_breast_cancer

    source = load_breast_cancer()
    columns = [str(name) for name in source.feature_names]
    values = np.asarray(source.data, np.float64)
    labels = np.asarray(source.target, np.int64)
    splits = _stratified(labels, seed)
    worst = [position for position, name in enumerate(columns) if name.startswith("worst ")]
    seen = [position for position, name in enumerate(columns) if not name.startswith("worst ")]
    low, high = np.quantile(values[splits == "train"][:, worst], [1 / 3, 2 / 3], axis=0)
    concepts = np.stack([values[:, worst] <= low, values[:, worst] > high], 2).reshape(len(labels), -1)
    measured = [columns[position].removeprefix("worst ") for position in worst]
    return Dataset(
        [f"tumour-{row:03d}" for row in range(len(labels))],
        torch.from_numpy(values[:, seen].astype(np.float32)),
        torch.from_numpy(concepts.astype(np.float32)),
        torch.from_numpy(labels),
        [f"{name}={size}" for name in measured for size in ("small", "large")],
        [str(name) for name in source.target_names],
        splits.tolist(),
    )


def _stratified(labels: np.ndarray, seed: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    splits = np.full(len(labels), "train", dtype="<U5")
    for label in np.unique(labels):
        rows = generator.permutation(np.flatnonzero(labels == label))
        splits[rows[: round(0.2 * len(rows))]] = "test"
        splits[rows[round(0.2 * len(rows)) : round(0.3 * len(rows))]] = "val"
    return splits
