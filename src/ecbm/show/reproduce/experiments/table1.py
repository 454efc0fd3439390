"""The paper's table 1: 3 % of the samples, one concept label of each of 3 % of the samples, 1 or 10 concepts."""

from __future__ import annotations

from typing import Any

from ecbm.read.dataset import Dataset
from ecbm.show.reproduce.case import Case
from ecbm.show.reproduce.comparing import compare, needed_models
from ecbm.show.reproduce.pieces import Piece
from ecbm.show.reproduce.scenarios import Pair, concepts_removed, labels_one_each, samples_removed
from ecbm.words import counted


def pieces(case: Case) -> list[Piece]:
    """Every level in every repetition; no more concepts are removed than half of them."""
    share, most = float(case.setting("share")), len(case.data.concept_names) // 2
    counts = sorted({min(int(count), most) for count in case.setting("concepts")})
    levels: list[tuple[str, dict[str, Any]]] = [(f"concept labels, {share:.0%}", {"level": "labels"})]
    levels += [(f"{counted(count, 'concept')} removed", {"level": "concepts", "count": count}) for count in counts]
    levels += [(f"samples, {share:.0%} removed", {"level": "samples"})]
    return [Piece(title, repetition, options) for repetition in case.repetitions for title, options in levels]


def _pair(case: Case, piece: Piece) -> Pair:
    seed, share = case.draw(piece.repetition), float(case.setting("share"))
    if piece.options["level"] == "labels":
        return labels_one_each(case.data, seed, share)
    if piece.options["level"] == "concepts":
        return concepts_removed(case.data, seed, piece.options["count"])
    return samples_removed(case.data, seed, share)


def models(case: Case, piece: Piece) -> list[tuple[Dataset, int]]:
    """The original model and the retrained ones."""
    return needed_models(case, _pair(case, piece), piece.repetition)


def compute(case: Case, piece: Piece) -> dict[str, Any]:
    """Rows of every method."""
    return compare(case, _pair(case, piece), piece.repetition, case.setting("methods"))
