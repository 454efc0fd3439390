"""What is proven about an edit, in one sentence, with what it leaves out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ecbm.show.serve.changes import Certificate
from ecbm.show.serve.words import number_words

__all__ = ["certificate_of", "certificate_of_summary"]

_NOT = Certificate(
    state="not_certified",
    words="Not certified. This method comes without a proof. Use exact.",
    leaves_out="",
    could_differ=None,
    of=None,
)


def certificate_of(report: Mapping[str, Any], pictures: bool = True) -> Certificate:
    """The certificate of an edit's report."""
    found = report.get("certificate")
    if report.get("method") == "retrain" and not found:
        return _NOT.model_copy(
            update={"words": "Trained anew: this is what an edit is compared with, not a proof."}
        )
    if not found:
        return _NOT
    could, of = found.get("class_predictions_that_could_differ"), found.get("validation_samples")
    bound = found.get("largest_prediction_change")
    unit = str((report.get("drift") or {}).get("unit", ""))
    thing = "pictures" if pictures else "records"
    backbone = "no_certificate_for_backbone" in report
    leaves_out = "The picture reader stays as it is and is not covered." if backbone and pictures else ""
    if backbone and not leaves_out:
        leaves_out = "The network before the concepts is not covered."
    start = "Retraining both heads to the end on the corrected labels would"
    if str(found.get("covers", "")).startswith("the label head"):
        start = "Solving the last layer to the end would"
        leaves_out = "The concepts themselves are not covered."
    if could is None:
        if bound is None:
            return _NOT
        far = _at_most(bound, unit)
        words = f"{start} move no prediction of the {of} validation {thing} by more than {far}."
        return Certificate(
            state="at_most", words=words, leaves_out=leaves_out, could_differ=None, of=of, bound=bound
        )
    which = "none" if could == 0 else f"at most {could}"
    words = f"{start} decide {which} of the {of} validation {thing} differently."
    return Certificate(
        state="none_differ" if could == 0 else "at_most",
        words=words,
        leaves_out=leaves_out,
        could_differ=could,
        of=of,
    )


def _at_most(bound: float, unit: str) -> str:
    """A bound as people need it: a millionth or a billionth of the unit are the same to them."""
    return number_words(max(bound, 0.001), unit)


def certificate_of_summary(summary: Mapping[str, Any], of: int | None) -> Certificate | None:
    """The certificate of a version as its summary keeps it, which an erasure leaves."""
    could, bound = summary.get("class_predictions_that_could_differ"), summary.get("prediction_change_bound")
    if summary.get("method") in (None, "train", "import"):
        return None
    if could is None and bound is None:
        return _NOT
    if could is None:
        far = _at_most(float(bound or 0), str(summary.get("unit", "")))
        words = f"No prediction is farther than {far} from exact."
        return Certificate(state="at_most", words=words, leaves_out="", could_differ=None, of=of, bound=bound)
    which = "None" if could == 0 else f"At most {could}"
    leaves_out = "The picture reader is not covered." if summary.get("heads_only") else ""
    return Certificate(
        state="none_differ" if could == 0 else "at_most",
        words=f"{which} of the validation pictures could be decided differently by retraining.",
        leaves_out=leaves_out,
        could_differ=could,
        of=of,
    )
