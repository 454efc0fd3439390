"""What a dataset holds, as ``ecbm describe`` shows it."""

from __future__ import annotations

import math
from typing import Any

from ecbm.show.cli.common import say
from ecbm.show.tables import print_table

__all__ = ["show_overview"]

_BAR = 10


def show_overview(found: dict[str, Any]) -> None:
    """Print the tables of an :func:`ecbm.read.overview.overview`."""
    splits = list(found["splits"])
    rows = [
        [
            name,
            f"{count:,}",
            _share(count / found["samples"]),
            *(f"{found['classes_by_split'][s][name]:,}" for s in splits),
        ]
        for name, count in sorted(found["classes"].items(), key=lambda pair: -pair[1])
    ]
    if rows:
        print_table(["class", "samples", "share", *splits], rows, title="Classes", drop=("share", *splits))
    if "target" in found:
        _show_target(found["target"])
    rows = []
    numbers = {name for name, kind in found["types"].items() if kind == "continuous"}
    for name, figures in found["concepts"].items():
        if name in numbers:
            continue
        by_class = {c: share for c, share in found["concepts_by_class"][name].items() if share == share}
        most = max(by_class, key=lambda c: by_class[c]) if by_class else ""
        words = f"{most} ({_share(by_class[most])})" if most else "–"
        rows.append([name, _share(figures["mean"]), _bar(figures["mean"]), _share(figures["missing"]), words])
    headers = ["concept", "present", " " * _BAR, "missing", "most often in"]
    if rows:
        print_table(headers, rows, title="Concepts", drop=(headers[2], "most often in"), names=("most often in",))
    _show_measurements(found, numbers)
    pairs = found["together"]
    if pairs:
        rows = [
            [*pair["concepts"], f"{pair['correlation']:+.2f}", "–" if pair["both"] is None else f"{pair['both']:,}"]
            for pair in pairs
        ]
        headers = ["concept", "and", "correlation", "both present"]
        title = "Go together (+) or apart (−), of different groups"
        print_table(headers, rows, title=title, drop=("both present",), names={"and": 24})
    empty = [name for name, count in found["classes"].items() if not count]
    if empty:
        say(f"no sample has the class {', '.join(empty)}")


def _show_target(target: dict[str, Any]) -> None:
    ends = [f"{target[end]:.4g}" if end in target else "–" for end in ("lowest", "highest")]
    spread = f"{target['mean']:.4g} ± {target['deviation']:.3g}" if "deviation" in target else "–"
    headers = ["target", "unit", "mean", "lowest", "highest"]
    print_table(headers, [[target["name"], target["unit"], spread, *ends]], title="To be predicted", drop=("unit",))


def _show_measurements(found: dict[str, Any], numbers: set[str]) -> None:
    rows = []
    for name, figures in found["concepts"].items():
        if name in numbers:
            by_class = {c: mean for c, mean in found["concepts_by_class"][name].items() if mean == mean}
            most = max(by_class, key=lambda c: by_class[c]) if by_class else ""
            ends = [f"{figures[end]:.4g}" if end in figures else "–" for end in ("lowest", "highest")]
            spread = f"{figures['mean']:.4g} ± {figures['deviation']:.3g}" if "deviation" in figures else "–"
            words = f"{most} ({by_class[most]:.4g})" if most else "–"
            rows.append([name, figures["unit"], spread, *ends, _share(figures["missing"]), words])
    if rows:
        headers = ["measurement", "unit", "mean", "lowest", "highest", "missing", "highest in"]
        print_table(headers, rows, title="Measurements", drop=("highest in", "unit"), names=("highest in",))


def _share(value: float | None) -> str:
    return "–" if value is None or math.isnan(value) else f"{value:.1%}"


def _bar(value: float | None) -> str:
    full = 0 if value is None or math.isnan(value) else round(value * _BAR)
    return "█" * full + "·" * (_BAR - full)
