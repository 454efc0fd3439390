"""How fast, how large and how right EK-FAC is here and in published libraries.

    python benchmarks/curvature.py [--json FILE] [--quick] [--cases abc] [--methods NAME ...]

Everything runs with one thread. Each (case, method) has a process of its own: plain epochs (forward and backward
over the same samples, batch 128) before and after the fit, times in units of their median. Memory is the peak of
that process during the fit above its peak during a plain epoch. What takes milliseconds (fits of (a), H⁻¹v of (a)
and (b)) is then timed again with all libraries taking turns in one process, so that whatever else the machine
does slows them alike. Agreement is |x − y|/|y| of H⁻¹v, against ours with the same (empirical) targets. Peers are
fitted with the empirical Fisher, which for all of them costs as much as drawing targets.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import gc
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CASES = {
    "a": "MLP 512-256-256-112, 5,000 samples, BCE",
    "b": "small ResNet, 64 × 64, 1,000 samples, 40 concepts",
    "c": "resnet18, 64 × 64, 500 samples, 40 concepts",
}
SLOW_SECONDS = 3.0


def peak_megabytes(action: Callable[[], Any]) -> tuple[float, Any]:
    """Peak resident memory while ``action`` runs, and its value. Free memory is given back before."""
    gc.collect()
    if not sys.platform.startswith("linux"):
        value = action()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, value
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    value = action()
    lines = Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    return peak / 1024, value


def seconds(action: Callable[[], Any]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def prepare(case: str, quick: bool) -> Any:
    import torch

    from curvature_methods import make_problem
    from ecbm.progress import silence

    silence()
    torch.set_num_threads(1)
    return make_problem(case, quick)


def warm(problem: Any, method: str) -> None:
    """What a library imports or sets up on its first use is no part of its memory or time."""
    from curvature_methods import METHODS, Problem

    small = Problem(problem.module, problem.inputs[:16], problem.targets[:16])
    fit, solver = METHODS[method](small)
    solver(fit())(small.vector())


def measure(case: str, method: str, quick: bool, answer_file: str) -> dict[str, Any]:
    """One method in a process of its own."""
    from safetensors.torch import save_file

    from curvature_methods import METHODS, CannotError

    problem = prepare(case, quick)
    try:
        fit, make_solver = METHODS[method](problem)
    except CannotError as reason:
        return {"cannot": str(reason)}
    if case != "c":
        warm(problem, method)  # on (c) the eigendecompositions would take as long as the fit
    problem.epoch()
    plain, _ = peak_megabytes(problem.epoch)
    epochs = [seconds(problem.epoch)]
    start = time.perf_counter()
    peak, fitted = peak_megabytes(fit)
    fits = [time.perf_counter() - start]
    epochs.append(seconds(problem.epoch))
    solve, vector = make_solver(fitted), problem.vector()
    answer = solve(vector)
    solves = [seconds(lambda: solve(vector)) for _ in range(5 if case == "c" else 20)]
    save_file({name: value.detach().contiguous().clone() for name, value in answer.items()}, answer_file)
    return row(epochs, fits, solves) | {"memory_megabytes": peak - plain}


def take_turns(case: str, methods: list[str], fitting: list[str], quick: bool) -> dict[str, dict[str, Any]]:
    """All methods in one process, one after the other, again and again; those in ``fitting`` fit as well."""
    from curvature_methods import METHODS, Problem

    problem = prepare(case, quick)
    # the time of a solve does not depend on the number of samples
    small = Problem(problem.module, problem.inputs[:64], problem.targets[:64])
    vector, solvers = problem.vector(), {}
    for name in methods:
        fit, make_solver = METHODS[name](small)
        solvers[name] = make_solver(fit())
    built = {name: METHODS[name](problem)[0] for name in fitting}
    epochs: list[float] = []
    fits: dict[str, list[float]] = {name: [] for name in methods}
    solves: dict[str, list[float]] = {name: [] for name in methods}
    for _ in range(11):
        for name, fit in built.items():
            epochs.append(seconds(problem.epoch))
            fits[name].append(seconds(fit))
    for _ in range(60):
        for name, solve in solvers.items():
            solves[name].append(seconds(functools.partial(solve, vector)))
    return {name: row(epochs, fits[name], solves[name]) for name in methods}


def row(epochs: list[float], fits: list[float], solves: list[float]) -> dict[str, Any]:
    found = {"solve_milliseconds": 1000 * statistics.median(solves)}
    if fits:
        epoch, fit = statistics.median(epochs), statistics.median(fits)
        found |= {"epoch_seconds": epoch, "fit_seconds": fit, "fit_epochs": fit / epoch}
    return found


def distance(first: Path, second: Path) -> float | None:
    from safetensors.torch import load_file

    if not first.exists() or not second.exists():
        return None
    one, two = load_file(first), load_file(second)
    names = sorted(set(one) & set(two))
    gap = sum(float((one[n] - two[n]).double().square().sum()) for n in names)
    return float((gap / sum(float(two[n].double().square().sum()) for n in names)) ** 0.5)


def run_child(*arguments: str, quick: bool) -> dict[str, Any]:
    command = [sys.executable, __file__, "--child", *arguments] + ["--quick"] * quick
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=1800)
    except subprocess.TimeoutExpired:
        return {"failed": "no result within 30 minutes"}
    if done.returncode != 0:
        lines = [line for line in done.stderr.strip().splitlines() if line.strip()]
        return {"failed": lines[-1] if lines else f"exit status {done.returncode}"}
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def run_case(case: str, methods: list[str], quick: bool, folder: Path) -> dict[str, dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = {}
    answers = {name: folder / f"{case}-{number}.st" for number, name in enumerate(methods)}
    for name in methods:
        print(f"({case}) {name} ...", file=sys.stderr, flush=True)
        rows[name] = run_child("alone", case, name, str(answers[name]), quick=quick)
        if "fit_epochs" in rows[name] and not name.startswith("ecbm") and "ecbm, empirical" in answers:
            rows[name]["agreement"] = distance(answers[name], answers["ecbm, empirical"])
    working = [name for name in methods if "fit_epochs" in rows[name]]
    if case != "c" and working:
        print(f"({case}) in turns ...", file=sys.stderr, flush=True)
        quickly = [name for name in working if rows[name]["fit_seconds"] < SLOW_SECONDS]
        found = run_child("turns", case, "|".join(working), "|".join(quickly), quick=quick)
        for name in working:
            rows[name] |= found.get(name, {})
    return rows


def bounds(rows: dict[str, dict[str, Any]]) -> dict[str, bool]:
    """The promises for cases (a) and (b)."""
    ours = rows.get("ecbm", {})
    peers = {n: r for n, r in rows.items() if not n.startswith("ecbm") and "fit_epochs" in r}
    if "fit_epochs" not in ours:
        return {}
    held = {"fit in at most 3.0 plain epochs": ours["fit_epochs"] <= 3.0}
    if peers:
        fastest = min(r["fit_epochs"] for r in peers.values())
        held["1.5 times faster than the fastest peer"] = fastest / ours["fit_epochs"] >= 1.5
        held["solve no slower than the fastest peer"] = ours["solve_milliseconds"] <= min(
            r["solve_milliseconds"] for r in peers.values()
        )
        held["no more memory than the lowest peer"] = ours["memory_megabytes"] <= min(
            r["memory_megabytes"] for r in peers.values()
        )
    for name in ("kronfluence", "curvlinops"):
        if name in peers:
            held[f"2 times faster than {name}"] = peers[name]["fit_epochs"] / ours["fit_epochs"] >= 2
    return held


def show(case: str, rows: dict[str, dict[str, Any]]) -> None:
    print(f"\n({case}) {CASES[case]}")
    print(f"{'':22}{'fit, epochs':>12}{'fit, s':>10}{'H⁻¹v, ms':>10}{'memory, MB':>12}{'agreement':>11}")
    for name, row in rows.items():
        if "fit_epochs" not in row:
            print(f"{name:22}  " + (f"cannot: {row['cannot']}" if "cannot" in row else f"failed: {row['failed']}"))
            continue
        agreement = "" if row.get("agreement") is None else f"{row['agreement']:.1e}"
        print(
            f"{name:22}{row['fit_epochs']:12.2f}{row['fit_seconds']:10.2f}{row['solve_milliseconds']:10.2f}"
            f"{row['memory_megabytes']:12.0f}{agreement:>11}"
        )


def main() -> None:
    from curvature_methods import METHODS

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="a quarter of the samples, cases a and b only")
    parser.add_argument("--cases", default=None)
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        kind, case, *rest = options.child
        if kind == "alone":
            print(json.dumps(measure(case, rest[0], options.quick, rest[1])))
        else:
            working, quickly = ([name for name in part.split("|") if name] for part in rest)
            print(json.dumps(take_turns(case, working, quickly, options.quick)))
        return
    import tempfile

    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for case in options.cases or ("ab" if options.quick else "abc"):
            rows = run_case(case, options.methods, options.quick, Path(folder))
            show(case, rows)
            held = bounds(rows) if case in "ab" else {}
            for promise, kept in held.items():
                print(f"  {'held' if kept else 'NOT HELD'}: {promise}")
            results[case] = {"title": CASES[case], "methods": rows, "bounds": held}
            if options.json:
                options.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
