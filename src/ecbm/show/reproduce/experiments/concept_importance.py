"""Theorem 4.3 as a measure of importance: does it know which concepts matter, and does removing them show it."""

from __future__ import annotations

from typing import Any

from ecbm.edit.edit import Edit
from ecbm.read.dataset import Dataset
from ecbm.show.reproduce.case import Case
from ecbm.show.reproduce.pieces import Piece
from ecbm.show.reproduce.removals import class_target, editor_of, figures_of, influences_of, removal, without
from ecbm.verify.influence.confirm import measured

TARGET = "val"


def pieces(case: Case) -> list[Piece]:
    """The influence of all concepts, each concept alone, and growing sets from both ends of the ranking."""
    names, most = case.data.concept_names, len(case.data.concept_names) - 1
    found = []
    for repetition in case.repetitions:
        found.append(Piece("influence of all concepts", repetition, {"kind": "influence"}))
        found += [Piece(f"without {name}", repetition, {"kind": "one", "concept": name}) for name in names]
        found += [
            Piece(f"{end}, {count}", repetition, {"kind": "set", "end": end, "count": count})
            for end in ("most", "least")
            for count in case.setting("counts")
            if count <= most
        ]
    return found


def models(case: Case, piece: Piece) -> list[tuple[Dataset, int]]:
    """The original model, and the one retrained without a concept; those of sets follow from the influences."""
    needed = [(case.data, piece.repetition)]
    if piece.options["kind"] == "one":
        needed.append((without(case, [piece.options["concept"]]), piece.repetition))
    return needed


def compute(case: Case, piece: Piece) -> dict[str, Any]:
    """What a piece's kind asks for."""
    seed, editor = piece.repetition, editor_of(case, piece.repetition)
    if piece.options["kind"] == "one":
        return removal(case, piece.options["concept"], seed, {TARGET: TARGET})
    influences, seconds = influences_of(case, seed, TARGET)
    if piece.options["kind"] == "influence":
        # How far two seeds of the same training lie apart: what brute force by retraining cannot resolve.
        target = class_target(editor, TARGET)
        other = case.model(case.data, seed + 1)
        noise = abs(measured(other, target, editor.model) - measured(editor.model, target, editor.model))
        return {"influences": influences, "seconds": seconds, "noise": noise, **figures_of(case, editor.model)}
    # The most influential: expected to cost most. The least: expected to change nothing.
    most = piece.options["end"] == "most"
    ranked = sorted(influences, key=lambda name: -influences[name] if most else abs(influences[name]))
    chosen = ranked[: piece.options["count"]]
    edited = editor.apply(Edit(remove_concepts=chosen), "auto", budget=float(case.setting("budget"))).model
    retrained = case.model(without(case, chosen), seed)
    return {"concepts": chosen, "auto": figures_of(case, edited), "retrain": figures_of(case, retrained)}
