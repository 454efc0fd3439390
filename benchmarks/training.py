"""Training against plain PyTorch, as ratios inside one run.

1. The convex heads of ``Recipe(backbone="linear")`` against ``torch.optim.LBFGS`` (strong Wolfe, float64), from the
   same start (zeros) to the same gradient norm.
2. An epoch of ``Recipe(backbone="convnet")`` against a bare loop over the same tensors.

    python benchmarks/training.py [--data FOLDER] [--json FILE] [--quick]

FOLDER holds ``cub`` and ``wbcatt`` (``samples.csv`` with ``features.npy`` or ``images.zip``); where it is absent
the built-in datasets are used, which are smaller.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional

import ecbm
from ecbm.train.backbones import Standardise, build_backbone
from ecbm.train.heads.objectives import concept_objective, label_objective, with_ones
from ecbm.train.terms import concept_terms

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


def lbfgs(
    value_and_gradient: Any, shape: tuple[int, int], tolerance: float, limit: float
) -> tuple[Tensor, float, float]:
    """Minimise with torch's L-BFGS from zeros; returns parameters, gradient norm and seconds."""
    parameters = torch.zeros(shape, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS(
        [parameters],
        max_iter=10,
        history_size=20,
        line_search_fn="strong_wolfe",
        tolerance_grad=0,
        tolerance_change=0,
    )

    def closure() -> Tensor:
        value, gradient = value_and_gradient(parameters.detach())
        parameters.grad = gradient
        return value

    started = time.perf_counter()
    while True:
        optimiser.step(closure)
        norm = float(value_and_gradient(parameters.detach())[1].norm())
        seconds = time.perf_counter() - started
        if norm <= tolerance or seconds > limit:
            return parameters.detach(), norm, seconds


def compare_heads(data: ecbm.Dataset, tolerance: float, limit: float) -> dict[str, float]:
    recipe = ecbm.Recipe(backbone="linear", head_tolerance=tolerance)
    started = time.perf_counter()
    model = ecbm.train(data, recipe)
    ours = time.perf_counter() - started
    train = data.split("train")
    design = with_ones(Standardise.of(train.x, torch.float64)(train.x))
    terms = concept_terms(train.concepts, torch.ones(len(data.concept_names), dtype=torch.float64))
    weights, targets = terms.weights.double(), terms.targets.double()
    alpha, beta = recipe.concept_regularisation, recipe.label_regularisation

    def concepts(parameters: Tensor) -> tuple[Tensor, Tensor]:
        value, gradient = concept_objective(design, targets, weights, parameters, alpha)
        return value.sum(), gradient

    head, concept_norm, concept_seconds = lbfgs(concepts, (targets.shape[1], design.shape[1]), tolerance, limit)
    read = with_ones(design @ head.T)
    ones = torch.ones(len(read), dtype=torch.float64)
    _, label_norm, label_seconds = lbfgs(
        lambda parameters: label_objective(read, train.labels, ones, parameters, beta),
        (len(data.class_names), read.shape[1]),
        tolerance,
        limit,
    )
    test = ecbm.evaluate(model, data.split("test"))
    training = model.provenance.training
    return {
        "ours_seconds": ours,
        "lbfgs_seconds": concept_seconds + label_seconds,
        "ratio": ours / (concept_seconds + label_seconds),
        "ours_concept_gradient": training["concept_gradient_norm"],
        "ours_label_gradient": training["label_gradient_norm"],
        "lbfgs_concept_gradient": concept_norm,
        "lbfgs_label_gradient": label_norm,
        "tolerance": tolerance,
        "concept_accuracy": test["concept_accuracy"],
        "class_accuracy": test["class_accuracy"],
    }


def bare_epoch(
    module: nn.Module, x: Tensor, targets: Tensor, batch_size: int, optimiser: torch.optim.Optimizer
) -> float:
    module.train()
    started = time.perf_counter()
    for rows in torch.randperm(len(x)).split(batch_size):
        loss = functional.binary_cross_entropy_with_logits(module(x[rows]), targets[rows], reduction="sum") / len(
            rows
        )
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return time.perf_counter() - started


def compare_epochs(data: ecbm.Dataset, repeats: int) -> dict[str, float]:
    """Epochs of both, in turns, so that a busy machine slows both alike; medians."""
    recipe = ecbm.Recipe(backbone="convnet", epochs=1, patience=None, head_tolerance=1e-3)
    train = data.split("train")
    x, targets = train.x, train.concepts.nan_to_num(0.0)
    backbone = build_backbone(recipe, tuple(data.inputs.shape))
    module = nn.Sequential(backbone, nn.Linear(256, targets.shape[1]))
    optimiser = torch.optim.Adam(module.parameters(), lr=1e-3)
    ours, bare = [], []
    for _ in range(repeats):
        bare.append(bare_epoch(module, x, targets, recipe.batch_size, optimiser))
        ours.append(ecbm.train(data, recipe).provenance.training["epochs"][0]["seconds"])
    ratios = [a / b for a, b in zip(ours, bare, strict=True)]
    return {
        "ours_epoch_seconds": statistics.median(ours),
        "bare_epoch_seconds": statistics.median(bare),
        "ratio": statistics.median(ratios),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=SHARED, help="folder with cub and wbcatt")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    parser.add_argument("--quick", action="store_true", help="fewer repeats, looser tolerance")
    options = parser.parse_args()
    real = (options.data / "cub" / "samples.csv").is_file()
    features = ecbm.read_dataset(options.data / "cub") if real else ecbm.datasets.breast_cancer()
    pictures = (
        ecbm.read_dataset(options.data / "wbcatt", image_size=(32, 32))
        if real
        else ecbm.datasets.birds(n=3000, size=32)
    )
    heads = compare_heads(features, 1e-6 if options.quick else 1e-10, limit=600)
    epochs = compare_epochs(pictures, 3 if options.quick else 5)
    table = Table(title=f"Training, {'CUB features and WBCAtt' if real else 'built-in data'}")
    for column in ("what", "ecbm", "PyTorch", "ratio"):
        table.add_column(column)
    reached = max(heads["lbfgs_concept_gradient"], heads["lbfgs_label_gradient"])
    table.add_row(
        f"both heads to gradient norm {heads['tolerance']:.0e}",
        f"{heads['ours_seconds']:.1f} s",
        f"{heads['lbfgs_seconds']:.1f} s (reached {reached:.0e})",
        f"{heads['ratio']:.2f}",
    )
    table.add_row(
        "one convnet epoch, 32 px",
        f"{epochs['ours_epoch_seconds']:.2f} s",
        f"{epochs['bare_epoch_seconds']:.2f} s",
        f"{epochs['ratio']:.2f}",
    )
    Console(width=110).print(table)
    print(f"test: concept accuracy {heads['concept_accuracy']:.4f}, class accuracy {heads['class_accuracy']:.4f}")
    if options.json:
        options.json.write_text(json.dumps({"heads": heads, "epochs": epochs}, indent=2) + "\n")


if __name__ == "__main__":
    main()
