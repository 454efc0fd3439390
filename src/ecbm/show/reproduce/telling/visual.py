"""The ten most influential concepts of some classes, by editing and by retraining, beside a picture."""

from __future__ import annotations

from typing import Any

from ecbm.show.reproduce.case import Case
from ecbm.show.reproduce.findings import Column, Detail, Figure, Findings, Table, mean_of, number
from ecbm.show.reproduce.telling.comparisons import Values
from ecbm.show.reproduce.telling.concept_importance import agreement, beyond_chance
from ecbm.show.reproduce.telling.prose import joined, of_all, whole

COLUMNS = (
    Column("class", "class"),
    Column("rank", "rank"),
    Column("theorem", "theorem 4.3"),
    Column("auto", "auto"),
    Column("retrain", "retraining"),
)
_KINDS = ("theorem", "auto", "retrain")


def tell(case: Case, values: Values) -> Findings:
    """Rankings side by side, and how many of the first they share."""
    classes: dict[str, dict[str, Any]] = {}
    changes: dict[str, dict[str, dict[str, float]]] = {}
    for piece, value in values:
        if piece.options["kind"] == "influence":
            classes = value["classes"]
            continue
        for kind in ("auto", "retrain"):
            for name, change in value[kind]["changes"].items():
                changes.setdefault(name, {}).setdefault(kind, {})[piece.options["concept"]] = change
    for name, found in classes.items():
        removed = changes[name]["retrain"]
        changes[name]["theorem"] = {concept: found["influences"][concept] for concept in removed}
    top = min(int(case.setting("top")), len(next(iter(changes.values()))["retrain"]))
    ranked = {
        name: {kind: sorted(of, key=of.__getitem__, reverse=True)[:top] for kind, of in found.items()}
        for name, found in changes.items()
    }
    rows = [
        {"class": name, "rank": place + 1, **{kind: found[kind][place] for kind in _KINDS}}
        for name, found in ranked.items()
        for place in range(top)
    ]
    caption = (
        f"The {top} most influential concepts of a class by editing and by retraining, with what the model says of "
        "the picture: ● present, ○ absent; names in both lists are dark"
    )
    size = (9, 0.6 + 2.2 * len(classes))
    figure = Figure("", caption, lambda canvas: _draw(canvas, case, classes, ranked), size)
    lead = leading(changes, top)
    summary = in_short(changes, top)
    details = [Detail("By class", by_class(changes, top))]
    table = Table("", "", COLUMNS, rows)
    return Findings("visual", case.setting("title"), [table], [figure], summary, lead, details)


Changes = dict[str, dict[str, dict[str, float]]]
"""Changes of the class loss by class, kind and concept."""

_WAYS = {"auto": "auto", "theorem": "theorem 4.3"}


def in_short(changes: Changes, top: int) -> str:
    """What editing and retraining share in the mean over classes."""
    count = len(next(iter(changes.values()))["retrain"])
    shared = mean_of([agreement(of["auto"], of["retrain"], top)[0] for of in changes.values()]) or 0.0
    return (
        f"Of a class's {top} most influential concepts auto and retraining share {whole(shared)} in the mean "
        f"(chance: {whole(top * top / count)}; the paper: 9 of 10)."
    )


def leading(changes: Changes, top: int) -> list[str]:
    """How many of the first concepts editing and the theorem share with retraining, beside chance."""
    count, said = len(next(iter(changes.values()))["retrain"]), []
    for kind, what in _WAYS.items():
        found = [agreement(of[kind], of["retrain"], top) for of in changes.values()]
        shared, correlation = (mean_of([one[place] for one in found]) or 0.0 for place in (0, 1))
        beyond = sum(beyond_chance([one], top, count) for one in found)
        said.append(
            f"{what} shares {whole(shared)} with retraining in the mean, which is beyond chance for "
            f"{of_all(beyond, len(found), 'classes')} (Spearman's correlation over all {count}: "
            f"{number(correlation)})"
        )
    return [f"Of a class's {top} most influential concepts {'; '.join(said)}.", _chance(top, count)]


def _chance(top: int, count: int) -> str:
    return f"Two random rankings share {whole(top * top / count)} of {top}; the paper reports 9 of 10."


def by_class(changes: Changes, top: int) -> list[str]:
    """Shared concepts of every class."""
    said = []
    for kind, what in _WAYS.items():
        shared = (f"{agreement(of[kind], of['retrain'], top)[0]} for {name}" for name, of in changes.items())
        said.append(f"Shared by {what} and retraining, of {top}: {joined(shared)}.")
    return said


def _draw(canvas: Any, case: Case, classes: dict[str, Any], ranked: dict[str, Any]) -> None:
    pictures = len(case.data.inputs.shape) == 3
    axes = canvas.subplots(len(classes), 3, squeeze=False, width_ratios=(1, 1.3, 1.3))
    for line, (name, found) in zip(axes, classes.items(), strict=True):
        predicted = dict(zip(case.data.concept_names, found["predicted"], strict=True))
        for axis in line:
            axis.axis("off")
        if pictures:
            image = case.data.inputs.raw([case.data.row(found["sample"])])[0]
            line[0].imshow(image.permute(1, 2, 0).numpy(), interpolation="nearest")
        words = f"{name}: {found['sample']}\n(taken for {found['says']})"
        if pictures:
            line[0].set_title(words, fontsize=8)
        else:
            line[0].text(0.5, 0.5, words, ha="center", va="center", fontsize=8)
        for axis, kind, title in zip(line[1:], ("auto", "retrain"), ("auto", "retraining"), strict=True):
            other = ranked[name]["retrain" if kind == "auto" else "auto"]
            axis.set_title(title, fontsize=8)
            concepts = ranked[name][kind]
            for place, concept in enumerate(concepts):
                mark = "●" if predicted[concept] > 0.5 else "○"
                colour = "#000000" if concept in other else "#888888"
                height = 1 - (place + 0.5) / len(concepts)
                axis.text(0.0, height, f"{place + 1:2d}  {mark}  {concept}", fontsize=7, color=colour, va="center")
    canvas.tight_layout()
