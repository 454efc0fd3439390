"""Audits: are erased samples gone, would the test have seen it, and what does it cost?

    python benchmarks/audit.py [--json FILE] [--parts erasure deep release] [--quick]

*erasure*: 200 training samples of CUB features erased by each method on a frozen backbone. *deep*: the `convnet` on
drawn birds. *release*: 200 pairs of edit and retraining on a table and on CUB features. Every row stands beside its
controls: the unedited model, which must be caught, and retraining, which must not. Seconds are CPU time of this
process.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ecbm
from ecbm.progress import silence
from ecbm.verify.audit.asked import Asked
from ecbm.verify.audit.collecting import Memory
from ecbm.verify.audit.rehearsal import rehearse

CUB = Path(__file__).resolve().parents[2] / "shared" / "data" / "cub"
PARTS = ("erasure", "deep", "release")
# Not those with which the number of references and the attack were chosen (0).
SEED = 7


def row(case: str, result: dict[str, Any], seconds: float) -> dict[str, Any]:
    about = result["audited"]
    return {
        "case": case,
        "method": "-".join([about["method"], *map(str, about["options"])]),
        "forget": about["forget"],
        "forgotten": about["forgotten"],
        "models": about.get("references") or about.get("pairs"),
        "verdict": result["verdict"],
        "edit": result["edit"],
        "controls": result["controls"],
        "retained": result.get("retained"),
        "divergence": result.get("divergence"),
        "attacks": result.get("attacks"),
        "cpu_seconds": seconds,
    }


def audits(
    case: str,
    data: ecbm.Dataset,
    recipe: ecbm.Recipe,
    kind: str,
    methods: list[tuple[str, dict[str, Any]]],
    **asked: Any,
) -> Iterator[dict[str, Any]]:
    """Each method on the same samples; references are shared, so the first row pays for them."""
    model = ecbm.train(data, recipe)
    state, store = ecbm.Editor(model, data).state, Memory()
    for method, options in methods:
        started = time.process_time()
        question = Asked(method=method, options=options, forget=kind, seed=SEED, **asked)
        result = rehearse(model, data, state, question, lambda plan, store=store: store)
        yield row(case, result, time.process_time() - started)


def erasure(quick: bool) -> Iterator[dict[str, Any]]:
    data, recipe = ecbm.read_dataset(CUB), ecbm.Recipe(backbone="linear")
    methods = [("exact", {}), ("ekfac", {}), ("hessian", {})]
    for kind in ("random",) if quick else ("random", "canaries"):
        yield from audits("CUB, frozen", data, recipe, kind, methods, depth="erasure", samples=200)


def deep(quick: bool) -> Iterator[dict[str, Any]]:
    data = ecbm.datasets.birds(n=400 if quick else 800, seed=SEED, size=32)
    recipe = ecbm.Recipe(backbone="convnet", epochs=3 if quick else 12, patience=None, seed=SEED)
    methods: list[tuple[str, dict[str, Any]]] = [("exact", {}), ("auto", {"tail": True, "budget": 0.2})]
    for kind in ("random", "canaries"):
        yield from audits("birds, convnet", data, recipe, kind, methods, depth="erasure", samples=60)


def release(quick: bool) -> Iterator[dict[str, Any]]:
    recipe, pairs = ecbm.Recipe(backbone="linear"), 60 if quick else 200
    tumours = ecbm.datasets.breast_cancer()
    for method in ("exact", "ekfac"):
        yield from audits(
            "breast_cancer", tumours, recipe, "random", [(method, {})], depth="release", pairs=pairs, samples=40
        )
    yield from audits(
        "CUB, frozen", ecbm.read_dataset(CUB), recipe, "random", [("exact", {})], depth="release", pairs=pairs
    )


def said(found: dict[str, float]) -> str:
    return f"{found['auc']:.3f} [{found['low']:.3f}, {found['high']:.3f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--quick", action="store_true", help="smaller, to see that it runs")
    options = parser.parse_args()
    silence()
    rows: list[dict[str, Any]] = []
    print("| case | method | forgotten | models | verdict | unedited | edited | retrained | CPU s |")
    print("|---|---|---|---|---|---|---|---|---|")
    for part in options.parts:
        for one in {"erasure": erasure, "deep": deep, "release": release}[part](options.quick):
            rows.append({"part": part, **one})
            cells = [
                f"{one['case']} ({part})", one["method"], f"{one['forgotten']} {one['forget']}", str(one["models"]),
                one["verdict"], said(one["controls"]["noop"]), said(one["edit"]), said(one["controls"]["retrain"]),
                f"{one['cpu_seconds']:.0f}",
            ]  # fmt: skip
            print(f"| {' | '.join(cells)} |", flush=True)
            if options.json:
                options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
