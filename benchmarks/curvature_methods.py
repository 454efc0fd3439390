"""EK-FAC by each library on one problem: how to fit it, how to solve with it, and why it cannot where it cannot."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

__all__ = ["DAMPING", "METHODS", "CannotError", "Problem", "make_problem"]

DAMPING = 1e-2
BATCH = 128


class CannotError(Exception):
    """The library cannot do this task; the message says why."""


@dataclass
class Problem:
    module: nn.Module
    inputs: Tensor
    targets: Tensor

    @property
    def batches(self) -> list[tuple[Tensor, Tensor]]:
        return list(zip(self.inputs.split(BATCH), self.targets.split(BATCH), strict=True))

    @property
    def layers(self) -> list[str]:
        """Parameters of Linear and Conv2d layers: what every library covers."""
        names = []
        for name, module in self.module.named_modules():
            if isinstance(module, nn.Linear | nn.Conv2d):
                names += [f"{name}.{part}" for part, _ in module.named_parameters()]
        return names

    def epoch(self) -> None:
        """One plain epoch: forward and backward over all samples."""
        for x, t in self.batches:
            self.module.zero_grad()
            functional.binary_cross_entropy_with_logits(self.module(x), t, reduction="sum").backward()
        self.module.zero_grad()

    def vector(self) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(1)
        named = dict(self.module.named_parameters())
        return {name: torch.randn(named[name].shape, generator=generator) for name in self.layers}


class _Concepts(nn.Module):
    def __init__(self, backbone: nn.Module, width: int, concepts: int) -> None:
        super().__init__()
        self.backbone, self.head = backbone, nn.Linear(width, concepts)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.backbone(x))
        return out


def make_problem(case: str, quick: bool) -> Problem:
    from ecbm.train.resnet import ResNet, resnet18

    torch.manual_seed(0)
    module: nn.Module
    if case == "a":
        sizes = (512, 256, 256, 112)
        layers: list[nn.Module] = []
        for before, after in itertools.pairwise(sizes):
            layers += [nn.Linear(before, after), nn.ReLU()]
        module, n, shape, concepts = nn.Sequential(*layers[:-1]), 5000, (512,), 112
    elif case == "b":
        module = _Concepts(ResNet((1, 1, 1), (16, 32, 64), small_stem=True), 64, 40)
        n, shape, concepts = 1000, (3, 64, 64), 40
    else:
        module = _Concepts(resnet18(small_stem=False), 512, 40)
        n, shape, concepts = 500, (3, 64, 64), 40
    if quick:
        n = max(256, n // 4)
    inputs = torch.randn(n, *shape) if case == "a" else torch.rand(n, *shape)
    targets = (torch.rand(n, concepts) < 0.3).float()
    module.train()
    if case != "a":
        with torch.no_grad():
            module(inputs[:128])  # BatchNorm statistics of the data
    return Problem(module.eval(), inputs, targets)


Solve = Callable[[dict[str, Tensor]], dict[str, Tensor]]
Method = Callable[[Problem], tuple[Callable[[], Any], Callable[[Any], Solve]]]


def _ours(fisher: str, everything: bool = False, **options: Any) -> Method:
    def build(problem: Problem) -> tuple[Callable[[], Any], Callable[[Any], Solve]]:
        from ecbm.curvature import EKFAC, ConceptLoss

        loss = ConceptLoss(problem.targets)
        names = set(problem.layers)

        def fit() -> Any:
            return EKFAC.fit(
                problem.module,
                problem.inputs,
                loss,
                fisher=fisher,  # type: ignore[arg-type]
                batch_size=BATCH,
                parameters=None if everything else names.__contains__,
                **options,
            )

        return fit, lambda fitted: lambda vector: fitted.solve(vector, DAMPING)

    return build


def _curvlinops(problem: Problem) -> tuple[Callable[[], Any], Callable[[Any], Solve]]:
    from curvlinops import EKFACLinearOperator, KFACInverseLinearOperator

    named = dict(problem.module.named_parameters())

    def fit() -> Any:
        operator = EKFACLinearOperator(
            problem.module,
            nn.BCEWithLogitsLoss(reduction="sum"),
            [named[name] for name in problem.layers],
            problem.batches,
            fisher_type="empirical",
            separate_weight_and_bias=False,
            check_deterministic=False,
            num_per_example_loss_terms=1,
            num_data=len(problem.inputs),
        )
        operator.compute_kronecker_factors()
        operator.compute_eigenvalue_correction()
        return operator

    def solver(operator: Any) -> Solve:
        n = len(problem.inputs)
        inverse = KFACInverseLinearOperator(operator, damping=DAMPING * n, use_exact_damping=True)

        def solve(vector: dict[str, Tensor]) -> dict[str, Tensor]:
            parts = inverse @ [vector[name] for name in problem.layers]
            return {name: part * n for name, part in zip(problem.layers, parts, strict=True)}

        return solve

    return fit, solver


def _nngeometry(problem: Problem) -> tuple[Callable[[], Any], Callable[[Any], Solve]]:
    from nngeometry.backend import TorchHooksJacobianBackend
    from nngeometry.layercollection import LayerCollection
    from nngeometry.object import PMatEKFAC, PVector

    module = problem.module
    layers = LayerCollection()
    places_of = {}
    for name, part in module.named_modules():
        if isinstance(part, nn.Linear | nn.Conv2d):
            known = set(layers.layers)
            layers.add_layer_from_model(module, part)
            (added,) = set(layers.layers) - known
            places_of[added] = name
    data = torch.utils.data.TensorDataset(problem.inputs, problem.targets)
    loader = torch.utils.data.DataLoader(data, BATCH)

    def per_sample_loss(x: Tensor, t: Tensor) -> Tensor:
        return functional.binary_cross_entropy_with_logits(module(x), t, reduction="none").sum(1, keepdim=True)

    def fit() -> Any:
        generator = TorchHooksJacobianBackend(layer_collection=layers, model=module, function=per_sample_loss)
        matrix = PMatEKFAC(generator=generator, examples=loader)
        matrix.update_diag(loader)
        return matrix

    def solver(matrix: Any) -> Solve:
        def solve(vector: dict[str, Tensor]) -> dict[str, Tensor]:
            entries, places = {}, {}
            for layer_id, name in places_of.items():
                keys = [key for key in (f"{name}.weight", f"{name}.bias") if key in vector]
                entries[layer_id], places[layer_id] = tuple(vector[key] for key in keys), keys
            answer = matrix.solvePVec(PVector(layers, dict_repr=entries), regul=DAMPING).to_dict()
            return {
                key: part
                for layer_id, keys in places.items()
                for key, part in zip(keys, answer[layer_id], strict=True)
            }

        return solve

    return fit, solver


def _kronfluence(problem: Problem) -> tuple[Callable[[], Any], Callable[[Any], Solve]]:
    import copy
    import warnings

    from kronfluence.analyzer import Analyzer, prepare_model
    from kronfluence.arguments import FactorArguments
    from kronfluence.task import Task

    warnings.simplefilter("ignore")

    class ConceptTask(Task):
        def compute_train_loss(self, batch, model, sample=False):  # type: ignore[no-untyped-def]
            return functional.binary_cross_entropy_with_logits(model(batch[0]), batch[1], reduction="sum")

        def compute_measurement(self, batch, model):  # type: ignore[no-untyped-def]
            return self.compute_train_loss(batch, model)

    data = torch.utils.data.TensorDataset(problem.inputs, problem.targets)

    def fit() -> Any:
        task = ConceptTask()
        module = prepare_model(copy.deepcopy(problem.module), task)
        with tempfile.TemporaryDirectory() as folder:
            analyzer = Analyzer("bench", module, task, output_dir=folder, disable_tqdm=True, cpu=True)
            analyzer.fit_all_factors(
                "ekfac",
                data,
                per_device_batch_size=BATCH,
                factor_args=FactorArguments(strategy="ekfac", use_empirical_fisher=True),
            )
            return analyzer.load_eigendecomposition("ekfac"), analyzer.load_lambda_matrices("ekfac")

    def solver(factors: Any) -> Solve:
        # kronfluence preconditions inside its score computation only; this is its formula on its factors
        eigen, values = factors
        named, modules = dict(problem.module.named_parameters()), dict(problem.module.named_modules())

        def solve(vector: dict[str, Tensor]) -> dict[str, Tensor]:
            result = {}
            for name in eigen["gradient_eigenvectors"]:
                left, right = eigen["gradient_eigenvectors"][name], eigen["activation_eigenvectors"][name]
                shape = named[f"{name}.weight"].shape
                matrix = vector[f"{name}.weight"].reshape(shape[0], -1)
                bias = modules[name].bias is not None
                if bias:
                    matrix = torch.cat([matrix, vector[f"{name}.bias"][:, None]], 1)
                rotated = left.T @ matrix @ right
                rotated = rotated / (values["lambda_matrix"][name] / len(problem.inputs) + DAMPING)
                matrix = left @ rotated @ right.T
                if bias:
                    result[f"{name}.bias"], matrix = matrix[:, -1], matrix[:, :-1]
                result[f"{name}.weight"] = matrix.reshape(shape)
            return result

        return solve

    return fit, solver


def _pydvl(problem: Problem) -> tuple[Callable[[], Any], Callable[[Any], Solve]]:
    raise CannotError("its EkfacInfluence takes cross-entropy and Linear layers only; the task is BCE")


METHODS: dict[str, Method] = {
    "ecbm": _ours("true"),
    "ecbm, nothing kept": _ours("true", memory_limit_bytes=0),
    "ecbm, all parameters": _ours("true", everything=True),
    "ecbm, empirical": _ours("empirical"),
    "curvlinops": _curvlinops,
    "nngeometry": _nngeometry,
    "kronfluence": _kronfluence,
    "pydvl": _pydvl,
}
