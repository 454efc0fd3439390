"""Edits on edits: the noise of ``harmful`` removed in rounds, against retraining after each of them."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

import torch

from ecbm.edit.edit import Edit
from ecbm.edit.editor import Editor
from ecbm.read.dataset import Dataset
from ecbm.show.reproduce.candidates import timed
from ecbm.show.reproduce.case import Case
from ecbm.show.reproduce.judging import FIGURES, closed, predictions
from ecbm.show.reproduce.pieces import Piece
from ecbm.show.reproduce.scenarios import Pair, concepts_flipped, labels_random, samples_poisoned
from ecbm.train.model import ConceptBottleneck

LEVELS = ("labels", "concepts", "samples")
RETRAIN = "retrain"


def pieces(case: Case) -> list[Piece]:
    """Every level and method in every repetition, retraining first."""
    return [
        Piece(f"{level}, {method}", repetition, {"level": level, "method": method})
        for repetition in case.repetitions
        for level in LEVELS
        for method in (RETRAIN, *case.setting("methods"))
    ]


def _pair(case: Case, piece: Piece) -> Pair:
    seed, share = case.draw(piece.repetition), float(case.setting("share"))
    if piece.options["level"] == "labels":
        return labels_random(case.data, seed, share)
    if piece.options["level"] == "samples":
        return samples_poisoned(case.data, seed, share)
    # The paper removes one concept in a hundred each round; here at least one.
    least = min(int(case.setting("rounds")), len(case.data.concept_names) // 2)
    return concepts_flipped(case.data, seed, share, float(case.setting("portion")), least)


def rounds(case: Case, piece: Piece) -> list[Dataset]:
    """The dataset before the first round and after each of them; the noise goes in equal parts, in random order."""
    before, after = _pair(case, piece)
    whole = Edit.between(before, after)
    parts: list[Any] = list(whole.correct_concepts or whole.remove_concepts or whole.remove_samples)
    shuffled = torch.randperm(len(parts), generator=torch.Generator().manual_seed(case.draw(piece.repetition)))
    parts = [parts[place] for place in shuffled.tolist()]
    kind = {"labels": "correct_concepts", "concepts": "remove_concepts", "samples": "remove_samples"}
    count = min(int(case.setting("rounds")), len(parts))
    found = [before]
    for index in range(count):
        some = parts[index * len(parts) // count : (index + 1) * len(parts) // count]
        change: dict[str, Any] = {kind[piece.options["level"]]: some}
        found.append(Edit(**change).apply_to(found[-1]))
    return found


def models(case: Case, piece: Piece) -> list[tuple[Dataset, int]]:
    """The original model, and for retraining one after each round."""
    stages = rounds(case, piece)
    needed = stages if piece.options["method"] == RETRAIN else [stages[0], stages[-1]]
    return [(data, piece.repetition) for data in needed]


def compute(case: Case, piece: Piece) -> dict[str, Any]:
    """Figures before the first round and after each of them; the last one's closure to the retrained model."""
    stages, method, seed = rounds(case, piece), piece.options["method"], piece.repetition
    test, names = case.data.split("test"), list(stages[-1].concept_names)
    original, target = case.model(stages[0], seed), case.model(stages[-1], seed)
    start, wanted = predictions(original, test, names), predictions(target, test, names)
    lines = [{key: start[key] for key in FIGURES} | {"round": 0, "seconds": 0.0, "closure": 0.0}]

    def add(model: ConceptBottleneck, seconds: float) -> None:
        figures = predictions(model, test, names)
        lines.append(
            {key: figures[key] for key in FIGURES}
            | {"round": len(lines), "seconds": seconds}
            | {key: closed(figures[of], start[of], wanted[of]) for key, of in _CLOSURES.items()}
        )

    if method == RETRAIN:
        for data in stages[1:]:
            model = case.model(data, seed)
            add(model, float(model.provenance.training["seconds"]))
        return {"rounds": lines}
    editor = Editor(original, stages[0])
    options = {"budget": float(case.setting("budget"))} if method == "auto" else {}
    for before, after in pairwise(stages):
        edit = Edit.between(before, after)
        result, seconds = timed(partial(editor.apply, edit, method, **options))
        add(result.model, seconds)
        editor = editor.follow(result)
    return {"rounds": lines}


_CLOSURES = {"closure": "concepts", "class_closure": "classes"}
