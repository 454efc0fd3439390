"""Concepts without labels: soft targets from embeddings of pictures and of the concepts' names.

A picture shows a concept the more, the closer its embedding is to that of the concept's text. How close is close
differs from concept to concept, so each is calibrated on its own: the similarities s of the training pictures are
taken for a mixture of two normal distributions of one spread, pictures without the concept (mean a) and with it
(mean b > a, a share π). The soft label is the probability of the second given s, which is logistic in s:

    P(present | s) = σ((b − a) / v · (s − (a + b) / 2) + log π / (1 − π)),   v the variance within

Where two such distributions explain the similarities no better than one (by the Bayesian information criterion), or
where their means are less than two standard deviations apart (nobody could tell them apart), nobody can see the
concept in these pictures: it is dropped.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ecbm.errors import InputError
from ecbm.read.dataset import Dataset
from ecbm.read.features import read_features
from ecbm.read.splits import split_by_id

__all__ = [
    "UNLABELLED", "Calibration", "LabelFree", "calibrate", "concept_names_in", "label_free",
    "label_free_and_tell", "similarities",
]  # fmt: skip

# Two normal distributions of one spread have two modes from here on, whatever their shares near one half.
_LEAST_SEPARATION = 2.0
_STARTS = (0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.98)
_MOST_STEPS = 300
UNLABELLED = "unlabelled"


@dataclasses.dataclass(frozen=True)
class Calibration:
    """For each concept: slope and offset of the logistic, how far the two means are apart, and what a mixture
    gains.

    ``separation`` is in standard deviations; ``gain`` is the Bayesian information criterion of one normal
    distribution less that of the mixture: positive where two are the better account.
    """

    slope: NDArray[np.float64]
    offset: NDArray[np.float64]
    share: NDArray[np.float64]
    separation: NDArray[np.float64]
    gain: NDArray[np.float64]

    @property
    def visible(self) -> NDArray[np.bool_]:
        """Whether a concept can be seen in the data."""
        return (self.gain > 0) & (self.separation >= _LEAST_SEPARATION)

    def probabilities(self, similarity: NDArray[np.float64]) -> NDArray[np.float64]:
        """(n, k) soft labels of similarities."""
        logits = similarity * self.slope + self.offset
        return np.asarray(1 / (1 + np.exp(-np.clip(logits, -60, 60))))


@dataclasses.dataclass(frozen=True)
class LabelFree:
    """The dataset, its calibration (of all concepts that were given), and those that were dropped, with the
    reason."""

    data: Dataset
    calibration: Calibration
    dropped: Mapping[str, str]

    @property
    def remarks(self) -> tuple[str, ...]:
        kept = len(self.calibration.share) - len(self.dropped)
        lines = [
            f"{kept} of {len(self.calibration.share)} concepts can be seen in the data; soft labels calibrated"
        ]
        if self.dropped:
            listed = "; ".join(f"{name} ({why})" for name, why in self.dropped.items())
            lines.append(f"dropped, since nobody can see them in the data: {listed}")
        return tuple(lines)


def similarities(images: NDArray[np.float64], concepts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Cosines of every picture with every concept (n, k)."""
    rows, texts = (part / np.linalg.norm(part, axis=1, keepdims=True) for part in (images, concepts))
    return np.asarray(rows @ texts.T)


def calibrate(similarity: NDArray[np.float64]) -> Calibration:
    """Fit the mixture of every column, by expectation–maximisation from several starts; the best is kept."""
    n, k = similarity.shape
    mean, spread = similarity.mean(0), similarity.std(0)
    spread = np.where(spread > 1e-12 * (1 + np.abs(mean)), spread, 1.0)
    z = (similarity - mean) / spread
    single = -0.5 * n * (np.log(2 * np.pi * np.maximum(z.var(0), 1e-12)) + 1)
    best = np.full(k, -np.inf)
    found = np.zeros((4, k))
    for start in _STARTS:
        likelihood, parameters = _mixture(z, start)
        better = likelihood > best
        best = np.where(better, likelihood, best)
        found = np.where(better, parameters, found)
    low, high, variance, share = found
    # Two parameters more: the second mean and the share.
    gain = 2 * (best - single) - 2 * np.log(n)
    slope = (high - low) / variance
    middle = np.log(share / (1 - share)) - slope * (low + high) / 2
    separation = (high - low) / np.sqrt(variance)
    return Calibration(slope / spread, middle - slope * mean / spread, share, separation, gain)


