"""From figures to a verdict. Controls come first: a test that cannot see the unedited model cannot clear an
edit.
"""

from __future__ import annotations

import dataclasses

from ecbm.verify.audit.intervals import Difference, Interval

__all__ = ["Comparison", "Verdict", "decide"]

CHANCE = 0.5


@dataclasses.dataclass(frozen=True)
class Comparison:
    """AUCs of the forgotten samples in the unedited, the edited and the retrained model, and their differences
    (the second at 99 %).
    """

    noop: Interval
    edit: Interval
    retrain: Interval
    noop_minus_edit: Difference
    edit_minus_retrain: Difference


@dataclasses.dataclass(frozen=True)
class Verdict:
    """``passed``, ``failed`` or ``inconclusive``, and why in words."""

    verdict: str
    why: str


def caught(found: Interval) -> bool:
    """Whether the samples can be told from such that were never there."""
    return found.low > CHANCE


def decide(found: Comparison) -> Verdict:
    """The verdict; nothing is called erased by a test whose controls did not come out as they must."""
    noop, edit, retrain = found.noop, found.edit, found.retrain
    blind = "inconclusive: this test could not have seen it"
    if not caught(noop):
        return Verdict(
            "inconclusive",
            f"{blind}; even in the unedited model the samples do not look like members (AUC {_said(noop)})",
        )
    if caught(retrain):
        return Verdict(
            "inconclusive",
            f"{blind} rightly; a model that never saw the samples is taken to have (AUC {_said(retrain)})",
        )
    if caught(edit):
        return Verdict(
            "failed", f"the samples can still be told from such that were never there (AUC {_said(edit)})"
        )
    if found.edit_minus_retrain.low > 0:
        return Verdict("failed", f"the samples look more like members than after retraining {_apart(found)}")
    if edit.high < CHANCE and found.edit_minus_retrain.high < 0:
        return Verdict(
            "failed",
            "the samples look less like members than such that were never there, which gives them away too "
            f"{_apart(found)}",
        )
    if found.noop_minus_edit.low <= 0:
        return Verdict("inconclusive", f"{blind}; the edited model cannot be told from the unedited one")
    return Verdict(
        "passed",
        f"the samples cannot be told from such that were never there (AUC {_said(edit)}); in the unedited model "
        f"they could (AUC {_said(noop)}), after retraining they could not (AUC {_said(retrain)})",
    )


def _said(found: Interval) -> str:
    return f"{found.auc:.3f}, 95 % interval {found.low:.3f} to {found.high:.3f}"


def _apart(found: Comparison) -> str:
    gap = found.edit_minus_retrain
    return f"(AUC {gap.difference:+.3f} against it, 99 % interval {gap.low:+.3f} to {gap.high:+.3f})"
