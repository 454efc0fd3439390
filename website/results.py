"""The list of full runs, docs/results/README.md, from JSON files: ``python website/results.py`` writes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results"
NAMES = {"cub": "CUB-200-2011, features", "wbcatt": "WBCAtt, pictures"}
# In the order of the report.
ORDER = ("table1", "ratios", "concept-importance", "harmful", "periodic", "membership", "visual", "bounds")


def runs(folder: Path = RESULTS) -> dict[str, list[dict[str, Any]]]:
    """What was found, by dataset, in the order of the report."""
    found: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(folder.glob("*/*.json")):
        found.setdefault(path.parent.name, []).append(json.loads(path.read_text("utf-8")))
    return {name: sorted(own, key=lambda one: ORDER.index(one["experiment"])) for name, own in found.items()}


def listing(folder: Path = RESULTS) -> str:
    """The page."""
    lines = [
        "# Full runs",
        "",
        "Every experiment of [`ecbm reproduce`](../reproduce.md) that was run in full: a page with sentences,",
        "figure and tables, the figure alone (SVG), the numbers (CSV), and all of it with command, seeds,",
        "settings, versions and machine (JSON). [The paper's figures beside ours](../paper.md) says what follows.",
    ]
    for name, found in runs(folder).items():
        setting = (found[0].get("setting") or found[0]["words"]).rstrip(".")
        lines += ["", f"## {NAMES.get(name, name)}", "", f"{setting}.", ""]
        lines += ["| experiment | what it shows | files |", "|---|---|---|"]
        for one in found:
            place = f"{name}/{one['experiment']}"
            files = [f"[{ending.upper()}]({place}.{ending})" for ending in ("svg", "csv", "json")]
            files = [link for link in files if (folder / link[link.index("(") + 1 : -1]).exists()]
            said = one.get("summary", "").replace("|", r"\|")
            lines.append(f"| [{one['title']}]({place}.md) | {said} | {' '.join(files)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    (RESULTS / "README.md").write_text(listing(), "utf-8")
