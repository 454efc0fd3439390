"""One scenario of ``fidelity.py``: every method and every control from every original seed, judged on test data."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from typing import Any

import torch

import ecbm
from ecbm.edit.alignment import Alignment, align
from ecbm.show.reproduce.candidates import Candidate, edited, fine_tuning, more_training_control, neg_grad
from ecbm.show.reproduce.judging import Judge, Predictions, closed, predictions
from ecbm.show.reproduce.scenarios import SCENARIOS
from ecbm.show.reproduce.store import Store
from ecbm.verify.fidelity import mean_interval, recovery, recovery_interval

__all__ = ["HEADLINES", "SEED", "periodic", "run_scenario", "seeds_of"]

# Headlines are shown at all budgets, the others at the smallest and the largest.
BUDGETS, ENDS = (0.05, 0.1, 0.2), (0.05, 0.2)
SEED = 17
# Rows with all budgets and five original seeds; the others have three.
HEADLINES = ("labels, systematic", "labels, 10 % random", "new concepts")


def seeds_of(setting: str, scenario: str, quick: bool) -> tuple[int, ...]:
    """Original seeds, and as many retrained ones. Heads on frozen features come out the same under every seed."""
    if setting.endswith("linear"):
        return (0, 1)
    many = scenario in HEADLINES and (scenario != "new concepts" or setting.startswith("birds"))
    return (0, 1, 2, 3, 4) if many and not quick else (0, 1, 2)


# -- the rows ------------------------------------------------------------------------------------------------


def candidates(
    editor: ecbm.Editor, edit: ecbm.Edit, alignment: Alignment, budgets: tuple[float, ...], hessian: bool
) -> Iterator[Candidate]:
    """Every row but no-op and retraining."""
    linear = editor.model.recipe.is_linear
    exact_heads = not linear
    heads = " + heads" if exact_heads else ""
    yield edited(editor, edit, "exact" if linear else "heads only", "exact")
    written = {"damping": 0.0 if linear else 0.1, "guarded": False}
    yield edited(editor, edit, "ekfac, as written", "ekfac", **written)
    yield edited(editor, edit, "ekfac", "ekfac")
    if hessian:
        if linear:
            yield edited(editor, edit, "hessian, as written", "hessian", **written)
        yield edited(editor, edit, "hessian", "hessian")
    for budget in () if linear else budgets:
        yield edited(editor, edit, f"auto, budget {budget:.0%}", "auto", budget=budget)
    for budget in budgets:
        name = f"fine-tuning{heads}, {budget:.0%}"
        yield fine_tuning(editor, alignment, budget, name, exact_heads=exact_heads)
        if not linear:
            yield more_training_control(editor, alignment, budget, f"more training + heads, {budget:.0%}")
    budget = budgets[-1]
    if not linear:
        yield fine_tuning(editor, alignment, budget, f"fine-tuning, {budget:.0%}", exact_heads=False)
    if len(alignment.samples.gone):
        yield neg_grad(editor, alignment, budget, f"NegGrad+{heads}, {budget:.0%}", exact_heads=exact_heads)


def _with_hessian(recipe: ecbm.Recipe, scenario: str, seed: int, quick: bool) -> bool:
    """CG on the exact Hessian takes longer than retraining once there is a backbone."""
    if recipe.is_linear:
        return True
    return not quick and seed == 0 and recipe.backbone == "mlp" and scenario == "labels, systematic"


# -- one scenario --------------------------------------------------------------------------------------------


def run_scenario(
    store: Store, setting: str, data: ecbm.Dataset, recipe: ecbm.Recipe, scenario: str, quick: bool
) -> list[dict[str, Any]]:
    before, after = SCENARIOS[scenario](data, SEED)
    edit = ecbm.Edit.between(before, after)
    test = before.split("test") if scenario == "harmful concepts removed" else data.split("test")
    names = [name for name in before.concept_names if name in after.concept_names]
    judged = list(after.concept_names) if scenario == "new concepts" else names
    seeds = seeds_of(setting, scenario, quick)
    retrained_models = [store.model(after, recipe.replace(seed=seed)) for seed in seeds]
    seconds = statistics.median(m.provenance.training["seconds"] for m in retrained_models)
    metric = "class_accuracy" if scenario == "poisoned samples removed" else "concept_accuracy"
    retrained = zip(seeds, retrained_models, strict=True)
    judge = Judge({seed: predictions(model, test, names) for seed, model in retrained}, metric)
    originals = {seed: store.model(before, recipe.replace(seed=seed)) for seed in (seeds[:1] if quick else seeds)}
    starts = {seed: predictions(model, test, names) for seed, model in originals.items()}
    original = statistics.fmean(start[metric] for start in starts.values())
    harmful = recovery(judge.reached, original, judge.reached, judge.spread) is not None
    if scenario == "new concepts":
        known = dict(zip(seeds, retrained_models, strict=True))
        judge, starts, harmful = _with_new_concepts(known, originals, after, judged, judge)
    budgets = BUDGETS if scenario in HEADLINES and not quick else ENDS
    budgets = budgets[-1:] if recipe.is_linear else budgets
    collected: dict[str, list[dict[str, Any]]] = {}
    for seed, model in originals.items():
        start = starts[seed]
        editor = ecbm.Editor(model, before)
        alignment = align(model, before, edit, after)
        collected.setdefault("no-op", []).append(judge.entry(start, start, seed) | {"seconds": 0.0})
        with_hessian = _with_hessian(recipe, scenario, seed, quick)
        for one in candidates(editor, edit, alignment, budgets, with_hessian):
            entries = [judge.entry(predictions(m, test, judged), start, seed) for m in one.models]
            if entries:
                best = max(entries, key=lambda e: e["gained"] if harmful else e["closure"] or 0.0)
                collected.setdefault(one.name, []).append(best | {"seconds": one.seconds} | one.notes)
            elif one.notes.get("note"):
                collected.setdefault(one.name, []).append(one.notes)
        floor = judge.entry(judge.retrained[seed], start, seed, leave_out=True)
        collected.setdefault("retrain (noise floor)", []).append(floor | {"seconds": seconds})
    f1 = statistics.fmean(r["class_f1"] for r in judge.retrained.values())
    return [
        _summary(setting, scenario, name, entries, seconds, f1, harmful, len(originals))
        for name, entries in collected.items()
    ]


def _with_new_concepts(
    retrained: dict[int, ecbm.ConceptBottleneck],
    originals: dict[int, ecbm.ConceptBottleneck],
    after: ecbm.Dataset,
    judged: list[str],
    known: Judge,
) -> tuple[Judge, dict[int, Predictions], bool]:
    """All concepts count. Without the edit a new one is predicted at its share of positives in training."""
    test, train = after.split("test"), after.split("train")
    judge = Judge({s: predictions(m, test, judged) for s, m in retrained.items()}, known.metric)
    starts = {}
    for seed, model in originals.items():
        here = [judged.index(name) for name in model.concept_names]
        usual = train.concepts[:, [after.concept_index(name) for name in judged]].nanmean(0)
        shown = usual.to(torch.float64).expand(len(test), -1).clone()
        shown[:, here] = torch.sigmoid(model.concept_logits(test.inputs)).double()
        truth = test.concepts[:, [after.concept_index(name) for name in judged]]
        right = ((shown > 0.5) == (truth > 0.5)).double().masked_fill(truth.isnan(), torch.nan)
        figures = predictions(model, test, list(model.concept_names))
        starts[seed] = figures | {"concepts": shown, "concept_accuracy": float(right.nanmean(0).mean())}
    return judge, starts, True


def _summary(
    setting: str,
    scenario: str,
    name: str,
    entries: list[dict[str, Any]],
    retraining: float,
    f1: float,
    harmful: bool,
    seeds: int,
) -> dict[str, Any]:
    def values(key: str) -> list[float]:
        return [entry[key] for entry in entries if entry.get(key) is not None]

    def mean(key: str) -> float | None:
        return statistics.fmean(values(key)) if values(key) else None

    def half(key: str) -> float | None:
        return mean_interval(values(key)).half if values(key) else None

    share = recovery_interval(values("gained"), values("to_gain")) if harmful and values("gained") else None
    seconds, class_f1 = mean("seconds"), mean("class_f1")
    return {
        "setting": setting,
        "scenario": scenario,
        "row": name,
        "closure": mean("closure"),
        "closure_half": half("closure"),
        "same_seed_closure": mean("same_seed_closure"),
        "class_closure": mean("class_closure"),
        "recovery": None if share is None else share.mean,
        "recovery_half": None if share is None else share.half,
        "class_f1": class_f1,
        "f1_gap_to_retraining": abs(class_f1 - f1) if class_f1 is not None else None,
        "concept_accuracy": mean("concept_accuracy"),
        "class_accuracy": mean("class_accuracy"),
        "seconds": seconds,
        "speed_up": retraining / seconds if seconds else None,
        "share_of_retraining": seconds / retraining if seconds is not None else None,
        "share_of_work": mean("share_of_work"),
        "per_seed": [{k: v for k, v in entry.items() if k != "note"} for entry in entries],
        "seeds": len(values("gained")),
        "of_seeds": seeds,
        "note": next((entry["note"] for entry in entries if entry.get("note")), ""),
    }


def periodic(
    store: Store, setting: str, data: ecbm.Dataset, recipe: ecbm.Recipe, rounds: int
) -> list[dict[str, Any]]:
    """The systematic correction in ``rounds`` parts, edits applied on edits; closure after each."""
    before, after = SCENARIOS["labels, systematic"](data, SEED)
    whole = ecbm.Edit.between(before, after).correct_concepts
    test, names = data.split("test"), list(data.concept_names)
    retrained = [store.model(after, recipe.replace(seed=seed)) for seed in (0, 1, 2)]
    target = torch.stack([predictions(m, test, names)["concepts"] for m in retrained]).mean(0)
    model = store.model(before, recipe)
    start = predictions(model, test, names)["concepts"]
    editor = ecbm.Editor(model, before)
    rows = []

    def row(name: str, model: ecbm.ConceptBottleneck, seconds: float) -> dict[str, Any]:
        figures = predictions(model, test, names)
        return {
            "setting": setting,
            "scenario": "periodic",
            "row": name,
            "closure": closed(figures["concepts"], start, target),
            "concept_accuracy": figures["concept_accuracy"],
            "class_f1": figures["class_f1"],
            "seconds": seconds,
        }

    for index in range(rounds):
        part = whole[index * len(whole) // rounds : (index + 1) * len(whole) // rounds]
        started = time.process_time()
        result = editor.apply(ecbm.Edit(correct_concepts=part))
        rows.append(row(f"auto, round {index + 1}", result.model, time.process_time() - started))
        editor = editor.follow(result)
    started = time.process_time()
    at_once = ecbm.Editor(model, before).apply(ecbm.Edit(correct_concepts=whole))
    return [*rows, row("auto, all at once", at_once.model, time.process_time() - started)]
