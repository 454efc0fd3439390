"""One scenario of ``fidelity.py``: every method and every control from every original seed, judged on test data."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

import ecbm
from ecbm.edit.alignment import Alignment, align
from ecbm.verify.fidelity import (
    affordable_steps,
    closure,
    fine_tuned,
    mean_interval,
    more_training,
    recovery,
    recovery_interval,
)
from fidelity_scenarios import SCENARIOS
from fidelity_store import Store

__all__ = ["HEADLINES", "SEED", "periodic", "run_scenario", "seeds_of"]

# Headlines are shown at all budgets, the others at the smallest and the largest.
BUDGETS, ENDS = (0.05, 0.1, 0.2), (0.05, 0.2)
RATES = (0.1, 0.3)
SEED = 17
# Rows with all budgets and five original seeds; the others have three.
HEADLINES = ("labels, systematic", "labels, 10 % random", "new concepts")
# NegGrad+: the share of the forgotten samples' loss. A twentieth is what its authors' code starts from.
ASCENT = 0.05

Predictions = dict[str, Any]


def seeds_of(setting: str, scenario: str, quick: bool) -> tuple[int, ...]:
    """Original seeds, and as many retrained ones. Heads on frozen features come out the same under every seed."""
    if setting.endswith("linear"):
        return (0, 1)
    many = scenario in HEADLINES and (scenario != "new concepts" or setting.startswith("birds"))
    return (0, 1, 2, 3, 4) if many and not quick else (0, 1, 2)


# -- figures -------------------------------------------------------------------------------------------------


def predictions(model: ecbm.ConceptBottleneck, test: ecbm.Dataset, names: list[str]) -> Predictions:
    logits = model.concept_logits(test.inputs)
    figures = ecbm.evaluate(model, test.replace(
        concepts=test.concepts[:, [test.concept_index(n) for n in model.concept_names]],
        concept_names=model.concept_names,
    ), logits=logits)  # fmt: skip
    columns = [model.concept_names.index(name) for name in names if name in model.concept_names]
    concepts = torch.sigmoid(logits[:, columns]) if len(columns) == len(names) else None
    shared = [figures["per_concept"][name]["accuracy"] for name in names if name in model.concept_names]
    return {
        "concepts": concepts,
        "classes": model.classify(logits),
        "class_f1": figures["class_f1"],
        "class_accuracy": figures["class_accuracy"],
        "concept_accuracy": statistics.fmean(shared),
    }


def closed(edited: Tensor | None, original: Tensor | None, retrained: Tensor | None) -> float | None:
    """Closure where the models share the concepts to compare."""
    return None if edited is None or original is None or retrained is None else closure(edited, original, retrained)


# -- the rows ------------------------------------------------------------------------------------------------

Candidate = tuple[str, list[ecbm.ConceptBottleneck], float, dict[str, Any]]
"""Name, models (several where a grid is tried and the best counts), seconds of one, and what is worth noting."""


def candidates(
    editor: ecbm.Editor, edit: ecbm.Edit, alignment: Alignment, budgets: tuple[float, ...], hessian: bool
) -> Iterator[Candidate]:
    """Every row but no-op and retraining; seconds are the processor's."""
    linear, peak = editor.model.recipe.is_linear, editor.model.recipe.peak_learning_rate

    def edited(name: str, method: str, **options: Any) -> Candidate:
        if linear:
            editor.apply(edit, method, **options)  # what is kept is fitted, and is not what the edit costs
        elif method == "ekfac":
            editor.state.concept_curvature("true")
        started = time.process_time()
        try:
            result = editor.apply(edit, method, **options)
        except ecbm.EcbmError as error:
            return name, [], math.nan, {"note": str(error)}
        seconds = time.process_time() - started
        settings = result.report["settings"]
        note = {"note": result.report.get("warning", "") or str(settings.get("kept_rung", ""))}
        return name, [result.model], seconds, note | {"share_of_work": settings.get("share_spent")}

    yield edited("exact" if linear else "heads only", "exact")
    yield edited("ekfac, as written", "ekfac", damping=0.0 if linear else 0.1, guarded=False)
    yield edited("ekfac", "ekfac")
    if hessian:
        if linear:
            yield edited("hessian, as written", "hessian", damping=0.0, guarded=False)
        yield edited("hessian", "hessian")
    for budget in () if linear else budgets:
        # Maps and the wandering of the model on its data are kept between edits.
        editor.apply(edit, "auto", budget=budget)
        yield edited(f"auto, budget {budget:.0%}", "auto", budget=budget)

    def control(name: str, models: Callable[[], list[ecbm.ConceptBottleneck | None]], tried: int) -> Candidate:
        started = time.process_time()
        found = [model for model in models() if model is not None]
        return name, found, (time.process_time() - started) / tried, {}

    rates = [rate * peak for rate in RATES]
    for budget in budgets:
        steps = affordable_steps(alignment, budget, exact_heads=not linear)
        yield control(
            f"fine-tuning{'' if linear else ' + heads'}, {budget:.0%}",
            lambda steps=steps: [
                fine_tuned(editor, alignment, steps, rate, exact_heads=not linear) for rate in rates
            ],
            len(rates),
        )
        if not linear:
            yield control(
                f"more training + heads, {budget:.0%}",
                lambda budget=budget: [more_training(editor, alignment, budget)],
                1,
            )
    budget = budgets[-1]
    steps = affordable_steps(alignment, budget, exact_heads=False)
    if not linear:
        yield control(
            f"fine-tuning, {budget:.0%}",
            lambda: [fine_tuned(editor, alignment, steps, rate) for rate in rates],
            len(rates),
        )
    if len(alignment.samples.gone):
        climbing = affordable_steps(alignment, budget, exact_heads=not linear) // 2
        yield control(
            f"NegGrad+{'' if linear else ' + heads'}, {budget:.0%}",
            lambda: [
                fine_tuned(editor, alignment, climbing, rate, exact_heads=not linear, ascent=ASCENT)
                for rate in rates
            ],
            len(rates),
        )


