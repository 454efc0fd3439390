"""What a report says in sentences. Readers may be lawyers: no term of the trade stands without its meaning."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from ecbm.words import counted

__all__ = [
    "SPLITS", "certificate_of", "day_and_time", "described_model", "in_percent", "interval_words", "moved",
    "shown_name", "summary_of_version", "what_was_done", "with_unit", "written",
]  # fmt: skip

SPLITS = {"train": "training", "val": "validation", "test": "test"}
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_YES = {"yes", "true", "present", "1"}


def day_and_time(stamp: str) -> str:
    """A time of the ledger for people, in UTC: the same page for every reader.

    Examples
    --------
    >>> day_and_time("2026-05-12T09:05:07.123Z")
    '12 May 2026, 09:05 UTC'
    """
    try:
        found = datetime.fromisoformat(stamp).astimezone(UTC)
    except ValueError:
        return stamp
    return f"{found.day} {found:%B %Y, %H:%M} UTC"


def shown_name(name: str) -> str:
    """A concept's column as people say it.

    Examples
    --------
    >>> shown_name("eye_ring=yes"), shown_name("wing_color=blue"), shown_name("severity::>=2")
    ('eye ring', 'wing color: blue', 'severity: >=2')
    """
    for mark in ("::", "="):
        group, found, value = name.partition(mark)
        if found and group and value:
            group = group.replace("_", " ")
            return group if value.lower() in _YES else f"{group}: {value}"
    return name.replace("_", " ")


def in_percent(value: float | None, samples: int) -> str:
    """A share; one digit behind the point only where one sample is less than half a point.

    Examples
    --------
    >>> in_percent(0.9523, 480), in_percent(0.9523, 40), in_percent(None, 40)
    ('95.2 %', '95 %', '–')
    """
    if value is None or math.isnan(value):
        return "–"
    return f"{100 * value:.{1 if samples >= 200 else 0}f} %"


def written(value: float, digits: int) -> str:
    """A number with some digits; powers of ten as people write them, not to be broken over two lines.

    Examples
    --------
    >>> written(1234.5678, 4), written(4.06e-5, 2).replace("\\xa0", " ")
    ('1235', '4.1 × 10⁻⁵')
    """
    number, mark, power = f"{value:.{digits}g}".partition("e")
    if not mark:
        return number
    return f"{number}\u00a0×\u00a010{str(int(power)).translate(_RAISED)}"


def with_unit(value: float | None, unit: str) -> str:
    """A number in its unit."""
    return "–" if value is None or math.isnan(value) else f"{written(value, 4)} {unit}".strip()


def interval_words(figure: Mapping[str, Any], unit: str | None = None) -> str:
    """The interval of a share, or of a number in ``unit``: ``93 to 97 %``."""
    low, high = figure["low"], figure["high"]
    if low is None or math.isnan(low):
        return "–"
    if unit is not None:
        return f"{low:.4g} to {high:.4g} {unit}".strip()
    ends = [f"{math.floor(100 * low + 0.05):.0f}", f"{math.ceil(100 * high - 0.05):.0f}"]
    return f"{ends[0]} to {ends[1]} %"


def moved(change: Mapping[str, Any] | None, samples: int, unit: str | None = None) -> str:
    """A change, with its sign: points of a share, or a number in ``unit``."""
    if change is None or math.isnan(change["value"]):
        return "–"
    if unit is not None:
        return f"{change['value']:+.3g} {unit}".strip().replace("-", "−")
    text = f"{100 * change['value']:+.{1 if samples >= 200 else 0}f}"
    return "no change" if float(text) == 0 else f"{text} points".replace("-", "−")


def what_was_done(summary: Mapping[str, Any], noun: str) -> str:
    """The words of a version, about pictures where they are pictures.

    Examples
    --------
    >>> what_was_done({"words": "removed 2 samples"}, "picture")
    'removed 2 pictures'
    """
    return re.sub(r"(\d (?:\w+ing )?)sample(s?)\b", rf"\1{noun}\2", str(summary.get("words", "")))


def described_model(about: Mapping[str, Any], noun: str) -> str:
    """What the model does, in two sentences."""
    sizes = about["splits"]
    target = f"decides one of {len(about['classes']):,} classes"
    if about["number"]:
        target = f"predicts the number {about['target']}"
    reads = (
        f"Reads a {noun}, names {counted(about['concepts'], 'concept')}, and {target} from those concepts alone."
    )
    parts = [f"Trained on {counted(sizes.get('train', 0), noun)}"]
    parts += [f"chosen on {sizes['val']:,}"] if sizes.get("val") else []
    parts += [f"tested on {sizes['test']:,} that no training has seen"] if sizes.get("test") else []
    return f"{reads} {', '.join(parts)}."


def summary_of_version(content: Mapping[str, Any]) -> str:
    """The report in a few sentences."""
    version, noun = content["version"], content["noun"]
    who = f"by {version['author']}" if version["author"] else "by somebody whose name an erasure destroyed"
    start = f"Version {version['number']} was made {who} on {day_and_time(version['time'])}: {version['what']}"
    parts = [start + (f" (reason given: “{version['reason']}”)." if version["reason"] else ".")]
    if not version["kept"]:
        parts.append("Its weights and data were destroyed by an erasure; only what is said here is left of it.")
    split = "test" if "test" in content["figures"] else next(iter(content["figures"]), None)
    if split is not None:
        parts.append(_quality(content["figures"][split], split, noun))
        flips = content["predictions"].get(split)
        if flips is not None and not content["about"]["number"]:
            count = flips["changed"]
            words = f"{counted(count, noun)} changed class" if count else f"no {noun} changed class"
            parts.append(f"Against version {content['compared_with']}, {words}.")
    if content["certificate"]["proven"]:
        parts.append(f"Certified: {content['certificate']['words']}")
    return " ".join(parts)


def _quality(figures: Mapping[str, Any], split: str, noun: str) -> str:
    row, samples = figures["measures"][0], figures["samples"]
    where = f"On {counted(samples, f'{SPLITS[split]} {noun}')}"
    if row["kind"] == "class":
        before = f", before {in_percent(row['before']['value'], samples)}" if row["before"] else ""
        share = in_percent(row["after"]["value"], samples)
        return f"{where} the class is right in {share} (95 % interval {interval_words(row['after'])}){before}."
    unit = row["unit"]
    before = f", before {with_unit(row['before']['value'], unit)}" if row["before"] else ""
    value = with_unit(row["after"]["value"], unit)
    return f"{where} it is off by {value} on average (95 % interval {interval_words(row['after'], unit)}){before}."


def certificate_of(report: Mapping[str, Any] | None, kind: str, noun: str) -> dict[str, Any]:
    """The certificate in one sentence, and what it does not cover."""
    report = report or {}
    found = report.get("certificate")
    if not found:
        why = {
            "init": "There is no model yet, so there is nothing to prove.",
            "train": "This version was trained in full, not edited; there is no retraining to compare it with.",
        }.get(kind, "Nothing is proven about this version.")
        if report.get("destroyed_by_erasure"):
            why = "The certificate was destroyed by a later erasure, since its figures were made with erased data."
        return {"proven": False, "heading": "Not certified", "words": why, "not_covered": [], "values": None}
    where = counted(found["validation_samples"], f"validation {noun}")
    covers = str(found.get("covers", "both heads"))
    part = "the label head" if covers.startswith("the label head") else "both heads"
    bound = found.get("class_predictions_that_could_differ")
    last = "predict the number" if bound is None else "decide the class"
    part += f" (the parts that name the concepts and {last})" if part == "both heads" else ""
    proven, heading = True, "Certified"
    if bound is not None:
        how_many = "none" if bound == 0 else f"at most {bound:,}"
        heading = "Certified" if bound == 0 else f"Certified up to {bound:,}"
        words = f"Retraining {part} to the end on the same data would decide {how_many} of {where} differently."
        proven = bound < found["validation_samples"] or not found["validation_samples"]
    else:
        distance = found.get("largest_prediction_change")
        proven = distance is not None
        words = f"Retraining {part} to the end on the same data would move no prediction of {where} by more than "
        words += (
            "–." if distance is None else f"{with_unit(distance, (report.get('drift') or {}).get('unit', ''))}."
        )
    if not proven:
        heading, words = "Not certified", "The bound is too wide to say anything about this version."
    left_out = []
    if "no_certificate_for_backbone" in report or "given the backbone" in covers:
        left_out.append(
            f"the {noun} reader in front of the heads (the backbone): it is taken as it is, and nothing is proven "
            "about what it learnt"
        )
    if "given the concept head" in covers:
        left_out.append("the concept head, which this kind of model learns together with the rest")
    left_out += [f"{name}: {why}" for name, why in (report.get("not_covered") or {}).items()]
    left_out.append("whether the labels are right, and whether the model is good enough for its use")
    return {"proven": proven, "heading": heading, "words": words, "not_covered": left_out, "values": dict(found)}
