"""EK-FAC factors of kronfluence for a small model, in its own terms."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as functional
from torch import Tensor, nn


def kronfluence_blocks(
    module: nn.Module, inputs: Tensor, targets: Tensor, folder: Path
) -> dict[str, tuple[Tensor, Tensor, Tensor]]:
    """(Q_Γ, Q_Ω, Λ*) of every layer, empirical Fisher, float64."""
    from kronfluence.analyzer import Analyzer, prepare_model
    from kronfluence.arguments import FactorArguments
    from kronfluence.task import Task

    class ConceptTask(Task):
        def compute_train_loss(self, batch, model, sample=False):  # type: ignore[no-untyped-def]
            x, t = batch
            return functional.binary_cross_entropy_with_logits(model(x), t, reduction="sum")

        def compute_measurement(self, batch, model):  # type: ignore[no-untyped-def]
            return self.compute_train_loss(batch, model)

    task = ConceptTask()
    prepared = prepare_model(module, task)
    analyzer = Analyzer("curvature", prepared, task, output_dir=str(folder), disable_tqdm=True, cpu=True)
    analyzer.fit_all_factors(
        "ekfac",
        torch.utils.data.TensorDataset(inputs, targets),
        per_device_batch_size=5,
        factor_args=FactorArguments(strategy="ekfac", use_empirical_fisher=True),
        overwrite_output_dir=True,
    )
    eigen = analyzer.load_eigendecomposition("ekfac")
    values = analyzer.load_lambda_matrices("ekfac")
    result = {}
    for name in eigen["gradient_eigenvectors"]:
        scaled = values["lambda_matrix"][name].double() / len(inputs)
        result[name] = (
            eigen["gradient_eigenvectors"][name].double(),
            eigen["activation_eigenvectors"][name].double(),
            scaled,
        )
    return result
