"""What every method of editing has in common: its signature, its options and its outcome.

A method is a function (alignment, state, options) → :class:`Outcome`. It moves the model from the old terms to the
new ones; the editor prepares the alignment before it and writes the report after it. ``CONTRIBUTING.md`` says how
to add one.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ecbm.edit.alignment import Alignment
from ecbm.edit.state import EditorState, Facts
from ecbm.errors import InputError
from ecbm.options import option
from ecbm.train.model import ConceptBottleneck

if TYPE_CHECKING:
    from ecbm.curvature.losses import Fisher

__all__ = ["LABEL_CURVATURES", "Method", "Options", "Outcome"]

LABEL_CURVATURES = ("hessian", "blocks", "ekfac")


@dataclasses.dataclass(frozen=True)
class Options:
    """Settings of an edit; each method reads those that concern it.

    Parameters
    ----------
    budget
        For ``auto`` with a deep backbone: a share, up to 1, of the work of retraining.
    seconds
        Instead of ``budget``: a clock. What such an edit gives depends on the machine and cannot be replayed.
    fisher
        For ``ekfac``: ``"true"`` (targets drawn from the model), ``"empirical"`` (the data's targets: the paper's
        text), or ``"exact"`` (the drawn targets' expectation; costs one backward pass a concept).
    damping
        δ of ``ekfac`` and ``hessian``. ``None`` chooses it by the edited objective (``guarded``), starting from 0
        for a frozen backbone, whose L2 is enough; unguarded it is 0 there and 0.1 for a deep one.
    guarded
        For ``ekfac`` and ``hessian``: whether the step's length is chosen, too, and nothing is returned that makes
        the edited objective worse. ``False`` is the step as the paper writes it, however long.
    relative
        Whether δ is a multiple of each layer's mean eigenvalue.
    gradient
        ``"difference"`` of new and old terms, or the ``"full"`` new gradient (a Newton step).
    label_curvature
        For ``ekfac``, what the label head's step divides by: ``"hessian"``, exactly, by conjugate gradients;
        ``"blocks"``, the exact Gauss–Newton block of every class; or ``"ekfac"``, Kronecker factors. ``None`` takes
        blocks for a frozen backbone with the true Fisher where they are small enough, the Hessian for a deep one,
        and unguarded Kronecker factors for a deep one. Those are too coarse: retraining moves inputs and label
        head in ways that nearly cancel, and on CUB EK-FAC's step (off by 30 %) leaves class probabilities farther
        from the retrained ones than no step does (closure −1.4 against 0.37; at best 0.45, with δ of 100; with
        blocks 0.75).
    tail
        For ``auto`` on a deep backbone: train its last layers on the edited data even where the edit moves
        predictions no more than another seed would, for an erasure that reaches further than the heads.
    warm_start
        For ``retrain``: start from the present backbone instead of fresh weights.
    noise
        Of a model that promises certified removal: the secret seed of its release's noise, to compute an edit
        again. ``None`` draws one.
    """

    budget: float = 0.05
    seconds: float | None = None
    fisher: Fisher = "true"
    damping: float | None = None
    guarded: bool = True
    relative: bool = True
    gradient: str = "difference"
    label_curvature: str | None = None
    tail: bool = False
    warm_start: bool = False
    noise: int | None = dataclasses.field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not _number(self.budget) or not 0 < self.budget <= 1:
            raise InputError(
                f"budget is a share of retraining's work, above 0 and at most 1, got {self.budget!r}; "
                f"for a time limit give {option('seconds')}"
            )
        if self.seconds is not None and not (_number(self.seconds) and self.seconds > 0):
            raise InputError(f"seconds must be positive and finite, got {self.seconds!r}")
        if self.damping is not None and not (_number(self.damping) and self.damping >= 0):
            raise InputError(f"damping must be a finite number of at least 0, got {self.damping!r}")
        for name, value, allowed in (
            ("fisher", self.fisher, ("true", "empirical", "exact")),
            ("gradient", self.gradient, ("difference", "full")),
            ("label_curvature", self.label_curvature, (None, *LABEL_CURVATURES)),
        ):
            if value not in allowed:
                words = ", ".join(str(word) for word in allowed)
                raise InputError(f"{name} must be one of {words}, got {value!r}")

    @property
    def replayable(self) -> bool:
        """Whether the same edit of the same model gives the same bytes again."""
        return self.seconds is None


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The edited model, every setting that was chosen, what was not covered and why, and facts worth keeping.

    ``unguarded`` says that nothing kept the step from making the edited objective worse: then the report warns.
    ``solved`` says that both heads are minima on the edited data, ``fresh`` that training began from fresh weights.
    ``certified`` is the record of a release under a promise of certified removal.
    """

    model: ConceptBottleneck
    settings: dict[str, Any]
    not_covered: dict[str, str] = dataclasses.field(default_factory=dict)
    facts: Facts = dataclasses.field(default_factory=Facts)
    unguarded: bool = False
    solved: bool = False
    fresh: bool = False
    certified: dict[str, Any] | None = None


Method = Callable[[Alignment, EditorState, Options], Outcome]
