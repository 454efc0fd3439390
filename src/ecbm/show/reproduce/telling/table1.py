"""Table 1 as a table, a figure and sentences."""

from __future__ import annotations

from typing import Any

from ecbm.show.reproduce.case import Case
from ecbm.show.reproduce.comparing import METHODS, NO_OP, RETRAIN
from ecbm.show.reproduce.figures import points
from ecbm.show.reproduce.findings import Column, Detail, Figure, Findings, Table
from ecbm.show.reproduce.telling.comparisons import AUTO, WRITTEN, Level, Values, collected, row_of
from ecbm.show.reproduce.telling.prose import capital, joined, of_all, percent, shown, span

COLUMNS = (
    Column("edit", "edit"),
    Column("method", "method"),
    Column("class_f1", "F1 ± sd", ".4f", "class_f1_sd"),
    Column("concept_accuracy", "concept accuracy", ".4f"),
    Column("closure", "closure, concepts", ".2f", "closure_half"),
    Column("class_closure", "closure, classes", ".2f", "class_closure_half"),
    Column("seconds", "seconds", ".3g"),
    Column("speed_up", "× faster", ".3g"),
    Column("preparation", "kept before, s", ".3g"),
    Column("missing", "not run because"),
)
_NO_HESSIAN = (
    "CBM-IF (the exact Hessian) was not run: with a backbone that is trained its conjugate gradients take longer "
    "than retraining."
)


def tell(case: Case, values: Values) -> Findings:
    """Rows of every level and method; who ends closer to retraining and in what time, and what F1 can tell."""
    found = collected(values)
    rows = [
        row_of(title, name, entries[name])
        for title, entries in found.items()
        for name in (NO_OP, *METHODS.values(), RETRAIN)
        if name in entries
    ]
    kinds = {piece.title: piece.options["level"] for piece, _ in values}
    levels = {
        title: Level(entries, "class" if kinds[title] == "concepts" else "concept")
        for title, entries in found.items()
    }
    details = [Detail(capital(shown(title)), about(level)) for title, level in levels.items()]
    if not case.setting("hessian"):
        details.append(Detail("Not run", [_NO_HESSIAN]))
    figure = Figure(
        "", "F1 and closure of every method at every level", lambda canvas: _draw(canvas, rows, levels), (9, 4.2)
    )
    said = ends(levels)
    lead = [said, f1_effect(levels), *seeds(levels)]
    table = Table("", "", COLUMNS, rows)
    return Findings(
        "table1", case.setting("title"), [table], [figure], f"{said} {f1_effect(levels)}", lead, details
    )


def about(level: Level) -> list[str]:
    """One level: what F1 can tell, who is closest, who loses, and what it costs."""
    said = [level.effect("class_f1", "F1"), *level.standing(), level.against_tuning(), level.times()]
    return [sentence for sentence in said if sentence]


def ends(levels: dict[str, Level]) -> str:
    """Where ``auto`` and the paper's step end over all levels."""
    known = [level for level in levels.values() if AUTO in level.closures]
    if not known:
        return "No method was run."
    shares = [share for level in known if (share := level.share(AUTO))]
    time = f" in {_between(shares)} of retraining's time" if shares else ""
    if not any(level.repeated for level in known):
        reached = span([level.closures[AUTO].mean for level in known])
        return f"One repetition, so without intervals: the closure of auto is {reached},{time}."
    closer = [level.closures[AUTO].mean for level in known if level.closer(AUTO)]
    closures = f" (closure {span(closer)})" if closer else ""
    said = (
        f"Edited by auto, the model ends closer to retraining than the unedited one at "
        f"{of_all(len(closer), len(known), 'levels')}{closures},{time}"
    )
    farther = sum(level.farther(AUTO) for level in known)
    if farther:
        said += f", and farther away at {farther}"
    written = [level for level in levels.values() if WRITTEN in level.closures]
    if written:
        nearer, away = (sum(getattr(level, way)(WRITTEN) for level in written) for way in ("closer", "farther"))
        said += f"; by the paper's step as written it does at {of_all(nearer, len(written), 'levels')}"
        said += f", and ends farther away at {away}" if away else ""
    return f"{said}."


def _between(shares: list[float]) -> str:
    low, high = percent(min(shares)), percent(max(shares))
    return low if low == high else f"{low} to {high}"


def f1_effect(levels: dict[str, Level]) -> str:
    """At how many levels F1 can tell an edit from no edit at all."""
    moved = {title: found for title, level in levels.items() if (found := level.moved("class_f1")) is not None}
    if not any(found.half is not None for found in moved.values()):
        return "With one repetition no change of F1 has an interval."
    certain = {title: found for title, found in moved.items() if found.certain}
    if not certain:
        return (
            f"Retraining itself changes F1 beyond its interval at {of_all(0, len(moved), 'levels')}: a score near "
            "retraining's does not tell an edit from no edit here."
        )
    listed = joined(f"{shown(title)} ({found.words()})" for title, found in certain.items())
    rest = (
        ""
        if len(certain) == len(moved)
        else "; elsewhere a score near retraining's does not tell an edit from none"
    )
    return f"Retraining itself changes F1 beyond its interval for {listed}{rest}."


def seeds(levels: dict[str, Level]) -> list[str]:
    """Where retraining under another seed is no closer to a retrained model than the unedited model is."""
    known = {title: level.seeds for title, level in levels.items() if level.seeds is not None}
    lost = [shown(title) for title, value in known.items() if value is not None and value <= 0]
    if not lost:
        return []
    return [
        f"At {of_all(len(lost), len(known), 'levels')} two retrained models lie farther from each other than the "
        f"unedited model lies from them ({'; '.join(lost)}): there no edit can be seen to hit."
    ]


def _draw(canvas: Any, rows: list[dict[str, Any]], levels: dict[str, Level]) -> None:
    """Every method a line of points, every level a column: F1 above, closure below."""
    axes = canvas.subplots(2, len(levels), squeeze=False)
    for column, (title, level) in enumerate(levels.items()):
        own = [row for row in rows if row["edit"] == title][::-1]
        points(axes[0][column], own, "class_f1", "class_f1_sd", column == 0)
        points(axes[1][column], own, level.key, f"{level.key}_half", column == 0)
        axes[0][column].set_title(shown(title))
        axes[0][column].set_xlabel("F1")
        axes[1][column].set_xlabel(f"closure, {'classes' if level.of == 'class' else 'concepts'}")
    canvas.tight_layout()
