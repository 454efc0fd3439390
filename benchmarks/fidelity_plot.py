"""The rows of ``fidelity.py`` as a plot: how much of retraining's gain an edit has, against the work it takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["plot"]

# Colour-blind safe (Okabe and Ito), and told apart by their marks too.
_SERIES = {
    "auto, budget ": ("ecbm", "#0072B2", "o", "-"),
    "fine-tuning + heads, ": ("fine-tuning, heads solved", "#D55E00", "s", "--"),
    "more training + heads, ": ("the same steps, old labels", "#999999", "^", ":"),
}
_PANELS = (
    ("birds, convnet", "labels, systematic", "birds: an annotator overlooks five marks"),
    ("birds, convnet", "labels, 10 % random", "birds: a tenth of the labels wrong"),
    ("WBCAtt, convnet", "labels, systematic", "blood cells: five concepts overlooked"),
    ("WBCAtt, convnet", "labels, 10 % random", "blood cells: a tenth of the labels wrong"),
)


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    """One panel a scenario; nothing edited is 0, retraining is 1."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = [panel for panel in _PANELS if any((r["setting"], r["scenario"]) == panel[:2] for r in rows)]
    if not panels:
        raise SystemExit("no rows to plot: run the birds or WBCAtt label scenarios first")
    across = min(2, len(panels))
    down = -(-len(panels) // across)
    figure, axes = pyplot.subplots(down, across, figsize=(4.6 * across, 3.0 * down), squeeze=False, sharex=True)
    for axis, (setting, scenario, title) in zip(axes.flat, panels, strict=False):
        own = [r for r in rows if (r["setting"], r["scenario"]) == (setting, scenario)]
        axis.axhline(1.0, color="black", linewidth=1)
        axis.annotate("retraining", (0.003, 1.01), fontsize=8, va="bottom")
        axis.axhline(0.0, color="black", linewidth=0.5)
        heads = next((r["recovery"] for r in own if r["row"] == "heads only"), None)
        for start, (name, colour, mark, line) in _SERIES.items():
            found = [r for r in own if r["row"].startswith(start) and r.get("recovery") is not None]
            shares = [float(r["row"].rsplit(" ", 1)[-1].removesuffix("%")) / 100 for r in found]
            values = [r["recovery"] for r in found]
            halves = [r.get("recovery_half") or 0.0 for r in found]
            axis.errorbar(
                shares, values, yerr=halves, color=colour, marker=mark, linestyle=line, capsize=3, label=name
            )
        if heads is not None:
            axis.axhline(
                heads, color="#009E73", linewidth=1, linestyle="-.", label="both heads solved, backbone left"
            )
        axis.set_title(title, fontsize=10)
        axis.set_xlim(0, 0.22)
        axis.set_xticks([0.05, 0.1, 0.2], ["5 %", "10 %", "20 %"])
        axis.set_yticks([0, 0.5, 1], ["0 %", "50 %", "100 %"])
        axis.spines[["top", "right"]].set_visible(False)
    for axis in axes[:, 0]:
        axis.set_ylabel("retraining's gain recovered", fontsize=9)
    for axis in axes[-1]:
        axis.set_xlabel("share of retraining's work", fontsize=9)
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=2, fontsize=8, frameon=False)
    figure.tight_layout(rect=(0, 0.1, 1, 1))
    figure.savefig(path, dpi=150)