def _mixture(z: NDArray[np.float64], start: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Log-likelihood and (low, high, variance, share) of each column, from the ``start`` share that is highest."""
    present = (z >= np.quantile(z, 1 - start, axis=0)).astype(float)
    likelihood = np.full(z.shape[1], -np.inf)
    for _ in range(_MOST_STEPS):
        weight = np.clip(present.sum(0), 1e-9, len(z) - 1e-9)
        share = weight / len(z)
        high = (present * z).sum(0) / weight
        low = ((1 - present) * z).sum(0) / (len(z) - weight)
        variance = (present * (z - high) ** 2 + (1 - present) * (z - low) ** 2).mean(0)
        # A spread of next to nothing around one value would have any likelihood.
        variance = np.maximum(variance, 1e-4)
        first = np.log(1 - share) - 0.5 * (z - low) ** 2 / variance
        second = np.log(share) - 0.5 * (z - high) ** 2 / variance
        total = np.logaddexp(first, second)
        present = np.exp(second - total)
        new = (total - 0.5 * np.log(2 * np.pi * variance)).sum(0)
        if np.all(new - likelihood < 1e-9 * len(z)):
            likelihood = new
            break
        likelihood = new
    turned = low > high
    low, high, share = np.where(turned, high, low), np.where(turned, low, high), np.where(turned, 1 - share, share)
    return likelihood, np.stack([low, high, variance, share])


def label_free(
    image_embeddings: Any,
    concept_embeddings: Any,
    concepts: str | Path | Sequence[str],
    labels: Sequence[str] | None = None,
    *,
    ids: Sequence[str] | None = None,
    splits: Sequence[str] | None = None,
    known: Mapping[str, Mapping[str, float]] | None = None,
) -> Dataset:
    """A dataset whose concept labels come from embeddings, which any model may have made.

    Parameters
    ----------
    image_embeddings, concept_embeddings
        One row a picture and one row a concept, from one model (arrays, or ``.npy`` files). The embeddings of the
        pictures become the dataset's inputs.
    concepts
        Names of the concepts, or a text file with one a line.
    labels
        The class of every picture, by name; without them all have the class ``unlabelled``.
    ids
        Ids of the pictures; ``row-1`` and so on by default.
    splits
        The split of every picture; by a hash of the id by default.
    known
        True labels where there are some: from concepts to ids to values. They replace the soft ones.

    Returns
    -------
    Dataset
        With soft labels of the concepts that can be seen; a warning names the others.

    Examples
    --------
    >>> import numpy
    >>> generator = numpy.random.default_rng(0)
    >>> shown = generator.integers(0, 2, 400)
    >>> pictures = generator.normal(size=(400, 16)) + 12 * shown[:, None] * numpy.eye(16)[0]
    >>> data = label_free(pictures, numpy.eye(16)[:1], ["striped"])
    >>> bool(((data.concepts[:, 0] > 0.5).numpy() == shown).mean() > 0.99)
    True
    """
    found = label_free_and_tell(
        image_embeddings, concept_embeddings, concepts, labels, ids=ids, splits=splits, known=known
    )
    if found.dropped:
        warnings.warn(found.remarks[1], stacklevel=2)
    return found.data


def label_free_and_tell(
    image_embeddings: Any,
    concept_embeddings: Any,
    concepts: str | Path | Sequence[str],
    labels: Sequence[str] | None = None,
    *,
    ids: Sequence[str] | None = None,
    splits: Sequence[str] | None = None,
    known: Mapping[str, Mapping[str, float]] | None = None,
) -> LabelFree:
    """:func:`label_free`, with the calibration and what was dropped."""
    images, texts = _rows(image_embeddings, "image embeddings"), _rows(concept_embeddings, "concept embeddings")
    names = concept_names_in(concepts)
    if images.shape[1] != texts.shape[1]:
        raise InputError(
            f"image embeddings have {images.shape[1]} numbers each, concept embeddings {texts.shape[1]}; both "
            "must come from one model"
        )
    if len(names) != len(texts):
        raise InputError(f"{len(names)} concept names for {len(texts)} concept embeddings; give one name a row")
    if len(set(names)) < len(names):
        raise InputError(f"concept {next(n for n in names if names.count(n) > 1)!r} is named twice; name each once")
    samples = [f"row-{number}" for number in range(1, len(images) + 1)] if ids is None else list(map(str, ids))
    classes = [UNLABELLED] * len(images) if labels is None else [str(label) for label in labels]
    for what, given in (("ids", samples), ("labels", classes)):
        if len(given) != len(images):
            raise InputError(f"{len(given)} {what} for {len(images)} image embeddings; give one a picture")
    parts = list(splits) if splits is not None else split_by_id(samples)
    similarity = similarities(images, texts)
    training = np.array([part == "train" for part in parts])
    if int(training.sum()) < 10:
        raise InputError(f"{int(training.sum())} training pictures; calibrating soft labels needs 10 or more")
    calibration = calibrate(similarity[training])
    visible = calibration.visible
    dropped = {
        name: _reason(float(separation), float(gain))
        for name, seen, separation, gain in zip(
            names, visible, calibration.separation, calibration.gain, strict=True
        )
        if not seen
    }
    if not visible.any():
        raise InputError(
            f"none of {len(names)} concepts can be seen in the data; are both embeddings from one model, and "
            "are rows in the order of the names?"
        )
    values = calibration.probabilities(similarity).astype(np.float32)
    _put_known(values, names, samples, known or {})
    class_names = sorted(set(classes))
    data = Dataset(
        samples,
        torch.from_numpy(images.astype(np.float32)),
        torch.from_numpy(np.ascontiguousarray(values[:, visible])),
        classes,
        [name for name, seen in zip(names, visible, strict=True) if seen],
        class_names,
        parts,
    )
    return LabelFree(data, calibration, dropped)


def _reason(separation: float, gain: float) -> str:
    return f"present and absent lie {separation:.1f} spreads apart" if gain > 0 else "one distribution explains it"


def _put_known(
    values: NDArray[np.float32], names: list[str], ids: list[str], known: Mapping[str, Mapping[str, float]]
) -> None:
    place = {sample: row for row, sample in enumerate(ids)}
    for name, labels in known.items():
        if name in names:
            for sample, value in labels.items():
                if sample in place and value == value:
                    values[place[sample], names.index(name)] = value


def _rows(given: Any, what: str) -> NDArray[np.float64]:
    if isinstance(given, str | Path):
        rows = read_features(given).double().numpy()
    else:
        try:
            rows = np.asarray(given, np.float64)
        except (TypeError, ValueError):
            raise InputError(f"{what}: expected an array or a .npy file, got {type(given).__name__}") from None
    if rows.ndim != 2 or not len(rows):
        raise InputError(f"{what}: shape {rows.shape}; give one row each")
    if not np.isfinite(rows).all():
        raise InputError(f"{what}: row {int((~np.isfinite(rows)).any(1).argmax()) + 1} is not finite; repair it")
    if not np.linalg.norm(rows, axis=1).all():
        raise InputError(
            f"{what}: row {int((np.linalg.norm(rows, axis=1) == 0).argmax()) + 1} is all zeros; repair it"
        )
    return rows


def concept_names_in(concepts: str | Path | Sequence[str]) -> list[str]:
    """Names of concepts, given as they are or in a text file with one a line."""
    if not isinstance(concepts, str | Path):
        return [str(name) for name in concepts]
    path = Path(concepts)
    try:
        lines = path.read_bytes().decode("utf-8-sig").splitlines()
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror}); give a text file with one name a line"
        ) from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: not UTF-8 text; save the names as UTF-8") from None
    return [line.strip() for line in lines if line.strip()]
