"""The ways to move a backbone, in the order in which ``auto`` tries them; a new one is a file and a row here."""

from __future__ import annotations

from ecbm.edit.methods.auto.rungs import GradientSteps, Move
from ecbm.edit.methods.auto.tail import LiveTail

__all__ = ["MOVES"]

MOVES: tuple[Move, ...] = (LiveTail(), GradientSteps())
