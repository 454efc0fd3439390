"""How fast, how large and how right EK-FAC is here and in published libraries.

    python benchmarks/curvature.py [--json FILE] [--quick] [--cases abc] [--methods NAME ...]

Every (case, method) runs in a process of its own with one thread. There, plain epochs (forward and backward over
the same samples, batch 128) are timed before and after the fits, and times are given in units of their median:
other work on the machine then slows both sides. Memory is the peak of the process above its peak after the plain
epochs, imports included in neither. Agreement is |x − y|/|y| of H⁻¹v, against ours with the same (empirical)
targets. Peers are fitted with the empirical Fisher, which for all of them costs as much as drawing targets.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

CASES = {
    "a": "MLP 512-256-256-112, 5,000 samples, BCE",
    "b": "small ResNet, 64 × 64, 1,000 samples, 40 concepts",
    "c": "resnet18, 64 × 64, 500 samples, 40 concepts",
}


def peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(case: str, method: str, quick: bool, answer_file: str) -> dict[str, Any]:
    """Runs in the child."""
    import torch
    from safetensors.torch import save_file

    from curvature_methods import METHODS, CannotError, Problem, make_problem
    from ecbm.progress import silence

    silence()
    torch.set_num_threads(1)
    problem = make_problem(case, quick)

    def seconds(action: Any) -> tuple[float, Any]:
        start = time.perf_counter()
        value = action()
        return time.perf_counter() - start, value

    try:
        # what a library imports or sets up on its first use is no part of its memory or time
        small = Problem(problem.module, problem.inputs[:16], problem.targets[:16])
        first_fit, first_solver = METHODS[method](small)
        first_solver(first_fit())(small.vector())
        fit, make_solver = METHODS[method](problem)
    except CannotError as reason:
        return {"cannot": str(reason)}
    problem.epoch()
    first = seconds(problem.epoch)[0]
    repeats = 9 if first < 1 else 1
    epochs = [seconds(problem.epoch)[0] for _ in range(repeats)]
    before = peak_megabytes()
    spent, fitted = seconds(fit)
    above = peak_megabytes() - before
    fits = [spent]
    if spent < 30:
        fits = []
        for _ in range(repeats if spent < 3 else 1):
            epochs.append(seconds(problem.epoch)[0])
            fits.append(seconds(fit)[0])
    epochs.append(seconds(problem.epoch)[0])
    solve, vector = make_solver(fitted), problem.vector()
    answer = solve(vector)
    solves = [seconds(lambda: solve(vector))[0] for _ in range(20)]
    save_file({name: value.detach().contiguous().clone() for name, value in answer.items()}, answer_file)
    epoch = statistics.median(epochs)
    return {
        "epoch_seconds": epoch,
        "fit_seconds": statistics.median(fits),
        "fit_epochs": statistics.median(fits) / epoch,
        "solve_milliseconds": 1000 * statistics.median(solves),
        "memory_megabytes": above,
    }


def distance(first: Path, second: Path) -> float | None:
    from safetensors.torch import load_file

    if not first.exists() or not second.exists():
        return None
    one, two = load_file(first), load_file(second)
    names = sorted(set(one) & set(two))
    gap = sum(float((one[n] - two[n]).double().square().sum()) for n in names)
    return float((gap / sum(float(two[n].double().square().sum()) for n in names)) ** 0.5)


def run_child(case: str, method: str, quick: bool, answer: Path) -> dict[str, Any]:
    command = [sys.executable, __file__, "--child", case, method, str(answer)] + ["--quick"] * quick
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
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        case, method, answer = options.child
        print(json.dumps(measure(case, method, options.quick, answer)))
        return
    import tempfile

    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for case in options.cases or ("ab" if options.quick else "abc"):
            rows: dict[str, dict[str, Any]] = {}
            answers = {name: Path(folder) / f"{case}-{number}.st" for number, name in enumerate(METHODS)}
            for name in options.methods:
                print(f"({case}) {name} ...", file=sys.stderr, flush=True)
                rows[name] = run_child(case, name, options.quick, answers[name])
                if "fit_epochs" in rows[name] and not name.startswith("ecbm"):
                    rows[name]["agreement"] = distance(answers[name], answers["ecbm, empirical"])
            show(case, rows)
            held = bounds(rows) if case in "ab" else {}
            for promise, kept in held.items():
                print(f"  {'held' if kept else 'NOT HELD'}: {promise}")
            results[case] = {"title": CASES[case], "methods": rows, "bounds": held}
            if options.json:
                options.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
