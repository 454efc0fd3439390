"""Generated records with known errors, for the tests of suggestions."""

from __future__ import annotations

import dataclasses
import math

import torch
from torch import Tensor

import ecbm
from ecbm.verify.suggest.evidence import Records


@dataclasses.dataclass(frozen=True)
class Planted:
    """Records, the truth behind their labels, and the number of each concept's group."""

    records: Records
    truth: Tensor
    groups: Tensor

    @property
    def errors(self) -> Tensor:
        return self.records.labels != self.truth


def truths(n: int = 1200, k: int = 8, seed: int = 0, clear: float = 4.0) -> tuple[Tensor, Tensor, Tensor]:
    """Features, true labels and classes: concepts follow the features, and hang together by a hidden cause."""
    draw = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    x, hidden = normal(n, 12), normal(n, 1)
    scores = clear * (x @ normal(12, k) / math.sqrt(12)) + 0.5 * hidden * (torch.arange(k) < 3) + 0.3 * normal(n, k)
    truth = (scores > 0.4 * normal(k)).double()
    classes = (scores[:, :3].sum(1) > 0).long() + 2 * (scores[:, 3] > 0).long()
    return x, truth, classes


def records(x: Tensor, labels: Tensor, classes: Tensor, *, missing: float = 0.0, seed: int = 0) -> Records:
    """Records of frozen features."""
    draw = torch.Generator().manual_seed(seed + 100)
    n = len(labels)
    weights = (torch.rand(labels.shape, generator=draw) >= missing).double()
    return Records(
        x,
        labels * weights,
        weights,
        classes,
        int(classes.max()) + 1,
        torch.arange(n) % 5,
        torch.ones(n, dtype=torch.bool),
        torch.full_like(labels, math.nan),
    )


def planted(kind: str, n: int = 1200, k: int = 8, seed: int = 0, **options: float) -> Planted:
    """Spoil true labels: ``none``, ``random`` (rate), ``overlook``, ``invent``, ``swap``, ``one class``."""
    x, truth, classes = truths(n, k, seed)
    draw = torch.Generator().manual_seed(seed + 1)
    labels = truth.clone()
    some = torch.rand(n, generator=draw) < options.get("share", 0.5)
    if kind == "random":
        flip = torch.rand(labels.shape, generator=draw) < options.get("rate", 0.05)
        labels = torch.where(flip, 1 - labels, labels)
    elif kind in ("overlook", "invent"):
        chosen = torch.rand(n, 3, generator=draw) < options.get("rate", 1.0)
        value = float(kind == "invent")
        part = labels[:, :3]
        labels[:, :3] = torch.where(some[:, None] & chosen, value, part)
    elif kind == "swap":
        rows = (torch.rand(n, generator=draw) < 0.3).nonzero().flatten()
        labels[rows[:, None], torch.tensor([[1, 4]])] = truth[rows[:, None], torch.tensor([[4, 1]])]
    elif kind == "one class":
        rows = (classes == 1).nonzero().flatten()
        labels[rows, 5] = 1 - labels[rows, 5]
    else:
        assert kind == "none"
    return Planted(records(x, labels, classes), truth, torch.arange(k))


def precision(scores: Tensor, errors: Tensor) -> float:
    """Share of errors among as many of the highest scores as there are errors."""
    order = scores.flatten().argsort(descending=True, stable=True)[: int(errors.sum())]
    return float(errors.flatten()[order].double().mean())


def spoilt_table(kind: str, n: int, **options: float) -> tuple[ecbm.Dataset, ecbm.Dataset]:
    """Datasets of frozen features with true labels and with spoilt ones; every sixth sample is for validation."""
    case = planted(kind, n=n, **options)
    classes = case.records.classes
    splits = ["val" if row % 6 == 5 else "train" for row in range(n)]
    names = [f"c{column}" for column in range(case.truth.shape[1])]
    clean = ecbm.Dataset(
        [f"s{row:04d}" for row in range(n)], case.records.features.float(), case.truth.float(), classes, names,
        ["ant", "bee", "cat", "dog"], splits,
    )  # fmt: skip
    return clean, clean.replace(concepts=case.records.labels.float())
