"""Harmful data: a tenth of labels, concepts or samples is spoilt, then corrected or removed."""

from __future__ import annotations

from typing import Any

from ecbm.read.dataset import Dataset
from ecbm.show.reproduce.case import Case
from ecbm.show.reproduce.comparing import compare, needed_models
from ecbm.show.reproduce.pieces import Piece
from ecbm.show.reproduce.scenarios import Pair, concepts_flipped, labels_random, samples_poisoned

LEVELS = ("labels", "concepts", "samples")


def pieces(case: Case) -> list[Piece]:
    """Every level in every repetition."""
    return [Piece(level, repetition, {"level": level}) for repetition in case.repetitions for level in LEVELS]


def _pair(case: Case, piece: Piece) -> Pair:
    seed, share = case.draw(piece.repetition), float(case.setting("share"))
    if piece.options["level"] == "labels":
        return labels_random(case.data, seed, share)
    if piece.options["level"] == "concepts":
        return concepts_flipped(case.data, seed, share, float(case.setting("portion")))
    return samples_poisoned(case.data, seed, share)


def models(case: Case, piece: Piece) -> list[tuple[Dataset, int]]:
    """The original model and the retrained ones."""
    return needed_models(case, _pair(case, piece), piece.repetition)


def compute(case: Case, piece: Piece) -> dict[str, Any]:
    """Rows of every method; what is to be gained is concept accuracy for labels, class accuracy for the others."""
    metric = "concept_accuracy" if piece.options["level"] == "labels" else "class_accuracy"
    return compare(case, _pair(case, piece), piece.repetition, case.setting("methods"), metric)
