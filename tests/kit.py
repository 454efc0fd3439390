"""The test kit: tiny datasets and models, and the slow, obviously right references."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import ecbm
from ecbm.train.model import linear_from

CONCEPTS = ("size=big", "size=small", "color::red", "color::blue", "round")
CLASSES = ("finch", "wren", "crow")


def tabular(
    n: int = 90,
    width: int = 6,
    *,
    seed: int = 0,
    missing: float = 0.0,
    soft: bool = False,
    concepts: Sequence[str] = CONCEPTS,
    classes: Sequence[str] = CLASSES,
    splits: bool = True,
) -> ecbm.Dataset:
    """Feature rows whose concepts are noisy linear functions of them, and whose class follows the concepts."""
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(n, width, generator=draw)
    k = len(concepts)
    scores = x @ torch.randn(width, k, generator=draw) + 0.5 * torch.randn(n, k, generator=draw)
    values = torch.sigmoid(2 * scores) if soft else (scores > 0).float()
    labels = (scores @ torch.randn(k, len(classes), generator=draw)).argmax(1)
    labels[: len(classes)] = torch.arange(len(classes))
    values[torch.rand(n, k, generator=draw) < missing] = torch.nan
    names = (["train"] * 6 + ["val"] * 2 + ["test"] * 2) * (n // 10 + 1)
    return ecbm.Dataset(
        [f"s{row}" for row in range(n)], x, values, labels, concepts, classes, names[:n] if splits else None
    )


def pictures(n: int = 80, *, seed: int = 0) -> ecbm.Dataset:
    """Small drawn birds."""
    return ecbm.datasets.birds(n=n, seed=seed, size=32)


def hand_model(
    label_weight: Tensor,
    *,
    concepts: Sequence[str] = CONCEPTS,
    classes: Sequence[str] = CLASSES,
    bottleneck: str = "logits",
    low: float = -2.0,
    high: float = 3.0,
) -> ecbm.ConceptBottleneck:
    """A model whose inputs are its concept logits, with the given label weights (classes, concepts)."""
    k = len(concepts)
    return ecbm.ConceptBottleneck(
        nn.Identity(),
        linear_from(torch.cat([torch.eye(k), torch.zeros(k, 1)], 1)),
        linear_from(torch.cat([label_weight, torch.zeros(len(classes), 1)], 1)),
        concepts,
        classes,
        ecbm.Recipe(backbone=nn.Identity(), bottleneck=bottleneck),
        (k,),
        torch.ones(k),
        torch.full((k,), low),
        torch.full((k,), high),
    )


def same_bytes(one: nn.Module, other: nn.Module) -> bool:
    """Whether two modules hold the same tensors, bit for bit."""
    a, b = one.state_dict(), other.state_dict()
    return a.keys() == b.keys() and all(
        a[name].dtype == b[name].dtype and a[name].numpy().tobytes() == b[name].numpy().tobytes() for name in a
    )


def python(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run this Python with arguments."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=900,
        env=os.environ | environment,
        check=False,
    )


def in_own_thread(work: Callable[[], Any]) -> Any:
    """What starts an event loop, away from the loop that the browser of other tests keeps in the main thread."""
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(work).result()


def torchrun(count: int) -> list[str]:
    """Arguments with which this Python starts a script (or ``-m MODULE``) in several processes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place = ["--master-addr", "127.0.0.1", "--master-port", str(port)]
    return ["-m", "torch.distributed.run", "--nproc-per-node", str(count), *place]


def _safe_length(objective: Callable[[Tensor], Tensor], at: Tensor, step: Tensor, gradient: Tensor) -> float:
    """Halve a Newton step until it descends. Near the optimum the whole step is right, and the objective's own
    rounding would shorten it.
    """
    length = 1.0
    while gradient.norm() > 1e-6 and length > 1e-6 and objective(at - length * step) > objective(at):
        length /= 2
    return length


def newton_logistic(design: Tensor, targets: Tensor, weights: Tensor, l2: float) -> Tensor:
    """Reference for one concept: dense damped Newton in float64."""
    n, width = design.shape
    parameters = torch.zeros(width, dtype=torch.float64)

    def objective(w: Tensor) -> Tensor:
        z = design @ w
        losses = weights * (torch.nn.functional.softplus(z) - targets * z)
        return losses.sum() / n + 0.5 * l2 * w @ w

    for _ in range(200):
        p = torch.sigmoid(design @ parameters)
        gradient = design.T @ (weights * (p - targets)) / n + l2 * parameters
        if gradient.norm() < 1e-14:
            break
        hessian = design.T @ ((weights * p * (1 - p))[:, None] * design) / n + l2 * torch.eye(width).double()
        step = torch.linalg.solve(hessian, gradient)
        parameters = parameters - _safe_length(objective, parameters, step, gradient) * step
    return parameters


def newton_multinomial(design: Tensor, labels: Tensor, weights: Tensor, classes: int, l2: float) -> Tensor:
    """Reference for the label head: dense damped Newton over all classes at once, in float64."""
    n, width = design.shape
    parameters = torch.zeros(classes, width, dtype=torch.float64)

    def objective(flat: Tensor) -> Tensor:
        logits = design @ flat.view(classes, width).T
        chosen = torch.log_softmax(logits, 1)[torch.arange(n), labels]
        return -(weights * chosen).sum() / n + 0.5 * l2 * flat @ flat

    flat = parameters.flatten()
    for _ in range(200):
        gradient = torch.func.grad(objective)(flat)
        if gradient.norm() < 1e-14:
            break
        step = torch.linalg.solve(torch.func.hessian(objective)(flat), gradient)
        flat = flat - _safe_length(objective, flat, step, gradient) * step
    return flat.view(classes, width)


def concept_objective(
    design: Tensor, targets: Tensor, weights: Tensor, parameters: Tensor, l2: float
) -> tuple[Tensor, Tensor]:
    """J_C of every concept (k,) and its gradient (k, d), written out; targets may be NaN where a weight is 0."""
    logits = design @ parameters.T
    targets = torch.where(weights == 0, 0.0, targets.double())
    losses = (weights * (functional.softplus(logits) - targets * logits)).sum(0) / len(design)
    gradient = (weights * (torch.sigmoid(logits) - targets)).T @ design / len(design) + l2 * parameters
    return losses + 0.5 * l2 * parameters.square().sum(1), gradient


def label_objective(
    design: Tensor, labels: Tensor, weights: Tensor, parameters: Tensor, l2: float
) -> tuple[Tensor, Tensor]:
    """J_Y () and its gradient (classes, d), written out."""
    logits = design @ parameters.T
    losses = functional.cross_entropy(logits, labels, reduction="none")
    residual = torch.softmax(logits, 1) - functional.one_hot(labels, len(parameters))
    gradient = (weights[:, None] * residual).T @ design / len(design) + l2 * parameters
    return (weights * losses).sum() / len(design) + 0.5 * l2 * parameters.square().sum(), gradient
