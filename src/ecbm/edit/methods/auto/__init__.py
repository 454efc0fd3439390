"""``auto``: the most that a budget of work buys, cheapest first, and nothing that makes things worse."""

from __future__ import annotations

from ecbm.edit.alignment import Alignment
from ecbm.edit.methods.base import Options, Outcome
from ecbm.edit.state import EditorState

__all__ = ["auto_edit"]


def auto_edit(alignment: Alignment, state: EditorState, options: Options) -> Outcome:
    """On frozen features ``exact``; otherwise the exact heads, and then the backbone as far as the budget goes."""
    if state.model.recipe.is_linear:
        from ecbm.edit.methods.exact import exact_edit

        return exact_edit(alignment, state, options)
    from ecbm.edit.methods.auto.cost import CostModel
    from ecbm.edit.methods.auto.ladder import climb
    from ecbm.edit.methods.auto.moves import MOVES

    return climb(alignment, state, options, CostModel.of(alignment), MOVES)
