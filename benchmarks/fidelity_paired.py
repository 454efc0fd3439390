"""``auto`` against every control of the same work, paired by original seed: what its rows gain or lose."""

from __future__ import annotations

import statistics
from typing import Any

from ecbm.verify.fidelity import mean_interval

__all__ = ["paired", "paired_markdown"]

_CONTROLS = ("heads only", "fine-tuning + heads, {}", "more training + heads, {}", "NegGrad+ + heads, {}")


def paired(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Differences in recovery and closure with 95 % intervals, where both sides have every seed."""
    cases: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for row in rows:
        cases.setdefault((row["setting"], row["scenario"]), {})[row["row"]] = row
    found = []
    for (setting, scenario), members in cases.items():
        for name, ours in members.items():
            if not name.startswith("auto, budget"):
                continue
            budget = name.rsplit(" ", 1)[-1]
            for control in (one.format(budget) for one in _CONTROLS):
                other = members.get(control)
                if other is not None and len(other["per_seed"]) == len(ours["per_seed"]) > 1:
                    case = {"setting": setting, "scenario": scenario, "budget": budget, "control": control}
                    found.append(case | _differences(ours, other))
    return found


def _differences(ours: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    pairs = list(zip(ours["per_seed"], other["per_seed"], strict=True))
    out: dict[str, Any] = {"seeds": len(pairs)}
    if ours["recovery"] is not None:
        whole = statistics.fmean(one["to_gain"] for one, _ in pairs)
        recovery = mean_interval([(one["gained"] - two["gained"]) / whole for one, two in pairs])
        out |= {"recovery": recovery.mean, "recovery_half": recovery.half}
    if all(one["closure"] is not None and two["closure"] is not None for one, two in pairs):
        closure = mean_interval([one["closure"] - two["closure"] for one, two in pairs])
        out |= {"closure": closure.mean, "closure_half": closure.half}
    return out


def paired_markdown(rows: list[dict[str, Any]]) -> str:
    """The differences as a table."""

    def text(row: dict[str, Any], key: str) -> str:
        value, half = row.get(key), row.get(f"{key}_half")
        if value is None or half is None:
            return "–"
        beyond = "**" if abs(value) > half else ""
        return f"{beyond}{value:+.2f}{beyond} ± {half:.2f}"

    lines = ["| setting | scenario | budget | control | recovery | closure |", "|---|---|---:|---|---:|---:|"]
    for row in paired(rows):
        cells = [row["setting"], row["scenario"], row["budget"], row["control"].rsplit(", ", 1)[0]]
        lines.append(f"| {' | '.join([*cells, text(row, 'recovery'), text(row, 'closure')])} |")
    return "\n".join(lines) + "\n"
