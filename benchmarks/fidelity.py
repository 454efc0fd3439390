"""How close edits come to retraining, beside every control, on real data.

    python benchmarks/fidelity.py [--quick] [--only TEXT] [--data FOLDER] [--work FOLDER] [--json FILE]

Settings: CUB features with the linear backbone and with an MLP, WBCAtt pictures with the convnet. For each of them
and each scenario (``fidelity_scenarios.py``): no-op, heads only, fine-tuning for the same time with the best of
two learning rates (with and without exact heads; its closing solves are part of the work, so that a short budget
may leave none for it), ``hessian``, ``ekfac``, ``auto`` at budgets of 2, 5, 10 and 20 % of retraining, ``exact`` on
the frozen backbone, and retraining under three seeds. ``hessian`` takes longer than retraining once there is a
backbone (twice as long on the MLP, more than four times on pictures): beside the linear one it is run once.

closure   1 − d(edited, retrained)/d(original, retrained) over test probabilities, against the mean of the retrained
          seeds; "mean" is the closure of the change averaged over the original seeds; "floor" is one retrained seed
          against the mean of the others: what a change of seed alone gives.
recovery  share of the retrained models' gain in concept accuracy (class accuracy for poisoned samples), from means
          over the original seeds; "–" where retraining gains less than twice the spread of its seeds.
seconds   of the edit, with the features and curvature that are kept between edits at hand.

Trained models and finished rows are kept in ``--work``; a run that was interrupted goes on where it stopped.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import itertools
import json
import math
import os
import statistics
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

import ecbm
from ecbm.edit.alignment import Alignment, align
from ecbm.progress import silence
from ecbm.train.model import Provenance
from ecbm.verify.fidelity import affordable_steps, closure, fine_tuned, recovery
from fidelity_scenarios import SCENARIOS
from fidelity_tables import markdown, plot, show

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
BUDGETS = (0.02, 0.05, 0.1, 0.2)
RATES = (0.1, 0.3)
SEEDS = (0, 1, 2)


@functools.cache
def code_digest(*folders: str) -> str:
    """Of the package's sources, or of some of its folders: figures of other code are not mixed in."""
    package = Path(ecbm.__file__).parent
    digest = hashlib.blake2b(digest_size=10)
    for file in sorted(package.rglob("*.py")):
        parts = file.relative_to(package).parts
        if not folders or len(parts) == 1 or parts[0] in folders:
            digest.update(file.read_bytes())
    return digest.hexdigest()


class Store:
    """Trained models and finished rows on disk."""

    def __init__(self, folder: Path, quick: bool = False) -> None:
        self.folder, self.quick = folder, quick
        (folder / "models").mkdir(parents=True, exist_ok=True)
        self.rows = folder / "rows.jsonl"

    def model(self, data: ecbm.Dataset, recipe: ecbm.Recipe) -> ecbm.ConceptBottleneck:
        folder = self._folder(data, recipe)
        clock = folder.with_suffix(".seconds")
        if not clock.exists():
            model = ecbm.train(data, recipe)
            ecbm.save(model, folder)
            clock.write_text(str(model.provenance.training["seconds"]))
        model = ecbm.load(folder)
        training = {**model.provenance.training, "seconds": float(clock.read_text())}
        model.provenance = Provenance(model.provenance.data_fingerprint, training)
        return model

    def _folder(self, data: ecbm.Dataset, recipe: ecbm.Recipe) -> Path:
        trained_by = code_digest("read", "train")
        text = json.dumps([data.fingerprint, recipe.to_dict(), trained_by], sort_keys=True)
        return self.folder / "models" / hashlib.blake2b(text.encode(), digest_size=10).hexdigest()

    def missing(self, data: ecbm.Dataset, recipe: ecbm.Recipe) -> str | None:
        """The name of a model that is not trained yet."""
        folder = self._folder(data, recipe)
        return None if folder.with_suffix(".seconds").exists() else folder.name

    def finished(self) -> dict[str, list[dict[str, Any]]]:
        if not self.rows.exists():
            return {}
        found = [json.loads(line) for line in self.rows.read_text().splitlines() if line.strip()]
        return {entry["key"]: entry["rows"] for entry in found if entry.get("run") == self._run()}

    def finish(self, key: str, rows: list[dict[str, Any]]) -> None:
        with self.rows.open("a") as file:
            file.write(json.dumps({"key": key, "run": self._run(), "rows": rows}) + "\n")

    def _run(self) -> str:
        return f"{code_digest()}{' quick' if self.quick else ''}"


