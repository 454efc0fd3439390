"""Data for the benchmark of suggestions: features with clean and with spoilt concept labels.

Pictures are seen through a ``convnet`` that was trained on the *spoilt* labels, as a user's model is; its features
are kept under ``--work``. Tables and CUB's frozen features do not depend on the labels.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

import ecbm
from suggest_scenarios import SCENARIOS, Labels

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
EPOCHS = 8


@dataclasses.dataclass(frozen=True)
class Case:
    """One dataset spoilt in one way. Rows of the validation split (``held``) come last: the same people labelled
    them, but a backbone did not learn from them.
    """

    setting: str
    scenario: str
    features: NDArray[np.float32]
    truth: Labels
    labels: Labels
    classes: NDArray[np.int64]
    held: NDArray[np.bool_]
    names: tuple[str, ...]

    @property
    def errors(self) -> NDArray[np.bool_]:
        """Wrong labels, of the training samples alone."""
        return (self.labels != self.truth)[~self.held]


def digits() -> ecbm.Dataset:
    """Scikit-learn's 1,797 digits of 8 × 8 pixels: six words about the shape of a digit, four about the picture.

    A model sees the right half of the pixels and every second of the left half; words about the picture are
    measured on all of them.
    """
    from sklearn.datasets import load_digits

    source = load_digits()
    pixels, labels = source.images, source.target
    shape = {
        "loop": (0, 6, 8, 9),
        "two_loops": (8,),
        "straight": (1, 4, 7),
        "top_bar": (5, 7),
        "open_left": (2, 3, 5, 7, 9),
        "open_right": (2, 4, 5, 6),
    }
    ink = pixels.sum((1, 2))
    middle = np.arange(8)
    rows, columns = (pixels.sum(axis) / ink[:, None] for axis in (2, 1))
    centre = (rows * middle).sum(1), (columns * middle).sum(1)
    slant = ((middle[:, None] - centre[0][:, None, None]) * (middle - centre[1][:, None, None]) * pixels).sum(
        (1, 2)
    )
    words = {
        "heavy": ink,
        "wide": (columns * (middle - centre[1][:, None]) ** 2).sum(1),
        "slanted": slant / ink,
        "low": centre[0],
    }
    concepts = {name: np.isin(labels, members) for name, members in shape.items()}
    concepts |= {name: value > np.median(value) for name, value in words.items()}
    seen = np.concatenate([pixels[:, :, 4:].reshape(len(ink), -1), pixels[:, ::2, :4].reshape(len(ink), -1)], 1)
    return ecbm.Dataset(
        [f"digit-{row}" for row in range(len(ink))],
        torch.from_numpy(seen.astype(np.float32)),
        torch.from_numpy(np.stack(list(concepts.values()), 1).astype(np.float32)),
        torch.from_numpy(labels),
        list(concepts),
        [str(digit) for digit in range(10)],
    )


def wine() -> ecbm.Dataset:
    """Scikit-learn's 178 wines: a model sees six of the measurements, concepts are thirds of the other seven."""
    from sklearn.datasets import load_wine

    source = load_wine()
    values, names = source.data, [str(name) for name in source.feature_names]
    seen, hidden = list(range(0, 13, 2)), list(range(1, 13, 2))
    concepts = {}
    for column in hidden:
        low, high = np.quantile(values[:, column], [1 / 3, 2 / 3])
        concepts[f"{names[column]}=low"] = values[:, column] <= low
        concepts[f"{names[column]}=high"] = values[:, column] > high
    return ecbm.Dataset(
        [f"wine-{row}" for row in range(len(values))],
        torch.from_numpy(values[:, seen].astype(np.float32)),
        torch.from_numpy(np.stack(list(concepts.values()), 1).astype(np.float32)),
        torch.from_numpy(source.target),
        list(concepts),
        ["barolo", "grignolino", "barbera"],
    )