def _with_hessian(recipe: ecbm.Recipe, scenario: str, seed: int, quick: bool) -> bool:
    """CG on the exact Hessian takes longer than retraining once there is a backbone."""
    if recipe.is_linear:
        return True
    return not quick and seed == 0 and recipe.backbone == "mlp" and scenario == "labels, systematic"


# -- one scenario --------------------------------------------------------------------------------------------


class _Judge:
    """What retraining reaches, and how a model from one original seed compares with it."""

    def __init__(self, retrained: list[Predictions], metric: str) -> None:
        self.retrained, self.metric = retrained, metric
        self.target = self._mean(retrained)
        self.reached = statistics.fmean(r[metric] for r in retrained)
        self.spread = statistics.stdev(r[metric] for r in retrained)

    @staticmethod
    def _mean(members: list[Predictions]) -> dict[str, Tensor | None]:
        return {
            key: None if members[0][key] is None else torch.stack([m[key] for m in members]).mean(0)
            for key in ("concepts", "classes")
        }

    def entry(self, figures: Predictions, start: Predictions, seed: int, leave_out: bool = False) -> dict[str, Any]:
        """Figures of one model; with ``leave_out`` it is the retrained model of that seed, against the others."""
        target = self.target
        if leave_out:
            target = self._mean([r for index, r in enumerate(self.retrained) if index != seed])
        same = None if leave_out else self.retrained[seed]["concepts"]
        return {
            "closure": closed(figures["concepts"], start["concepts"], target["concepts"]),
            "same_seed_closure": closed(figures["concepts"], start["concepts"], same),
            "class_closure": closed(figures["classes"], start["classes"], target["classes"]),
            "gained": figures[self.metric] - start[self.metric],
            "to_gain": self.reached - start[self.metric],
            **{key: figures[key] for key in ("class_f1", "concept_accuracy", "class_accuracy")},
        }


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
    judge = _Judge([predictions(model, test, names) for model in retrained_models], metric)
    originals = {seed: store.model(before, recipe.replace(seed=seed)) for seed in (seeds[:1] if quick else seeds)}
    starts = {seed: predictions(model, test, names) for seed, model in originals.items()}
    original = statistics.fmean(start[metric] for start in starts.values())
    harmful = recovery(judge.reached, original, judge.reached, judge.spread) is not None
    if scenario == "new concepts":
        judge, starts, harmful = _with_new_concepts(retrained_models, originals, after, judged, judge)
    budgets = BUDGETS if scenario in HEADLINES and not quick else ENDS
    budgets = budgets[-1:] if recipe.is_linear else budgets
    collected: dict[str, list[dict[str, Any]]] = {}
    for seed, model in originals.items():
        start = starts[seed]
        editor = ecbm.Editor(model, before)
        alignment = align(model, before, edit, after)
        collected.setdefault("no-op", []).append(judge.entry(start, start, seed) | {"seconds": 0.0})
        with_hessian = _with_hessian(recipe, scenario, seed, quick)
        for name, models, cost, notes in candidates(editor, edit, alignment, budgets, with_hessian):
            entries = [judge.entry(predictions(m, test, judged), start, seed) for m in models]
            if entries:
                best = max(entries, key=lambda e: e["gained"] if harmful else e["closure"] or 0.0)
                collected.setdefault(name, []).append(best | {"seconds": cost} | notes)
            elif notes.get("note"):
                collected.setdefault(name, []).append(notes)
        floor = judge.entry(judge.retrained[seed], start, seed, leave_out=True)
        collected.setdefault("retrain (noise floor)", []).append(floor | {"seconds": seconds})
    f1 = statistics.fmean(r["class_f1"] for r in judge.retrained)
    return [
        _summary(setting, scenario, name, entries, seconds, f1, harmful, len(originals))
        for name, entries in collected.items()
    ]


def _with_new_concepts(
    retrained: list[ecbm.ConceptBottleneck],
    originals: dict[int, ecbm.ConceptBottleneck],
    after: ecbm.Dataset,
    judged: list[str],
    known: _Judge,
) -> tuple[_Judge, dict[int, Predictions], bool]:
    """All concepts count. Without the edit a new one is predicted at its share of positives in training."""
    test, train = after.split("test"), after.split("train")
    judge = _Judge([predictions(model, test, judged) for model in retrained], known.metric)
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