# -- figures -------------------------------------------------------------------------------------------------


def predictions(model: ecbm.ConceptBottleneck, test: ecbm.Dataset, names: list[str]) -> dict[str, Any]:
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


# -- one scenario --------------------------------------------------------------------------------------------


def candidates(
    editor: ecbm.Editor, edit: ecbm.Edit, alignment: Alignment, quick: bool, hessian: bool
) -> dict[str, tuple[list[ecbm.ConceptBottleneck], float, str]]:
    """Every row: models (several where a grid is tried and the best counts), seconds, and a note."""
    linear, peak = editor.model.recipe.is_linear, editor.model.recipe.peak_learning_rate
    out: dict[str, tuple[list[ecbm.ConceptBottleneck], float, str]] = {}

    def timed(name: str, method: str, **options: Any) -> None:
        if linear and method in ("exact", "ekfac"):
            editor.apply(edit, method, **options)  # what is kept is fitted, and is not what the edit costs
        try:
            result = editor.apply(edit, method, **options)
        except ecbm.EcbmError as error:
            out[name] = [], math.nan, str(error)
            return
        seconds = result.report["seconds"]["edit"] + result.report["seconds"]["prepare"]
        note = result.report.get("warning", "") or str(result.report["settings"].get("kept_rung", ""))
        out[name] = [result.model], seconds, note

    timed("exact" if linear else "heads only", "exact")
    timed("ekfac", "ekfac")
    if hessian:
        timed("hessian", "hessian")
    budgets = () if linear else ((0.05, 0.2) if quick else BUDGETS)
    for budget in budgets:
        timed(f"auto, budget {budget:.0%}", "auto", budget=budget)
    controls = {"fine-tuning": False} if linear else {"fine-tuning": False, "fine-tuning, heads exactly": True}
    for budget in budgets or (0.2,):
        for name, exact_heads in controls.items():
            steps = affordable_steps(alignment, budget, exact_heads=exact_heads)
            started = time.monotonic()
            tuned = [fine_tuned(editor, alignment, steps, rate * peak, exact_heads=exact_heads) for rate in RATES]
            seconds = (time.monotonic() - started) / len(RATES)
            models = [model for model in tuned if model is not None]
            if models:
                out[f"{name}, {budget:.0%}"] = models, seconds, "best of two learning rates on the test data"
    return out


def _with_hessian(recipe: ecbm.Recipe, scenario: str, seed: int, quick: bool) -> bool:
    """CG on the exact Hessian takes longer than retraining once there is a backbone."""
    if recipe.is_linear:
        return True
    return not quick and seed == 0 and recipe.backbone == "mlp" and scenario == "labels, systematic"


