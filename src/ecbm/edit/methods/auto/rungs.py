"""What a way to move the backbone is, and the plainest: gradient steps of everything, where it cannot be cut."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Protocol

from torch import Tensor

from ecbm.edit.gradients import ConceptPart
from ecbm.edit.methods.auto.refine import refine

if TYPE_CHECKING:
    from ecbm.edit.methods.auto.ladder import Ladder

__all__ = ["GradientSteps", "Move", "Moved"]


@dataclasses.dataclass(frozen=True)
class Moved:
    """A moved backbone and concept head, every setting that was chosen, and the work it took.

    ``design`` and ``validation`` are features of the edited training and validation samples with ones, where the
    move has them; the work for them is in ``work``.
    """

    part: ConceptPart
    settings: dict[str, Any]
    work: float
    design: Tensor | None = None
    validation: Tensor | None = None


class Move(Protocol):
    """A way to move the backbone on the edited data."""

    name: str

    def least(self, ladder: Ladder) -> float:
        """The least work with which it makes sense."""
        ...

    def worth_it(self, ladder: Ladder) -> bool:
        """Whether to try it with the work that is left."""
        ...

    def run(self, ladder: Ladder, work: float) -> Moved | None:
        """Move the last rung's model for about that much work; ``None`` if there is nowhere to go."""
        ...


_FEWEST_EPOCHS = 0.1
# The learning rate as shares of the recipe's, for the shortest refinement and from an epoch on: a few steps at a
# high rate would only do damage.
_GENTLE, _FULL = 0.1, 0.25


class GradientSteps:
    """Gradient steps of everything for the work that is left."""

    name = "gradient steps"

    def least(self, ladder: Ladder) -> float:
        steps = _FEWEST_EPOCHS * ladder.cost.samples / ladder.cost.batch
        return steps * ladder.cost.step + self._closing(ladder)

    def worth_it(self, ladder: Ladder) -> bool:
        """Where the backbone can be cut, a live tail is at least as good."""
        return not ladder.cost.tails and ladder.left > self.least(ladder)

    def _closing(self, ladder: Ladder) -> float:
        return ladder.cost.passes(ladder.cost.samples + ladder.cost.validation)

    def run(self, ladder: Ladder, work: float) -> Moved | None:
        alignment, last, cost = ladder.alignment, ladder.last.model, ladder.cost
        steps = max(1, int((work - self._closing(ladder)) / cost.step))
        epochs = steps * cost.batch / cost.samples
        rate = (_GENTLE + (_FULL - _GENTLE) * min(epochs, 1.0)) * last.recipe.peak_learning_rate
        inputs, deadline = alignment.after.inputs, ladder.deadline
        part, done = refine(last, alignment, inputs, steps=steps, learning_rate=rate, deadline=deadline)
        return Moved(part, {"steps": done, "learning_rate": rate}, done * cost.step + self._closing(ladder))
