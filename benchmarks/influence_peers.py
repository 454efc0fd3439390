"""Influence by kronfluence on the same model: EK-FAC over all layers, the same loss, the same measured function."""

from __future__ import annotations

import logging
import tempfile
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

import ecbm

__all__ = ["kronfluence_scores"]


class _Whole(nn.Module):
    """Backbone and both heads in float32. Trained sequentially: the class loss does not reach the concepts."""

    def __init__(self, model: ecbm.ConceptBottleneck) -> None:
        super().__init__()
        import copy

        self.backbone = copy.deepcopy(model.backbone)
        self.concept_head = copy.deepcopy(model.concept_head).float()
        self.label_head = copy.deepcopy(model.label_head).float()

    def forward(self, x: Tensor, apart: bool) -> tuple[Tensor, Tensor]:
        logits = self.concept_head(self.backbone(x))
        return logits, self.label_head(logits.detach() if apart else logits)


def kronfluence_scores(
    model: ecbm.ConceptBottleneck, train: ecbm.Dataset, queries: ecbm.Dataset, damping: float | None = None
) -> np.ndarray:
    """(queries, samples) predicted change of a query's loss if a sample were removed, but for a factor."""
    from kronfluence.analyzer import Analyzer, prepare_model
    from kronfluence.arguments import FactorArguments, ScoreArguments
    from kronfluence.task import Task

    logging.disable(logging.WARNING)

    class Concepts(Task):
        def compute_train_loss(self, batch: Any, model: nn.Module, sample: bool = False) -> Tensor:
            x, concepts, labels = batch
            logits, outputs = model(x, True)
            if sample:
                with torch.no_grad():
                    concepts = torch.bernoulli(torch.sigmoid(logits))
                    labels = torch.multinomial(torch.softmax(outputs, 1), 1)[:, 0]
            return functional.binary_cross_entropy_with_logits(
                logits, concepts, reduction="sum"
            ) + functional.cross_entropy(outputs, labels, reduction="sum")

        def compute_measurement(self, batch: Any, model: nn.Module) -> Tensor:
            x, concepts, labels = batch
            logits, outputs = model(x, False)
            mean = functional.binary_cross_entropy_with_logits(logits, concepts, reduction="none").mean(1).sum()
            return mean + functional.cross_entropy(outputs, labels, reduction="sum")

    def rows(part: ecbm.Dataset) -> torch.utils.data.TensorDataset:
        return torch.utils.data.TensorDataset(part.x.float(), part.concepts.float(), part.labels)

    torch.manual_seed(0)
    task = Concepts()
    whole = prepare_model(_Whole(model).eval(), task)
    with tempfile.TemporaryDirectory() as folder:
        analyzer = Analyzer("influence", whole, task, cpu=True, output_dir=folder, disable_tqdm=True)
        analyzer.fit_all_factors(
            "ekfac", rows(train), per_device_batch_size=128, factor_args=FactorArguments(strategy="ekfac")
        )
        analyzer.compute_pairwise_scores(
            "scores", "ekfac", rows(queries), rows(train),
            per_device_query_batch_size=len(queries), per_device_train_batch_size=128,
            score_args=ScoreArguments(damping_factor=damping),
        )  # fmt: skip
        scores = analyzer.load_pairwise_scores("scores")["all_modules"]
    logging.disable(logging.NOTSET)
    return scores.double().numpy() / len(train)