def run_scenario(
    store: Store, setting: str, data: ecbm.Dataset, recipe: ecbm.Recipe, scenario: str, quick: bool
) -> list[dict[str, Any]]:
    before, after = SCENARIOS[scenario](data, 17)
    edit = ecbm.Edit.between(before, after)
    test = data.split("test")
    if scenario == "harmful concepts removed":
        test = before.split("test")
    names = [name for name in before.concept_names if name in after.concept_names]
    retrained_models = [store.model(after, recipe.replace(seed=seed)) for seed in SEEDS]
    retrained = [predictions(model, test, names) for model in retrained_models]
    seconds = statistics.median(m.provenance.training["seconds"] for m in retrained_models)
    target = {key: torch.stack([r[key] for r in retrained]).mean(0) for key in ("concepts", "classes")}
    metric = "class_accuracy" if scenario == "poisoned samples removed" else "concept_accuracy"
    reached = statistics.fmean(r[metric] for r in retrained)
    spread = statistics.stdev(r[metric] for r in retrained)
    originals = SEEDS[:1] if quick else SEEDS
    collected: dict[str, list[dict[str, Any]]] = {}
    changes: dict[str, dict[int, Tensor]] = {}
    trained = {seed: store.model(before, recipe.replace(seed=seed)) for seed in originals}
    original = statistics.fmean(predictions(model, test, names)[metric] for model in trained.values())
    harmful = recovery(reached, original, reached, spread) is not None
    for seed, model in trained.items():
        start = predictions(model, test, names)

        def judge(model: ecbm.ConceptBottleneck, start: dict[str, Any] = start) -> dict[str, Any]:
            figures = predictions(model, test, names)
            return {
                "closure": closed(figures["concepts"], start["concepts"], target["concepts"]),
                "class_closure": closed(figures["classes"], start["classes"], target["classes"]),
                "gained": figures[metric] - start[metric],
                "to_gain": reached - start[metric],
                **{key: figures[key] for key in ("class_f1", "concept_accuracy", "class_accuracy")},
                "prediction": figures["concepts"],
            }

        editor = ecbm.Editor(model, before)
        alignment = align(model, before, edit, after)
        rows = {"no-op": ([model], 0.0, "")} | candidates(
            editor, edit, alignment, quick, hessian=_with_hessian(recipe, scenario, seed, quick)
        )
        for name, (models, cost, note) in rows.items():
            judged = [judge(m) for m in models]
            if not judged:
                collected.setdefault(name, []).append({"note": note})
                continue
            best = max(judged, key=lambda j: j["gained"] if harmful else j["closure"] or 0.0)
            prediction = best.pop("prediction")
            if prediction is not None:
                changes.setdefault(name, {})[seed] = prediction
            collected.setdefault(name, []).append({**best, "seconds": cost, "note": note})
        for index, figures in enumerate(retrained):
            others = {
                key: torch.stack([r[key] for i, r in enumerate(retrained) if i != index]).mean(0)
                for key in ("concepts", "classes")
            }
            collected.setdefault("retrain (noise floor)", []).append(
                {
                    "closure": closed(figures["concepts"], start["concepts"], others["concepts"]),
                    "class_closure": closed(figures["classes"], start["classes"], others["classes"]),
                    "gained": figures[metric] - start[metric],
                    "to_gain": reached - start[metric],
                    **{key: figures[key] for key in ("class_f1", "concept_accuracy", "class_accuracy")},
                    "seconds": seconds,
                    "note": "",
                }
            )
    f1 = statistics.fmean(r["class_f1"] for r in retrained)
    return [
        _summary(setting, scenario, name, entries, changes, target["concepts"], seconds, f1, harmful)
        for name, entries in collected.items()
    ]


def _summary(
    setting: str,
    scenario: str,
    name: str,
    entries: list[dict[str, Any]],
    changes: dict[str, dict[int, Tensor]],
    target: Tensor,
    retraining: float,
    f1: float,
    harmful: bool,
) -> dict[str, Any]:
    def mean(key: str) -> float | None:
        values = [entry[key] for entry in entries if entry.get(key) is not None]
        return statistics.fmean(values) if values else None

    average = None
    if name in changes and "no-op" in changes and len(changes[name]) > 1:
        unedited = torch.stack([changes["no-op"][seed] for seed in changes[name]]).mean(0)
        average = closed(torch.stack(list(changes[name].values())).mean(0), unedited, target)
    seconds, class_f1 = mean("seconds"), mean("class_f1")
    gained, to_gain = mean("gained"), mean("to_gain")
    share = gained / to_gain if harmful and gained is not None and to_gain else None
    seeds = len(changes.get(name, ()))
    return {
        "setting": setting,
        "scenario": scenario,
        "row": name,
        "closure": mean("closure"),
        "closure_of_mean_change": average,
        "class_closure": mean("class_closure"),
        "recovery": share,
        "class_f1": class_f1,
        "f1_gap_to_retraining": abs(class_f1 - f1) if class_f1 is not None else None,
        "concept_accuracy": mean("concept_accuracy"),
        "seconds": seconds,
        "speed_up": retraining / seconds if seconds else None,
        "share_of_retraining": seconds / retraining if seconds is not None else None,
        "per_seed": [{k: v for k, v in entry.items() if k != "note"} for entry in entries],
        "seeds": seeds,
        "note": next((entry["note"] for entry in entries if entry.get("note")), ""),
    }


