"""``auto`` for deep backbones: both heads exactly, on the present features."""

from __future__ import annotations

from typing import Any

from ecbm.edit.heads import solve_heads
from ecbm.edit.kept import Kept
from ecbm.edit.paper import edited_design
from ecbm.edit.situation import Situation, carry
from ecbm.train.model import ConceptBottleneck

__all__ = ["auto_edit"]


def auto_edit(situation: Situation, kept: Kept, budget: float) -> tuple[ConceptBottleneck, dict[str, Any]]:
    """Re-solve both heads on the kept features."""
    carried = carry(situation, refit_statistics=True)
    solved = solve_heads(carried, situation, edited_design(situation, kept, carried))
    return solved.model, {"why": "both heads re-solved exactly on the present features"}
