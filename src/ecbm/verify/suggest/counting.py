"""How many labels are wrong, where the features were learnt from the labels themselves.

Such features agree with wrong labels too, which hides some of them; the order suffers little, the count does. The
validation samples were not learnt from, and as a rule the same people labelled them, so how often labels are wrong
is read off them, and the chances of the others are moved to add up to it.

It is not always so: training labels that were corrected by an edit are better than validation labels, which edits
do not reach. Then, and where validation labels are checked ones, the two sides differ by more than learning could
hide, and each is counted on its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ecbm.verify.suggest import rates
from ecbm.verify.suggest.evidence import Records
from ecbm.verify.suggest.exclusive import fit_choice

__all__ = ["counted", "slip_rate"]

# Learning hid two thirds of the slips at most (drawn birds, 2,800 samples; 1, 5 and 20 %) and half of a pattern's
# errors.
_HIDDEN_SLIPS, _HIDDEN_BY_PATTERN = 5.0, 2.0
_UNKNOWN = 1e-3


def slip_rate(records: Records, logits: Tensor, concepts: Tensor, lists: Sequence[Tensor]) -> tuple[float, bool]:
    """The rate of random slips over the given concepts (k,), and whether training labels are like validation
    labels.

    Columns of ``lists`` show their slips by not being one value; the others do so by curves alone.
    """
    chosen = [some for some in lists if bool(concepts[some].all())]
    single = concepts.clone()
    for some in lists:
        single[some] = False
    if not bool(single.any()) and not chosen:
        return _UNKNOWN, True

    def on(rows: Tensor) -> float:
        """Mean of the rates, weighted by the labels that each is from."""
        total = count = 0.0
        for some in ([single.nonzero().flatten()] if bool(single.any()) else []) + chosen:
            at = rows.nonzero().flatten()[:, None], some[None, :]
            part, nothing = (logits[at], records.labels[at], records.weights[at]), torch.zeros_like(logits[at])
            is_list = any(some is other for other in chosen)
            rate = fit_choice(*part, nothing, nothing).rate if is_list else rates.fit_slips(*part).rate
            total, count = total + rate * float(part[2].sum()), count + float(part[2].sum())
        return total / max(count, 1e-9)

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