def periodic(
    store: Store, setting: str, data: ecbm.Dataset, recipe: ecbm.Recipe, rounds: int
) -> list[dict[str, Any]]:
    """The systematic correction in ``rounds`` parts, edits applied on edits; closure after each."""
    before, after = SCENARIOS["labels, systematic"](data, 17)
    whole = ecbm.Edit.between(before, after).correct_concepts
    test, names = data.split("test"), list(data.concept_names)
    retrained = [store.model(after, recipe.replace(seed=seed)) for seed in SEEDS]
    target = torch.stack([predictions(m, test, names)["concepts"] for m in retrained]).mean(0)
    model = store.model(before, recipe)
    start = predictions(model, test, names)["concepts"]
    editor = ecbm.Editor(model, before)
    rows = []
    for index in range(rounds):
        part = whole[index * len(whole) // rounds : (index + 1) * len(whole) // rounds]
        result = editor.apply(ecbm.Edit(correct_concepts=part))
        seconds = result.report["seconds"]
        figures = predictions(result.model, test, names)
        rows.append(
            {
                "setting": setting,
                "scenario": "periodic",
                "row": f"auto, round {index + 1}",
                "closure": closed(figures["concepts"], start, target),
                "concept_accuracy": figures["concept_accuracy"],
                "class_f1": figures["class_f1"],
                "seconds": seconds["edit"] + seconds["prepare"],
            }
        )
        editor = editor.follow(result)
    at_once = ecbm.Editor(model, before).apply(ecbm.Edit(correct_concepts=whole))
    figures = predictions(at_once.model, test, names)
    rows.append(
        {
            "setting": setting,
            "scenario": "periodic",
            "row": "auto, all at once",
            "closure": closed(figures["concepts"], start, target),
            "concept_accuracy": figures["concept_accuracy"],
            "class_f1": figures["class_f1"],
        }
    )
    return rows


def settings(folder: Path, quick: bool) -> dict[str, tuple[ecbm.Dataset, ecbm.Recipe]]:
    if not (folder / "cub" / "samples.csv").is_file():
        small, epochs = ecbm.datasets.birds(n=1200 if quick else 3000, size=32), 6 if quick else 20
        tabular = ecbm.datasets.breast_cancer()
        return {
            "breast_cancer, linear": (tabular, ecbm.Recipe(backbone="linear")),
            "birds, convnet": (small, ecbm.Recipe(backbone="convnet", epochs=epochs)),
        }
    cub = ecbm.read_dataset(folder / "cub")
    cells = ecbm.read_dataset(folder / "wbcatt", image_size=(32, 32))
    if quick:
        rows = [row for row, split in enumerate(cells.splits) if split != "train"]
        train = [row for row, split in enumerate(cells.splits) if split == "train"][:3000]
        cells = cells.select(sorted([*train, *rows[:1500]]))
    return {
        "CUB, linear": (cub, ecbm.Recipe(backbone="linear")),
        "CUB, mlp": (cub, ecbm.Recipe(backbone="mlp")),
        "WBCAtt, convnet": (cells, ecbm.Recipe(backbone="convnet", epochs=8)),
    }


# -- several processes ---------------------------------------------------------------------------------------


@functools.cache
def _setting(folder: Path, quick: bool, name: str) -> tuple[ecbm.Dataset, ecbm.Recipe]:
    return settings(folder, quick)[name]


def _start_worker() -> None:
    torch.set_num_threads(1)
    silence()


def _train(work: Path, folder: Path, quick: bool, setting: str, scenario: str, side: int, seed: int) -> None:
    data, recipe = _setting(folder, quick, setting)
    Store(work).model(SCENARIOS[scenario](data, 17)[side], recipe.replace(seed=seed))


def _row(work: Path, folder: Path, quick: bool, setting: str, scenario: str) -> list[dict[str, Any]]:
    data, recipe = _setting(folder, quick, setting)
    if scenario == "periodic":
        return periodic(Store(work), setting, data, recipe, 3 if quick else 10)
    return run_scenario(Store(work), setting, data, recipe, scenario, quick)


def _to_train(store: Store, folder: Path, quick: bool, wanted: list[tuple[str, str]]) -> list[tuple[Any, ...]]:
    """The models that the wanted rows need and that are not there, each once, the dearest setting first."""
    tasks: dict[str, tuple[Any, ...]] = {}
    for setting, scenario in reversed(wanted):
        data, recipe = _setting(folder, quick, setting)
        name = "labels, systematic" if scenario == "periodic" else scenario
        pair = SCENARIOS[name](data, 17)
        for side, seed in itertools.product((0, 1), SEEDS):
            if quick and side == 0 and seed != SEEDS[0]:
                continue
            missing = store.missing(pair[side], recipe.replace(seed=seed))
            if missing is not None:
                tasks[missing] = setting, name, side, seed
    return list(tasks.values())


def main() -> None:
    # Before any worker starts: NumPy's and SciPy's BLAS read these when they are loaded.
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=SHARED)
    parser.add_argument("--work", type=Path, default=None, help="folder for models and finished rows")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path, help="the tables as text for docs/fidelity.md")
    parser.add_argument("--quick", action="store_true", help="fewer scenarios, one original seed (5 minutes)")
    parser.add_argument("--only", default="", help="only settings or scenarios that contain this text")
    parser.add_argument("--processes", type=int, default=min(2, os.cpu_count() or 1), help="one thread each")
    options = parser.parse_args()
    quick, folder = options.quick, options.data
    work = options.work or Path("results") / ("fidelity-quick" if quick else "fidelity")
    store, console = Store(work, quick), Console(width=150)
    chosen = ("labels, systematic", "paper: 3 % samples") if quick else tuple(SCENARIOS)
    wanted = [
        (setting, scenario)
        for setting in settings(folder, quick)
        for scenario in [*chosen, "periodic"]
        if options.only in f"{setting}: {scenario}"
        and not (scenario == "periodic" and setting.endswith("linear"))
        and not (quick and setting.endswith("mlp"))
    ]
    finished, started = store.finished(), time.monotonic()
    todo = [pair for pair in wanted if ": ".join(pair) not in finished]
    # One thread a process: edits, controls and retraining are timed alike, and no core waits for another.
    with ProcessPoolExecutor(options.processes, get_context("spawn"), _start_worker) as pool:
        common = work, folder, quick
        training = [pool.submit(_train, *common, *task) for task in _to_train(store, folder, quick, todo)]
        for done, future in enumerate(as_completed(training), 1):
            future.result()
            print(f"{done} of {len(training)} models, {time.monotonic() - started:.0f} s", file=sys.stderr)
        rows_of = {pool.submit(_row, *common, *pair): ": ".join(pair) for pair in reversed(todo)}
        for future in as_completed(rows_of):
            finished[rows_of[future]] = future.result()
            store.finish(rows_of[future], finished[rows_of[future]])
            print(f"{rows_of[future]}, {time.monotonic() - started:.0f} s", file=sys.stderr)
    rows = [row for pair in wanted for row in finished[": ".join(pair)]]
    for pair in wanted:
        show(finished[": ".join(pair)], console)
    if options.json:
        options.json.write_text(json.dumps({"rows": rows}, indent=2) + "\n")
    if options.markdown:
        options.markdown.write_text(markdown(rows))
    plot(rows, store.folder / "recovery.png")


if __name__ == "__main__":
    main()
