"""Membership scores before and after a removal."""

from __future__ import annotations

from typing import Any

from ecbm.show.reproduce.case import Case
from ecbm.show.reproduce.comparing import NO_OP, RETRAIN
from ecbm.show.reproduce.findings import Column, Detail, Figure, Findings, Table, cell, mean_of
from ecbm.show.reproduce.telling.comparisons import Values
from ecbm.show.reproduce.telling.prose import joined, short

COLUMNS = (
    Column("signal", "signal"),
    Column("model", "model"),
    Column("members", "score, removed", ".3f"),
    Column("others", "score, others", ".3f"),
    Column("auc", "AUC (95 %)", ".3f", between=("low", "high")),
    Column("gap", "AUC − retrained (95 %)", "+.3f", between=("gap_low", "gap_high")),
    Column("class_f1", "F1", ".4f"),
    Column("seconds", "seconds", ".3g"),
)
_AUC = COLUMNS[4]
_SIGNAL = {"class": "class signal", "concepts": "concept signal"}

Models = dict[str, dict[str, Any]]
"""Rows of one signal by model."""


def tell(case: Case, values: Values) -> Findings:
    """Means as in the paper, AUCs with intervals, and what the controls say; of several repetitions the mean."""
    collected: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for _, value in values:
        for one in value["rows"]:
            collected.setdefault((one["signal"], one["model"]), []).append(one)
    keys = [key for column in COLUMNS[2:] for key in column.keys]
    signals: dict[str, Models] = {}
    for (signal, model), found in collected.items():
        row: dict[str, Any] = {"signal": signal, "model": model}
        row |= {key: mean_of([one[key] for one in found]) for key in keys}
        signals.setdefault(signal, {})[model] = row
    rows = [row for own in signals.values() for row in own.values()]
    details = [Detail(_SIGNAL[signal].capitalize(), about(own)) for signal, own in signals.items()]
    figure = Figure(
        "", "Scores of removed members and of non-members before and after the removal (class signal)",
        lambda canvas: _draw(canvas, values[0][1]["rows"]), (9, 2.8),
    )  # fmt: skip
    lead = [verdict(signal, own) for signal, own in signals.items()]
    details.append(Detail("The test", [_test(values)]))
    table = Table("", "", COLUMNS, rows)
    return Findings("membership", case.setting("title"), [table], [figure], " ".join(lead), lead, details)


def _test(values: Values) -> str:
    first = values[0][1]
    return (
        f"{first['count']} training samples are removed; as many test samples are non-members, "
        f"{first['population']} others the population; {first['references']} reference models saw neither. A score "
        "is RMIA's in its offline form" + ("." if len(values) == 1 else f"; means of {len(values)} repetitions.")
    )


def works(own: Models) -> bool:
    """Whether the test tells the untouched model from the retrained one: else it can show nothing."""
    return bool(own[NO_OP]["gap_low"] > 0)


def _groups(own: Models) -> tuple[list[str], list[str], list[str]]:
    """Edits that are not told from retraining, whose members are easier to tell, and whose score lower."""
    rest = {name: row for name, row in own.items() if name not in (NO_OP, RETRAIN)}
    alike = [name for name, row in rest.items() if row["gap_low"] <= 0 <= row["gap_high"]]
    more = [name for name, row in rest.items() if row["gap_low"] > 0]
    return alike, more, [name for name, row in rest.items() if row["gap_high"] < 0]


def verdict(signal: str, own: Models) -> str:
    """One signal in a sentence."""
    name, before, retrained = _SIGNAL[signal], own[NO_OP]["auc"], own[RETRAIN]["auc"]
    if not works(own):
        return (
            f"The {name} does not tell the untouched model (AUC {before:.3f}) from the retrained one "
            f"({retrained:.3f}), so it cannot show that anything was erased: inconclusive."
        )
    alike, more, less = _groups(own)
    parts = [f"not told from retraining after {joined(short(one) for one in alike)}"] if alike else []
    parts += [f"still told after {joined(short(one) for one in more)}"] if more else []
    parts += [f"told by scores below retraining's after {joined(short(one) for one in less)}"] if less else []
    return (
        f"By the {name} the removed samples are told before the removal (AUC {before:.3f}, retrained "
        f"{retrained:.3f}); they are {joined(parts)}."
    )


def about(own: Models) -> list[str]:
    """What the test can see at all (no-op must be caught, retraining must pass), then the methods."""
    before, retrained = own[NO_OP], own[RETRAIN]
    said = [
        f"Before the removal members score {before['members']:.3f} and non-members {before['others']:.3f} in the "
        f"mean: AUC {cell(before, _AUC)}; after retraining {cell(retrained, _AUC)}."
    ]
    if not works(own):
        return [*said, "The untouched model is not caught: inconclusive."]
    listed = [joined(f"{short(name)} ({own[name]['auc']:.3f})" for name in names) for names in _groups(own)]
    words = (
        "Not told apart from retraining",
        "Members stay easier to tell than after retraining",
        "Members score lower than after retraining, which tells them too",
    )
    return [*said, *(f"{what}: {names}." for what, names in zip(words, listed, strict=True) if names)]


def _draw(canvas: Any, rows: list[dict[str, Any]]) -> None:
    own = [row for row in rows if row["signal"] == "class"]
    shown = [row for row in own if row["model"] in (NO_OP, "ekfac guarded (ECBM)", "auto", RETRAIN)]
    axes = canvas.subplots(1, len(shown), squeeze=False, sharey=True)[0]
    for axis, row in zip(axes, shown, strict=True):
        for scores, name, colour, style in zip(
            row["scores"], ("removed members", "non-members"), ("#D55E00", "#0072B2"), ("-", "--"), strict=True
        ):
            axis.hist(scores, bins=20, range=(0, 1), histtype="step", color=colour, linestyle=style, label=name)
        axis.set_title("before (no-op)" if row["model"] == NO_OP else row["model"])
        axis.set_xlabel(f"RMIA score, AUC {row['auc']:.3f}")
    axes[0].set_ylabel("samples")
    axes[0].legend(fontsize=7)
    canvas.tight_layout()
