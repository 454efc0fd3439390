"""Membership scores before and after a removal."""

from __future__ import annotations

from typing import Any

from ecbm.show.reproduce.case import Case
from ecbm.show.reproduce.comparing import NO_OP, RETRAIN
from ecbm.show.reproduce.findings import Column, Figure, Findings, Table, mean_of
from ecbm.show.reproduce.telling.comparisons import Values, joined

COLUMNS = (
    Column("model", "model"),
    Column("signal", "signal"),
    Column("members", "mean score, removed members", ".4f"),
    Column("others", "mean score, non-members", ".4f"),
    Column("auc", "AUC", ".3f"),
    Column("low", "from", ".3f"),
    Column("high", "to", ".3f"),
    Column("gap", "AUC − retrained", "+.3f"),
    Column("gap_low", "from", "+.3f"),
    Column("gap_high", "to", "+.3f"),
    Column("class_f1", "F1", ".4f"),
    Column("seconds", "seconds", ".3g"),
)


def tell(case: Case, values: Values) -> Findings:
    """Means as in the paper, AUCs with intervals, and what the controls say; of several repetitions the mean."""
    collected: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for _, value in values:
        for one in value["rows"]:
            collected.setdefault((one["model"], one["signal"]), []).append(one)
    keys = [column.key for column in COLUMNS if column.key not in ("model", "signal")]
    rows = []
    for (model, signal), found in collected.items():
        row: dict[str, Any] = {"model": model, "signal": signal}
        rows.append(row | {key: mean_of([one[key] for one in found]) for key in keys})
    first = values[0][1]
    sentences = [
        f"{first['count']} training samples are removed; as many test samples are non-members, "
        f"{first['population']} others the population; {first['references']} reference models saw "
        "neither. A score is RMIA's, in its offline form; intervals are of 95 %"
        + ("." if len(values) == 1 else f", means of {len(values)} repetitions.")
    ]
    for signal in dict.fromkeys(row["signal"] for row in rows):
        own = {row["model"]: row for row in rows if row["signal"] == signal}
        sentences.append(_about(signal, own))
    figure = Figure(
        "", "Scores of removed members and of non-members before and after the removal (class signal)",
        lambda canvas: _draw(canvas, values[0][1]["rows"]), (9, 2.8),
    )  # fmt: skip
    return Findings("membership", case.setting("title"), [Table("", "", COLUMNS, rows)], [figure], sentences)


def _about(signal: str, own: dict[str, dict[str, Any]]) -> str:
    """What the test can see at all (no-op must be caught, retraining must pass), then the methods."""
    before, retrained = own[NO_OP], own[RETRAIN]
    said = (
        f"{'Class' if signal == 'class' else 'Concept'} signal: before the removal members score "
        f"{before['members']:.4f} and non-members {before['others']:.4f} in the mean, AUC {before['auc']:.3f} "
        f"({before['low']:.3f} to {before['high']:.3f}); after retraining {retrained['auc']:.3f} "
        f"({retrained['low']:.3f} to {retrained['high']:.3f})"
    )
    if before["gap_low"] <= 0:
        return (
            f"{said}. The test does not tell the untouched model from the retrained one, so it cannot show that "
            "anything was erased: inconclusive."
        )
    rest = {name: row for name, row in own.items() if name not in (NO_OP, RETRAIN)}
    alike = joined(
        f"{name} ({row['auc']:.3f})" for name, row in rest.items() if row["gap_low"] <= 0 <= row["gap_high"]
    )
    more = joined(f"{name} ({row['auc']:.3f})" for name, row in rest.items() if row["gap_low"] > 0)
    less = joined(f"{name} ({row['auc']:.3f})" for name, row in rest.items() if row["gap_high"] < 0)
    said += "."
    if alike:
        said += f" Not told apart from retraining: {alike}."
    if more:
        said += f" Members stay easier to tell than after retraining: {more}."
    if less:
        said += f" Members score lower than after retraining, which tells them too: {less}."
    return said


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
