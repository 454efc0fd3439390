"""Figures by matplotlib: colours and marks for print and for the colour-blind, the same bytes every time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ecbm.errors import InputError
from ecbm.show.reproduce.findings import Figure, number

__all__ = ["STYLES", "legend_below", "lines", "points", "require_matplotlib", "save_figure", "style_of"]

# Okabe and Ito's colours, which the colour-blind can tell apart; in grey print marks and dashes do.
STYLES: dict[str, tuple[str, str, str]] = {
    "retrain": ("#000000", "D", "-"),
    "auto": ("#0072B2", "o", "-"),
    "exact (heads only)": ("#009E73", "s", "-."),
    "ekfac guarded (ECBM)": ("#D55E00", "^", "--"),
    "ekfac as written (ECBM)": ("#E69F00", "v", ":"),
    "hessian guarded (CBM-IF)": ("#CC79A7", "P", "--"),
    "fine-tuning of equal work": ("#56B4E9", "X", ":"),
    "no-op": ("#999999", ".", ":"),
}
_SPARE = (("#0072B2", "o", "-"), ("#D55E00", "s", "--"), ("#009E73", "^", "-."), ("#CC79A7", "v", ":"))
_SETTINGS: Any = {
    "svg.hashsalt": "ecbm",
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "legend.frameon": False,
    "lines.markersize": 5,
    "figure.facecolor": "white",
}


def require_matplotlib() -> None:
    """Say at once what is missing, before an hour of work."""
    try:
        import matplotlib
    except ImportError:
        raise InputError("figures need matplotlib; install it with: pip install 'ecbm[reproduce]'") from None
    matplotlib.use("Agg")


def style_of(name: str, place: int = 0) -> dict[str, Any]:
    """Colour, mark and dashes of a series."""
    colour, mark, dashes = STYLES.get(name, _SPARE[place % len(_SPARE)])
    return {"color": colour, "marker": mark, "linestyle": dashes}


def lines(
    axis: Any,
    series: Mapping[str, Sequence[tuple[float, float, float | None]]],
    x_label: str,
    y_label: str,
    title: str,
) -> None:
    """Lines through (x, y, half or ``None``), one a name; halves are drawn as bars."""
    for place, (name, points) in enumerate(series.items()):
        known = [point for point in points if point[1] is not None]
        if not known:
            continue
        xs, ys, halves = zip(*known, strict=True)
        errors = [half or 0.0 for half in halves] if any(halves) else None
        axis.errorbar(xs, ys, yerr=errors, capsize=2, label=name, **style_of(name, place))
    axis.set_xlabel(x_label)
    axis.set_ylabel(y_label)
    axis.set_title(title)
    axis.grid(axis="y", color="#dddddd", linewidth=0.6)


def points(axis: Any, rows: Sequence[Mapping[str, Any]], key: str, spread: str, named: bool) -> None:
    """One point a method, from below, with its spread; what went far astray stands at the edge with its number."""
    known = sorted(row[key] for row in rows if row[key] is not None)
    rest = known[1:] or known
    width = max(rest[-1] - rest[0], 0.02) if rest else 1.0
    edge = rest[0] - width if rest else 0.0
    for place, row in enumerate(rows):
        if row[key] is None:
            continue
        colour, mark, _ = STYLES[row["method"]]
        astray = row[key] < edge
        half = None if astray else row[spread]
        shape = "<" if astray else mark
        axis.errorbar(max(row[key], edge), place, xerr=half, color=colour, marker=shape, capsize=2)
        if astray:
            shown = number(row[key])
            axis.annotate(shown, (edge, place), xytext=(6, -3), textcoords="offset points", fontsize=7)
    axis.set_yticks(range(len(rows)), [row["method"] if named else "" for row in rows], fontsize=7)
    axis.set_ylim(-0.6, len(rows) - 0.4)
    axis.locator_params(axis="x", nbins=3)
    axis.grid(axis="x", color="#dddddd", linewidth=0.6)


def legend_below(figure: Any, most: int = 4) -> None:
    """One legend for all panels, in lines that are equally long."""
    handles: dict[str, Any] = {}
    for axis in figure.axes:
        found, names = axis.get_legend_handles_labels()
        handles |= dict(zip(names, found, strict=True))
    columns = max(1, -(-len(handles) // max(1, -(-len(handles) // most))))
    if handles:
        figure.legend(handles.values(), handles.keys(), loc="lower center", ncols=columns, fontsize=8)
    inches = 0.1 + 0.2 * -(-len(handles) // columns)
    figure.tight_layout(rect=(0, inches / figure.get_figheight(), 1, 1))


def save_figure(found: Figure, folder: Path, stem: str) -> tuple[Path, Path]:
    """Draw a figure and write it as SVG and PNG."""
    import matplotlib
    from matplotlib.figure import Figure as Canvas

    paths = folder / f"{stem}.svg", folder / f"{stem}.png"
    with matplotlib.rc_context(_SETTINGS):
        canvas = Canvas(figsize=found.size)
        found.draw(canvas)
        canvas.savefig(paths[0], metadata={"Date": None})
        canvas.savefig(paths[1], dpi=160, metadata={"Software": None})
    return paths
