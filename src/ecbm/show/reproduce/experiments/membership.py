"""Can removed samples still be told from samples that were never seen? RMIA with references that saw neither."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ecbm.edit.edit import Edit
from ecbm.edit.editor import Editor
from ecbm.read.dataset import Dataset
from ecbm.show.reproduce.candidates import timed
from ecbm.show.reproduce.case import Case
from ecbm.show.reproduce.comparing import NO_OP, RETRAIN
from ecbm.show.reproduce.judging import predictions
from ecbm.show.reproduce.pieces import Piece
from ecbm.show.reproduce.scenarios import without_rows
from ecbm.train.model import ConceptBottleneck
from ecbm.verify.audit.intervals import auc_difference, auc_interval
from ecbm.verify.audit.rmia import offline_likelihood, rmia
from ecbm.verify.audit.signals import SIGNALS, likelihoods, signals

Array = NDArray[np.float64]


def pieces(case: Case) -> list[Piece]:
    """One a repetition."""
    return [Piece("membership", repetition, {}) for repetition in case.repetitions]


def drawn(case: Case, repetition: int) -> tuple[Dataset, Dataset, Dataset]:
    """Members that are removed, non-members, and the rest of the test split as population.

    At most a quarter of the training split and half of the test split.
    """
    train, test = case.data.split("train"), case.data.split("test")
    count = min(int(case.setting("removed")), len(train) // 4, len(test) // 2)
    generator = torch.Generator().manual_seed(case.draw(repetition))
    members = torch.randperm(len(train), generator=generator)[:count].tolist()
    others = torch.randperm(len(test), generator=generator).tolist()
    return train.select(sorted(members)), test.select(sorted(others[:count])), test.select(sorted(others[count:]))


def _left(case: Case, repetition: int) -> Dataset:
    gone = drawn(case, repetition)[0].ids
    return without_rows(case.data, torch.tensor([case.data.row(one) for one in gone]))


def _references(case: Case, repetition: int) -> list[tuple[Dataset, int]]:
    """Random halves of the training samples that are left, each with a seed of its own."""
    left = _left(case, repetition)
    rows = torch.tensor([row for row, split in enumerate(left.splits) if split == "train"])
    found = []
    for place in range(int(case.setting("references"))):
        generator = torch.Generator().manual_seed(1000 * (1 + case.draw(repetition)) + place)
        gone = rows[torch.randperm(len(rows), generator=generator)[: len(rows) // 2]]
        found.append((without_rows(left, gone), 1000 + place))
    return found


def models(case: Case, piece: Piece) -> list[tuple[Dataset, int]]:
    """The original, the retrained model and the references."""
    seed = piece.repetition
    return [(case.data, seed), (_left(case, seed), seed), *_references(case, seed)]


def _edited(case: Case, seed: int, members: Dataset) -> dict[str, tuple[ConceptBottleneck, float]]:
    """The removal by every method."""
    editor, edit = Editor(case.model(case.data, seed), case.data), Edit(remove_samples=list(members.ids))
    budget = float(case.setting("budget"))
    methods: dict[str, tuple[str, dict[str, Any]]] = {
        "exact (heads only)": ("exact", {}),
        "ekfac guarded (ECBM)": ("ekfac", {}),
        "auto": ("auto", {"budget": budget}),
    }  # fmt: skip
    if not case.linear:
        methods["auto, tail moved"] = ("auto", {"budget": budget, "tail": True})
    found = {}
    for name, (method, options) in methods.items():
        result, seconds = timed(lambda m=method, o=options: editor.apply(edit, m, **o))  # type: ignore[misc]
        found[name] = (result.model, seconds)
    return found


def compute(case: Case, piece: Piece) -> dict[str, Any]:
    """Scores of members and non-members under every model, their means, and AUCs with intervals."""
    seed = piece.repetition
    members, others, population = drawn(case, seed)
    references = [case.model(data, other) for data, other in _references(case, seed)]
    means = [
        offline_likelihood(np.stack([_likelihoods(model, part) for model in references]))
        for part in (members, others, population)
    ]
    retrained = case.model(_left(case, seed), seed)
    judged = {NO_OP: (case.model(case.data, seed), 0.0)} | _edited(case, seed, members)
    judged[RETRAIN] = (retrained, float(retrained.provenance.training["seconds"]))
    scores: dict[str, dict[str, tuple[Array, Array]]] = {}
    for name, (model, _) in judged.items():
        member, other, rest = (_likelihoods(model, part) for part in (members, others, population))
        scores[name] = {
            signal: (
                rmia(member[:, of], means[0][:, of], rest[:, of], means[2][:, of]),
                rmia(other[:, of], means[1][:, of], rest[:, of], means[2][:, of]),
            )
            for of, signal in enumerate(SIGNALS)
        }
    test, names = case.data.split("test"), list(case.data.concept_names)
    rows = []
    for name, (model, seconds) in judged.items():
        f1 = predictions(model, test, names)["class_f1"]
        for signal in SIGNALS:
            own = scores[name][signal]
            found, gap = auc_interval(*own), auc_difference(own, scores[RETRAIN][signal])
            rows.append(
                {
                    "model": name, "signal": signal,
                    "members": float(own[0].mean()), "others": float(own[1].mean()),
                    "auc": found.auc, "low": found.low, "high": found.high,
                    "gap": gap.difference, "gap_low": gap.low, "gap_high": gap.high,
                    "class_f1": f1, "seconds": seconds,
                    "scores": [np.round(part, 4).tolist() for part in own],
                }
            )  # fmt: skip
    return {"rows": rows, "count": len(members), "population": len(population), "references": len(references)}


def _likelihoods(model: ConceptBottleneck, samples: Dataset) -> Array:
    return likelihoods(signals(model, samples), number=False)
