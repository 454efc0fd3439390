"""What an attacker is taken to know, and what no audit of this kind can tell."""

from __future__ import annotations

from typing import Any

__all__ = ["limits", "threat_model"]


def threat_model(*, frozen: bool) -> dict[str, Any]:
    """The threat model in words."""
    knows = [
        "the recipe, and every training sample but those of the audit",
        "each sample in question with its labels; only whether the model has learnt from it is open",
    ]
    if not frozen:
        knows.append("not the seed of the training")
    return {
        "attacker_sees": "the probabilities of class and concepts that the model gives for any input",
        "attacker_knows": knows,
        "attacker_does": "trains models with and without the samples and compares what they say of each of them",
        "attacker_does_not_see": [
            "the weights, earlier versions, or two models side by side: whoever has the model before and after an "
            "edit can reconstruct a removed sample, which is why an erasure destroys the one before",
            "files from which the data came, exports and backups",
        ],
        "owner": "an audit cannot catch an owner who lies: who shows another model than the one in use passes it",
    }


def limits(depth: str, *, what: str, frozen: bool) -> list[str]:
    """What the result does not say."""
    words = ["passing means that these attacks saw nothing; it is no proof against every other attack"]
    if depth == "quick":
        return [
            "it recomputes what the report says about the model; it makes no attack on it",
            "weights that follow from exchanged data and a ledger made anew: 'ecbm check --replay' finds those",
        ]
    if what == "rehearsal":
        words.append(
            "it rehearses the method on samples that are still here; those that are erased for good are not here "
            "to be tested"
        )
    if not frozen:
        words.append(
            "a deep backbone differs from training to training; few references see little, and the controls say "
            "how much"
        )
    if depth == "release":
        words.append("what is tested are the samples of the pool; others may be easier to see")
    return words