def clinic(n: int = 3000, seed: int = 7) -> ecbm.Dataset:
    """A generated table whose findings hang together beyond what a model sees of them.

    Six hidden conditions cause sixteen findings (the concepts) and, with noise, twenty-four measurements (the
    inputs); the class follows two of the conditions. Four of the findings are values of one group.
    """
    random = np.random.default_rng(seed)
    hidden = random.standard_normal((n, 6))
    seen = hidden @ random.standard_normal((6, 24)) * 0.5 + random.standard_normal((n, 24))
    loads = random.standard_normal((6, 12)) * (random.random((6, 12)) < 0.4)
    loads[random.integers(6, size=12), np.arange(12)] += 1.5
    scores = hidden @ loads + 0.5 * random.standard_normal((n, 12))
    findings = scores > np.quantile(scores, random.uniform(0.4, 0.9, 12), axis=0).diagonal()
    stage = np.digitize(hidden[:, 0] + hidden[:, 1] + 0.5 * random.standard_normal(n), [-1.2, 0.0, 1.2])
    classes = np.digitize(hidden[:, 0] - hidden[:, 2] + 0.5 * random.standard_normal(n), [-0.8, 0.8])
    concepts = np.concatenate([findings, np.eye(4)[stage]], 1)
    names = [*(f"finding_{index + 1}" for index in range(12)), *(f"stage={index + 1}" for index in range(4))]
    return ecbm.Dataset(
        [f"patient-{row}" for row in range(n)],
        torch.from_numpy(seen.astype(np.float32)),
        torch.from_numpy(concepts.astype(np.float32)),
        torch.from_numpy(classes),
        names,
        ["mild", "moderate", "severe"],
    )


def _cub(first: bool) -> ecbm.Dataset:
    """2,500 training samples and 40 concepts of CUB, or as many others of both."""
    data = ecbm.read_dataset(SHARED / "cub").split("train")
    order = np.random.default_rng(0 if first else 1).permutation(len(data))[:2500]
    columns = np.random.default_rng(5).permutation(len(data.concept_names))[slice(40) if first else slice(40, 80)]
    columns = sorted(columns.tolist())
    part = data.select(sorted(order.tolist()))
    return part.replace(concepts=part.concepts[:, columns], concept_names=[data.concept_names[j] for j in columns])


@functools.cache
def dataset(setting: str) -> ecbm.Dataset:
    """The clean data of a setting."""
    if setting == "WBCAtt":
        return ecbm.read_dataset(SHARED / "wbcatt", image_size=(32, 32))
    if setting == "birds":
        return ecbm.datasets.birds(n=4000, seed=11, size=32)
    if setting in ("CUB", "CUB, other concepts"):
        return _cub(setting == "CUB")
    makers = {"breast_cancer": ecbm.datasets.breast_cancer, "digits": digits, "wine": wine, "clinic": clinic}
    return makers[setting]()


REPORTED = ("WBCAtt", "CUB", "breast_cancer", "digits")
DEVELOPMENT = ("birds", "CUB, other concepts", "clinic", "wine")
PICTURES = ("WBCAtt", "birds")


def available(setting: str) -> bool:
    """Whether the data of a setting is on this machine."""
    folder = {"WBCAtt": "wbcatt", "CUB": "cub", "CUB, other concepts": "cub"}.get(setting)
    return folder is None or (SHARED / folder / "samples.csv").is_file()


def case(setting: str, scenario: str, seed: int, work: Path) -> Case:
    """Spoil the labels of a setting, and see its samples through a model of the spoilt labels."""
    data = dataset(setting)
    rows = [row for name in ("train", "val") for row, split in enumerate(data.splits) if split == name]
    held = np.asarray([data.splits[row] == "val" for row in rows])
    if setting not in PICTURES:  # nothing was learnt from the labels of a table, so all samples are alike
        rows, held = [row for row, out in zip(rows, held, strict=True) if not out], held[~held]
    truth, classes = data.concepts[rows].double().numpy(), data.labels[rows].numpy()
    name = hashlib.blake2b(f"{setting}/{scenario}".encode(), digest_size=4).digest()
    random = np.random.default_rng([seed, *name])
    labels = SCENARIOS[scenario](truth, classes, data.concept_names, random)
    features = _learnt(data, rows, labels, work) if setting in PICTURES else data.inputs.take(rows).numpy()
    return Case(setting, scenario, features, truth, labels, classes, held, data.concept_names)


def _learnt(data: ecbm.Dataset, rows: list[int], labels: Labels, work: Path) -> NDArray[np.float32]:
    """Features of a convnet that was trained on the spoilt labels."""
    concepts = data.concepts.clone()
    concepts[rows] = torch.from_numpy(labels).float()
    spoilt = data.replace(concepts=concepts)
    file = work / f"features-{spoilt.fingerprint}-{EPOCHS}.npy"
    if not file.is_file():
        model = ecbm.train(spoilt, ecbm.Recipe(backbone="convnet", epochs=EPOCHS))
        work.mkdir(parents=True, exist_ok=True)
        np.save(file, model.features(spoilt.select(rows).inputs).numpy())
    found: NDArray[np.float32] = np.load(file)
    return found
