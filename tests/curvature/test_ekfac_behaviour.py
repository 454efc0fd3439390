"""Invariance, updates, storage, coverage, and one clear line for what cannot be done."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as functional
from curvature_kit import Residual, Shared, flatten, make_case, random_vector, relative_error
from torch import Tensor, nn

from ecbm.curvature import EKFAC, ConceptLoss, ExactOperator, LabelLoss
from ecbm.curvature.draws import input_keys, uniforms
from ecbm.errors import InputError


def answer(fitted: EKFAC, module: nn.Module, damping: float = 0.1) -> Tensor:
    return flatten(fitted.solve(random_vector(module, fitted.covered), damping), fitted.covered)


@pytest.mark.parametrize("model", ["mlp", "residual", "shared"])
@pytest.mark.parametrize("fisher", ["true", "empirical"])
def test_order_batches_and_memory_limit_change_nothing(model: str, fisher: str) -> None:
    case = make_case(model, True, "concepts", "missing", n=40)
    case.inputs[7] = case.inputs[3]  # equal inputs are told apart, whatever the order
    case.loss.weights[7] = case.loss.weights[3]
    whole = answer(EKFAC.fit(case.module, case.inputs, case.loss, fisher=fisher), case.module)
    order = torch.randperm(40, generator=torch.Generator().manual_seed(1))
    for batch, limit in ((1, 0), (7, 0), (7, 2**30), (64, 2**30)):
        again = EKFAC.fit(
            case.module,
            case.inputs[order],
            case.loss.subset(order),
            fisher=fisher,
            batch_size=batch,
            memory_limit_bytes=limit,
        )
        assert relative_error(answer(again, case.module), whole) <= 1e-10


def test_draws_are_uniform_and_independent_of_place() -> None:
    x = torch.randn(4000, 3)
    keys = input_keys(lambda rows: x[rows.start : rows.stop], 4000)
    numbers = uniforms(1, keys, 5)
    assert abs(float(numbers.mean()) - 0.5) < 0.01
    assert abs(float(numbers.var()) - 1 / 12) < 0.003
    assert float(torch.corrcoef(numbers.T).fill_diagonal_(0).abs().max()) < 0.06
    assert torch.equal(uniforms(1, keys[100:200], 5), numbers[100:200])
    assert not torch.equal(uniforms(2, keys, 5), numbers)
    same = input_keys(lambda rows: torch.zeros(len(rows), 3), 50)
    assert len(set(same.tolist())) == 50


def test_many_dampings_share_one_rotation_and_relative_damping_is_per_layer() -> None:
    case = make_case("mlp")
    fitted = EKFAC.fit(case.module, case.inputs, case.loss, l2=0.01)
    vector = random_vector(case.module, fitted.covered)
    for damping, many in zip([0.1, 2.0], fitted.solve_many(vector, [0.1, 2.0], relative=True), strict=True):
        means = fitted.mean_eigenvalues()
        for block in fitted.blocks:
            part = {name: vector[name] for name in block.parameters}
            one = fitted.solve(part, damping * means[block.name])
            for name in block.parameters:
                assert relative_error(many[name], one[name]) <= 1e-12
    back = fitted.multiply(fitted.solve(vector, 0.0))
    assert relative_error(flatten(back, fitted.covered), flatten(vector, fitted.covered)) <= 1e-8


def test_saved_factors_come_back_and_are_refused_for_another_model(tmp_path: Path) -> None:
    case = make_case("residual")
    fitted = EKFAC.fit(case.module, case.inputs, case.loss, l2=0.01)
    fitted.save(tmp_path)
    loaded = EKFAC.load(tmp_path, case.module)
    assert torch.equal(answer(loaded, case.module), answer(fitted, case.module))
    assert loaded.report() == fitted.report()
    other = make_case("residual").module
    with torch.no_grad():
        other.head.weight[0, 0] += 1e-6
    with pytest.raises(InputError, match="another model"):
        EKFAC.load(tmp_path, other)
    with pytest.raises(InputError, match="another model"):
        fitted.update(other, case.inputs, subtract=case.loss)
    (tmp_path / "ekfac.safetensors").write_bytes(b"broken")
    with pytest.raises(InputError, match="cannot be read"):
        EKFAC.load(tmp_path, case.module)
    with pytest.raises(InputError, match="no such file"):
        EKFAC.load(tmp_path / "nowhere", case.module)


@pytest.mark.parametrize("fisher", ["true", "empirical", "exact"])
@pytest.mark.parametrize("model", ["mlp", "residual"])
def test_updated_eigenvalues_equal_a_new_pass_in_the_same_basis(model: str, fisher: str) -> None:
    case = make_case(model, n=30)
    fitted = EKFAC.fit(case.module, case.inputs, case.loss, fisher=fisher)
    gone, kept = torch.arange(5), torch.arange(5, 30)
    changed = torch.rand(25, 3, dtype=torch.float64)
    removed = fitted.update(case.module, case.inputs[gone], subtract=case.loss.subset(gone))
    edited = removed.update(
        case.module,
        case.inputs[kept],
        subtract=case.loss.subset(kept),
        add=ConceptLoss(changed, 0.5 + changed),
    )
    assert (removed.samples, edited.samples) == (25, 25)
    # adding everything back in the same basis is the identity
    back = removed.update(case.module, case.inputs[gone], add=case.loss.subset(gone))
    assert relative_error(answer(back, case.module), answer(fitted, case.module)) <= 1e-9
    fresh = EKFAC.fit(case.module, case.inputs[kept], ConceptLoss(changed, 0.5 + changed), fisher=fisher)
    for mine, other, old in zip(edited.blocks, fresh.blocks, fitted.blocks, strict=True):
        if not hasattr(mine, "left"):
            assert relative_error(mine.dense(), other.dense()) <= 1e-9  # dense blocks have no basis to go stale
            continue
        assert torch.equal(mine.left, old.left)
        # traces do not depend on the basis
        assert float(mine.sums.sum()) == pytest.approx(float(other.sums.sum()), rel=1e-9)


def test_updated_factors_are_those_of_a_refit_and_drift_is_measured() -> None:
    case = make_case("residual", n=200)
    kept = torch.arange(40, 200)
    fitted = EKFAC.fit(case.module, case.inputs, case.loss)
    stale = fitted.update(case.module, case.inputs[:40], subtract=case.loss.subset(torch.arange(40)))
    moved = fitted.update(case.module, case.inputs[:40], subtract=case.loss.subset(torch.arange(40)), factors=True)
    drift, refit = stale.measure_drift(case.module, case.inputs[kept], case.loss.subset(kept))
    for mine, other in zip(moved.blocks, refit.blocks, strict=True):
        if hasattr(mine, "left"):
            for one, two in zip(mine.factor_matrices(), other.factor_matrices(), strict=True):
                assert relative_error(one, two) <= 1e-9
    assert 0 < drift["total"] < 0.5
    assert set(drift["layers"]) == {block.name for block in fitted.blocks}
    dense = {b.name: (b.dense(), o.dense()) for b, o in zip(stale.blocks, refit.blocks, strict=True)}
    for name, (one, two) in dense.items():
        assert drift["layers"][name] == pytest.approx(relative_error(one, two), rel=1e-6, abs=1e-7)
    assert refit.drift(refit)["total"] < 1e-6
    assert stale.report()["updates"][0]["subtracted"] == 40


class Odd(nn.Module):
    """Parameters that no block can cover, each for its own reason."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.free = nn.Parameter(torch.randn(4))
        self.unused = nn.Linear(4, 4)
        self.twice = nn.Linear(4, 4)
        self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))
        self.instance = nn.Embedding(3, 4)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.first(x)) * self.free + self.instance.weight[0]
        x = self.normed(self.twice(x)) + functional.linear(x, self.twice.weight)
        return self.head(x)


