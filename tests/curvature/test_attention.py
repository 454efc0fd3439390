"""Attention: what EK-FAC says about layers that are used without being called, and exact products through it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import ecbm
from ecbm.curvature import EKFAC, ConceptLoss, ExactOperator
from ecbm.curvature.exact import NoDerivativeError
from kit import tabular


class Attending(nn.Module):
    """Five tokens that attend to each other, as nn.MultiheadAttention or as a whole encoder layer."""

    def __init__(self, whole: bool, outputs: int = 3) -> None:
        super().__init__()
        self.embed = nn.Linear(2, 4)
        self.attention: nn.Module = (
            nn.TransformerEncoderLayer(4, 2, 6, batch_first=True, dropout=0.0)
            if whole
            else nn.MultiheadAttention(4, 2, batch_first=True)
        )
        self.out = nn.Linear(4, outputs)
        self.whole = whole

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x.view(len(x), -1, 2))
        x = self.attention(x) if self.whole else self.attention(x, x, x, need_weights=False)[0]
        return self.out(x.mean(1))


@pytest.fixture(params=[False, True], ids=["attention", "encoder layer"])
def model(request) -> Attending:
    torch.manual_seed(0)
    return Attending(request.param).double()


X = torch.randn(12, 10, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
LOSS = ConceptLoss((X[:, :3] > 0).double())


def test_a_weight_that_is_used_without_calling_its_layer_is_reported_as_that(model):
    uncovered = EKFAC.fit(model, X, LOSS, l2=1e-2).report()["uncovered"]
    reasons = {name.rpartition(".out_proj")[2]: why for name, why in uncovered.items() if "out_proj" in name}
    assert set(reasons) == {".weight", ".bias"}
    for why in reasons.values():
        assert why == "its weight is used without calling its layer (as attention does with out_proj)"
        assert "never called" not in why


def test_a_layer_that_nothing_uses_is_still_told_apart():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 3))
    model.spare = nn.Linear(10, 3)
    model.forward = lambda x: model[0](x)
    uncovered = EKFAC.fit(model.double(), X, LOSS).report()["uncovered"]
    assert uncovered == dict.fromkeys(["spare.weight", "spare.bias"], "the model's output does not depend on it")


def test_the_exact_matrices_go_through_attention(model):
    """Against autograd's own second derivative, which is slow and has nothing to do with the operators."""
    named = dict(model.named_parameters())
    shapes = [p.shape for p in named.values()]

    def objective(flat: Tensor) -> Tensor:
        parts = [
            part.view(shape) for part, shape in zip(flat.split([s.numel() for s in shapes]), shapes, strict=True)
        ]
        logits = torch.func.functional_call(model, dict(zip(named, parts, strict=True)), (X,))
        return LOSS.values(logits, torch.arange(len(X))).mean() + 0.05 * flat.square().sum()

    flat = torch.cat([p.detach().flatten() for p in named.values()]).requires_grad_()
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        model.train()  # without dropout the same function, and never the fused path
        (gradient,) = torch.autograd.grad(objective(flat), flat, create_graph=True)
        rows = [torch.autograd.grad(g, flat, retain_graph=True)[0] for g in gradient]
        model.eval()
    reference = torch.stack(rows)
    found = ExactOperator(model, X, LOSS, kind="hessian", l2=0.1).dense()
    assert float((found - reference).norm() / reference.norm()) < 1e-10
    gauss_newton = ExactOperator(model, X, LOSS, kind="gauss-newton", l2=0.1).dense()
    assert float(torch.linalg.eigvalsh(gauss_newton).min()) > 0.1 - 1e-9


def test_a_small_transformer_is_edited_with_the_hessian():
    torch.manual_seed(0)
    data = tabular(40, 10)
    model = ecbm.train(data, backbone=Attending(whole=True, outputs=6), epochs=2)
    sample = data.split("train")[0]
    edit = ecbm.Edit(correct_concepts=[(sample.id, "round", 1 - sample.concepts["round"])])
    report = ecbm.Editor(model, data).apply(edit, "hessian").report
    assert report["settings"]["matrix"] in ("hessian", "gauss-newton")
    assert report["objective"]["after"]["concepts"] is not None


class _Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient):
        return gradient * 2


class _WithoutSecond(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(10, 3).double()

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(_Once.apply(self.linear(x)))


@pytest.mark.parametrize("kind", ["hessian", "gauss-newton"])
def test_a_layer_without_a_second_derivative_is_refused_before_any_work(kind):
    class Slow:
        """Inputs of which only two rows may be asked for."""

        def __len__(self) -> int:
            return 10_000

        def take(self, rows: range) -> Tensor:
            assert len(rows) <= 2
            return X[:1].expand(len(rows), -1)

    loss = ConceptLoss(torch.zeros(10_000, 3, dtype=torch.float64))
    with pytest.raises(NoDerivativeError, match=r"no second derivative in torch .*; use EK-FAC"):
        ExactOperator(_WithoutSecond(), Slow(), loss, kind=kind)
