"""How close edits come to retraining, beside every control, on real data.

    python benchmarks/fidelity.py [--quick] [--only TEXT] [--data FOLDER] [--work FOLDER] [--json FILE]

Settings: CUB features with the linear backbone and with an MLP, WBCAtt pictures and drawn birds with the convnet.
For each of them and each scenario (``ecbm.show.reproduce.scenarios``), from three original seeds and for headline
scenarios from five (frozen features from two, which agree): no-op, heads only, ``ekfac`` and ``hessian`` guarded
and as the paper writes them, ``auto`` at budgets of 5, 10 and 20 % of retraining's work, ``exact`` on the frozen
backbone, and as many retrainings.

Controls of equal work: fine-tuning with the best of two learning rates by test data (its closing solves are part of
the work, so that a short budget may leave none for it); the steps of ``auto`` on the *unedited* labels, heads on
the edited ones, which is what more training alone gives; NegGrad+ where samples are removed. ``hessian`` takes
longer than retraining once there is a backbone: beside the linear one it is run once.

closure    1 − d(edited, retrained)/d(original, retrained) over test probabilities, against the mean of the
           retrained seeds; "same seed": against retraining under the original's own seed; "floor" is one retrained
           seed against the mean of the others: what a change of seed alone gives.
recovery   share of the retrained models' gain in concept accuracy (class accuracy for poisoned samples), Σ gained /
           Σ to gain over the original seeds; "–" where retraining gains less than twice the spread of its seeds.
           Above 1 is more than retraining: more training, not more edit.
±          half of a 95 % interval over the original seeds (Student).
seconds    of the processor, one thread, for the edit with what is kept between edits at hand; "share" is of
           retraining, "work" the share that ``auto`` counted.

Trained models and finished rows are kept in ``--work``; a run that was interrupted goes on where it stopped.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

import ecbm
from ecbm.progress import silence
from ecbm.show.reproduce.scenarios import SCENARIOS
from ecbm.show.reproduce.store import Store
from fidelity_paired import paired, paired_markdown
from fidelity_plot import plot
from fidelity_rows import HEADLINES, SEED, periodic, run_scenario, seeds_of
from fidelity_tables import markdown, show

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


@functools.cache
def settings(folder: Path, quick: bool) -> dict[str, tuple[ecbm.Dataset, ecbm.Recipe]]:
    if not (folder / "cub" / "samples.csv").is_file():
        small, epochs = ecbm.datasets.birds(n=1200 if quick else 1800, seed=11), 6 if quick else 8
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
    birds = ecbm.datasets.birds(n=1800, seed=11)
    return {
        "CUB, linear": (cub, ecbm.Recipe(backbone="linear")),
        "CUB, mlp": (cub, ecbm.Recipe(backbone="mlp")),
        "birds, convnet": (birds, ecbm.Recipe(backbone="convnet", epochs=8)),
        "WBCAtt, convnet": (cells, ecbm.Recipe(backbone="convnet", epochs=8)),
    }


# -- several processes ---------------------------------------------------------------------------------------


def _start_worker() -> None:
    torch.set_num_threads(1)
    silence()


def _train(work: Path, folder: Path, quick: bool, setting: str, scenario: str, side: int, seed: int) -> None:
    data, recipe = settings(folder, quick)[setting]
    Store(work).model(SCENARIOS[scenario](data, SEED)[side], recipe.replace(seed=seed))


def _row(work: Path, folder: Path, quick: bool, setting: str, scenario: str) -> list[dict[str, Any]]:
    data, recipe = settings(folder, quick)[setting]
    if scenario == "periodic":
        return periodic(Store(work), setting, data, recipe, 3 if quick else 10)
    return run_scenario(Store(work), setting, data, recipe, scenario, quick)


def _to_train(store: Store, folder: Path, quick: bool, wanted: list[tuple[str, str]]) -> list[tuple[Any, ...]]:
    """The models that the wanted rows need and that are not there, each once, the dearest setting first."""
    tasks: dict[str, tuple[Any, ...]] = {}
    for setting, scenario in reversed(wanted):
        data, recipe = settings(folder, quick)[setting]
        name = "labels, systematic" if scenario == "periodic" else scenario
        pair = SCENARIOS[name](data, SEED)
        for side, seed in itertools.product((0, 1), seeds_of(setting, name, quick)):
            if quick and side == 0 and seed != 0:
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
    parser.add_argument("--plot", type=Path, help="recovery against work, as SVG or PNG")
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
        and not (quick and setting in ("CUB, mlp", "birds, convnet") and "CUB, linear" in settings(folder, quick))
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
        # Headlines first: an interrupted run has what matters.
        order = sorted(todo, key=lambda pair: pair[1] not in HEADLINES)
        rows_of = {pool.submit(_row, *common, *pair): ": ".join(pair) for pair in order}
        for future in as_completed(rows_of):
            finished[rows_of[future]] = future.result()
            store.finish(rows_of[future], finished[rows_of[future]])
            print(f"{rows_of[future]}, {time.monotonic() - started:.0f} s", file=sys.stderr)
    rows = [row for pair in wanted for row in finished[": ".join(pair)]]
    print(f"{time.monotonic() - started:.0f} s in all", file=sys.stderr)
    for pair in wanted:
        show(finished[": ".join(pair)], console)
    if options.json:
        options.json.write_text(json.dumps({"rows": rows, "paired": paired(rows)}, indent=2) + "\n")
    if options.markdown:
        options.markdown.write_text(paired_markdown(rows) + "\n" + markdown(rows))
    if options.plot:
        plot(rows, options.plot)


if __name__ == "__main__":
    main()