def test_every_parameter_without_a_block_is_named_with_its_reason() -> None:
    torch.manual_seed(0)
    module = Odd()
    fitted = EKFAC.fit(module, torch.randn(9, 4), ConceptLoss(torch.rand(9, 3)))
    assert sorted(fitted.covered) == ["first.bias", "first.weight", "head.bias", "head.weight"]
    assert set(fitted.covered) | set(fitted.report()["uncovered"]) == {n for n, _ in module.named_parameters()}
    assert "used elsewhere" in fitted.uncovered["twice.weight"]
    assert "does not depend" in fitted.uncovered["unused.weight"]
    with pytest.raises(InputError, match="has no curvature"):
        fitted.solve({"free": torch.zeros(4)}, 1.0)
    everything = {name: torch.ones_like(p) for name, p in module.named_parameters()}
    assert set(fitted.solve(fitted.restrict(everything), 1.0)) == set(fitted.covered)


def test_tied_layers_and_mixed_types_are_one_block_and_their_own_type() -> None:
    torch.manual_seed(0)

    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)
            self.two.weight, self.two.bias = self.one.weight, self.one.bias
            self.head = nn.Linear(4, 3).double()

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.two(torch.tanh(self.one(x))).double())

    module = Mixed()
    fitted = EKFAC.fit(module, torch.randn(9, 4), LabelLoss(torch.randint(0, 3, (9,))))
    assert fitted.covered == ["one.weight", "one.bias", "head.weight", "head.bias"]
    result = fitted.solve(random_vector(module, fitted.covered), 0.1)
    assert result["head.weight"].dtype == torch.float64
    assert result["one.weight"].dtype == torch.float32


def test_the_model_is_left_as_it_was() -> None:
    module = Residual().train()
    module.norm.eval()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    EKFAC.fit(module, torch.randn(5, 2, 6, 5), ConceptLoss(torch.rand(5, 3)))
    assert module.training
    assert not module.norm.training
    assert all(p.requires_grad and p.grad is None for p in module.parameters())
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert not any(part._forward_hooks for part in module.modules())


