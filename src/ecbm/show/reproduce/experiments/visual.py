"""The concepts behind the predictions of some classes: removed one by one, by editing and by retraining."""

from __future__ import annotations

from typing import Any

import torch

from ecbm.read.dataset import Dataset
from ecbm.show.reproduce.case import Case
from ecbm.show.reproduce.pieces import Piece
from ecbm.show.reproduce.removals import editor_of, influences_of, removal, without

SHOWN = "sample"


def pieces(case: Case) -> list[Piece]:
    """Theorem 4.3 for every class, and every concept alone."""
    names = list(case.data.concept_names)[: int(case.setting("most"))]
    found = [Piece("influence", 0, {"kind": "influence"})]
    return found + [Piece(f"without {name}", 0, {"kind": "one", "concept": name}) for name in names]


def chosen(case: Case) -> dict[str, list[str]]:
    """Ids of test samples by class: the first classes that the test split has; their first sample is shown."""
    test = case.data.split("test")
    found: dict[str, list[str]] = {}
    for row, sample in enumerate(test.ids):
        name = str(test.label_of(row))
        if name in found or len(found) < int(case.setting("classes")):
            found.setdefault(name, []).append(sample)
    return found


def models(case: Case, piece: Piece) -> list[tuple[Dataset, int]]:
    """The original model, and the one retrained without the concept."""
    needed = [(case.data, 0)]
    if piece.options["kind"] == "one":
        needed.append((without(case, [piece.options["concept"]]), 0))
    return needed


def compute(case: Case, piece: Piece) -> dict[str, Any]:
    """Changes of the class loss of every chosen class, and what the model says of the sample that is shown."""
    classes = chosen(case)
    if piece.options["kind"] == "one":
        return removal(case, piece.options["concept"], 0, classes)
    editor = editor_of(case, 0)
    found: dict[str, Any] = {}
    for name, ids in classes.items():
        sample = case.data.select([case.data.row(ids[0])])
        logits = editor.model.concept_logits(sample.inputs)
        found[name] = {
            "influences": influences_of(case, 0, tuple(ids))[0],
            SHOWN: ids[0],
            "predicted": torch.sigmoid(logits)[0].tolist(),
            "says": editor.model.class_names[int(editor.model.classify(logits)[0].argmax())],
        }
    return {"classes": found}
