"""How many labels are wrong, where the features were learnt from the labels themselves.

Such features agree with wrong labels too, which hides some of them; the order suffers little, the count does. The
validation samples were not learnt from, and as a rule the same people labelled them, so how often labels are wrong
is read off them, and the chances of the others are moved to add up to it.

It is not always so: training labels that were corrected by an edit are better than validation labels, which edits
do not reach. Then, and where validation labels are checked ones, the two sides differ by more than learning could
hide, and each is counted on its own.
"""

from __future__ import annotations

from torch import Tensor

from ecbm.verify.suggest import rates
from ecbm.verify.suggest.evidence import Records

__all__ = ["counted", "slip_rate"]

# Learning hid two thirds of the slips at most (drawn birds, 2,800 samples; 1, 5 and 20 %) and half of a pattern's
# errors.
_HIDDEN_SLIPS, _HIDDEN_BY_PATTERN = 5.0, 2.0
_UNKNOWN = 1e-3


def slip_rate(records: Records, logits: Tensor, concepts: Tensor) -> tuple[float, bool]:
    """The rate of random slips over the given concepts (k,), and whether training labels are like validation
    labels.
    """
    some = concepts.nonzero().flatten()
    if not len(some):
        return _UNKNOWN, True

    def on(rows: Tensor) -> float:
        at = rows.nonzero().flatten()[:, None], some[None, :]
        return rates.fit_slips(logits[at], records.labels[at], records.weights[at]).rate

    held = on(records.held)
    if bool(records.held.all()):
        return held, True
    learnt = on(~records.held)
    alike = held <= max(_HIDDEN_SLIPS * learnt, _UNKNOWN) and learnt <= max(_HIDDEN_SLIPS * held, _UNKNOWN)
    return (held if alike else learnt), alike


def counted(
    records: Records, wrong: Tensor, free: Tensor, patterns: list[Tensor], rate: float, alike: bool
) -> tuple[Tensor, bool]:
    """Chances (n, k) whose sums are right, and whether training labels are like validation labels throughout.

    ``free`` (k,) marks concepts without a pattern, ``patterns`` are the concepts of each.
    """
    weights, held = records.weights, records.held
    learnt = (~held).nonzero().flatten()
    wrong = wrong.clone()

    def moved_to(share: float, some: Tensor) -> None:
        at = learnt[:, None], some[None, :]
        wrong[at] = rates.with_sum(wrong[at], weights[at], share * float(weights[at].sum()))

    if alike:
        moved_to(rate, free.nonzero().flatten())
    for some in patterns:
        shares = [
            float(wrong[rows][:, some].sum()) / max(float(weights[rows][:, some].sum()), 1e-9)
            for rows in (held, ~held)
        ]
        if shares[0] <= _HIDDEN_BY_PATTERN * shares[1] and shares[1] <= _HIDDEN_BY_PATTERN * shares[0]:
            moved_to(shares[0], some)
        else:
            alike = False
    return wrong, alike