def bad_fit(**changes: object) -> None:
    arguments: dict[str, object] = {
        "module": nn.Linear(4, 3),
        "inputs": torch.randn(9, 4),
        "loss": ConceptLoss(torch.rand(9, 3)),
    } | changes
    EKFAC.fit(**arguments)  # type: ignore[arg-type]


def frozen() -> nn.Module:
    module = Shared()
    module.linear.weight.requires_grad_(False)
    return module


def infinite(where: int) -> Tensor:
    x = torch.randn(9, 4)
    x[where, 1] = float("inf")
    return x


class Unstable(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(1 / self.first(x).relu())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"module": nn.Sequential(nn.Embedding(5, 3))}, "no supported layer"),
        ({"module": nn.ReLU()}, "no parameters"),
        ({"module": frozen(), "inputs": torch.randn(9, 2, 5, 4)}, "'linear.weight' is frozen"),
        ({"module": nn.Linear(4, 3).half()}, "float16"),
        ({"module": nn.Linear(4, 3).bfloat16()}, "bfloat16"),
        ({"module": nn.Linear(4, 3, dtype=torch.complex64)}, "complex64"),
        ({"inputs": infinite(7), "batch_size": 2}, r"layer '\(model\)': its input is not finite in batch 3"),
        ({"module": Unstable(), "batch_size": 4}, "layer 'second': its input is not finite in batch 0"),
        ({"inputs": torch.randn(8, 4)}, "8 inputs but the loss has 9 rows"),
        ({"inputs": torch.randn(0, 4), "loss": ConceptLoss(torch.rand(0, 3))}, "empty"),
        ({"inputs": [1, 2]}, "list"),
        ({"loss": ConceptLoss(torch.rand(9, 2))}, "3 logits but the loss has 2 concepts"),
        ({"loss": LabelLoss(torch.arange(9))}, "class label 8"),
        ({"l2": -1.0}, "l2 is -1"),
        ({"fisher": "other"}, "expected one of true, empirical, exact"),
        ({"batch_size": 0}, "batch_size"),
        ({"parameters": "nothing"}, "matches no parameter"),
        ({"keys": torch.zeros(3)}, "keys have shape"),
        ({"module": nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3, track_running_stats=False))}, "independent"),
    ],
)
def test_bad_fits_end_in_one_clear_line(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        bad_fit(**changes)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ConceptLoss(torch.tensor([[2.0]])), r"expected a value in \[0, 1\]"),
        (lambda: ConceptLoss(torch.tensor([[float("nan")]]), torch.ones(1, 1)), "missing but has weight 1"),
        (lambda: ConceptLoss(torch.rand(2, 2), -torch.ones(2, 2)), "at least 0"),
        (lambda: ConceptLoss(torch.rand(2)), "samples × concepts"),
        (lambda: LabelLoss(torch.tensor([0.5])), "one whole number"),
        (lambda: LabelLoss(torch.tensor([-1]), torch.ones(1)), "use weight 0"),
    ],
)
def test_bad_losses_end_in_one_clear_line(make: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()  # type: ignore[operator]


@pytest.mark.parametrize("damping", [-1.0, float("nan"), float("inf")])
def test_impossible_dampings_are_refused(damping: float) -> None:
    case = make_case("mlp")
    fitted = EKFAC.fit(case.module, case.inputs, case.loss)
    with pytest.raises(InputError, match="damping is"):
        fitted.solve(random_vector(case.module, fitted.covered), damping)


def test_a_damping_that_leaves_rounding_error_is_refused() -> None:
    torch.manual_seed(0)
    module = nn.Linear(50, 3)
    fitted = EKFAC.fit(module, torch.randn(20, 50), ConceptLoss(torch.rand(20, 3)))  # rank 20 of 51
    vector = random_vector(module, fitted.covered)
    for damping in (0.0, 1e-20):
        with pytest.raises(InputError, match="rounding"):
            fitted.solve(vector, damping)
    fitted.solve(vector, 1e-6)


def test_bad_vectors_are_refused() -> None:
    case = make_case("mlp")
    fitted = EKFAC.fit(case.module, case.inputs, case.loss)
    vector = random_vector(case.module, fitted.covered)
    with pytest.raises(InputError, match=r"vector lacks '0\.bias'"):
        fitted.solve({"0.weight": vector["0.weight"]}, 0.1)
    with pytest.raises(InputError, match="unknown parameter"):
        fitted.solve({"0.wait": vector["0.weight"]}, 0.1)
    with pytest.raises(InputError, match="has shape"):
        fitted.solve(vector | {"0.weight": vector["0.weight"].T}, 0.1)


def test_an_indefinite_hessian_is_named_by_conjugate_gradients() -> None:
    case = make_case("mlp")
    operator = ExactOperator(case.module, case.inputs, case.loss, kind="hessian")
    with pytest.raises(InputError, match="not positive definite"):
        operator.solve(random_vector(case.module, operator.names), tolerance=1e-12)
