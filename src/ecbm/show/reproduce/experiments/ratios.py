"""Edits of growing size: 1 to 10 % of the labels or the samples, 2 to 20 concepts."""

from __future__ import annotations

from typing import Any

from ecbm.read.dataset import Dataset
from ecbm.show.reproduce.case import Case
from ecbm.show.reproduce.comparing import compare, needed_models
from ecbm.show.reproduce.pieces import Piece
from ecbm.show.reproduce.scenarios import Pair, concepts_removed, labels_one_each, samples_removed


def pieces(case: Case) -> list[Piece]:
    """Every level and size in every repetition; at least one concept stays."""
    sizes = [("labels", share) for share in case.setting("shares")]
    sizes += [("samples", share) for share in case.setting("shares")]
    most = len(case.data.concept_names) - 1
    sizes += [("concepts", int(count)) for count in case.setting("concepts") if count <= most]
    return [
        Piece(f"{level}, {size:.0%}" if level != "concepts" else f"{size} concepts", repetition,
              {"level": level, "size": size})
        for repetition in case.repetitions for level, size in sizes
    ]  # fmt: skip


def _pair(case: Case, piece: Piece) -> Pair:
    seed, size = case.draw(piece.repetition), piece.options["size"]
    if piece.options["level"] == "labels":
        return labels_one_each(case.data, seed, size)
    if piece.options["level"] == "samples":
        return samples_removed(case.data, seed, size)
    return concepts_removed(case.data, seed, size)


def models(case: Case, piece: Piece) -> list[tuple[Dataset, int]]:
    """The original model and the retrained ones."""
    return needed_models(case, _pair(case, piece), piece.repetition)


def compute(case: Case, piece: Piece) -> dict[str, Any]:
    """Rows of every method."""
    return compare(case, _pair(case, piece), piece.repetition, case.setting("methods"))
