"""``retrain``: the ground truth, training anew on the edited data."""

from __future__ import annotations

from ecbm.edit.alignment import Alignment
from ecbm.edit.carry import carry
from ecbm.edit.methods.base import Options, Outcome
from ecbm.edit.state import EditorState
from ecbm.train.train import train_and_tell

__all__ = ["retrain_edit"]


def retrain_edit(alignment: Alignment, state: EditorState, options: Options) -> Outcome:
    """Train on the edited data, from fresh weights or (``warm_start``) from the present backbone."""
    edited = alignment.edited
    start = carry(alignment) if options.warm_start else None
    recipe, front = state.model.recipe_for(edited.concept_names), state.model.front
    trained = train_and_tell(
        edited, recipe, start=start, front=front, device=state.model.network_device, noise=options.noise
    )
    return Outcome(
        trained.model,
        {"warm_start": options.warm_start},
        solved=True,
        fresh=not options.warm_start,
        certified=trained.certified,
    )
