"""One table of small cases and the slow, obvious references they are checked against, in float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from ecbm.curvature import ConceptLoss, LabelLoss
from ecbm.curvature.draws import input_keys, uniforms


class Tokens(nn.Module):
    """Linear layers on a sequence, then on its mean."""

    def __init__(self, bias: bool = True) -> None:
        super().__init__()
        self.first = nn.Linear(4, 5, bias=bias)
        self.second = nn.Linear(5, 3, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.tanh(self.first(x)).mean(1))


class Shared(nn.Module):
    """A Linear used three times and a Conv2d used twice."""

    def __init__(self, bias: bool = True) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(2, 2, 3, padding=1, bias=bias)
        self.linear = nn.Linear(8, 8, bias=bias)
        self.head = nn.Linear(8, 3, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.convolution(x))
        x = torch.tanh(self.convolution(x))
        x = functional.adaptive_avg_pool2d(x, 2).flatten(1)
        for _ in range(3):
            x = torch.tanh(self.linear(x))
        return self.head(x)


class Residual(nn.Module):
    """Convolutions, normalisation layers, in-place activations and a skip connection."""

    def __init__(self, bias: bool = True) -> None:
        super().__init__()
        self.stem = nn.Conv2d(2, 4, 3, padding=1, bias=bias)
        self.norm = nn.BatchNorm2d(4)
        self.convolution = nn.Conv2d(4, 4, 3, padding=1, bias=bias)
        self.group = nn.GroupNorm(2, 4)
        self.down = nn.Conv2d(4, 6, 1, stride=2, bias=bias)
        self.layer = nn.LayerNorm(6)
        self.head = nn.Linear(6, 3, bias=bias)
        self.relu = nn.ReLU(inplace=True)
        with torch.no_grad():
            self.norm.running_mean.uniform_(-1, 1)
            self.norm.running_var.uniform_(0.5, 2)
            for norm in (self.norm, self.group, self.layer):
                norm.weight.uniform_(0.5, 1.5)
                norm.bias.uniform_(-0.5, 0.5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.norm(self.stem(x)))
        x = self.relu(self.group(self.convolution(x)) + x)
        return self.head(self.layer(self.down(x).mean((2, 3))))


def convolution(**options: object) -> Callable[[bool], nn.Module]:
    def build(bias: bool) -> nn.Module:
        settings: dict[str, object] = {"in_channels": 2, "out_channels": 4, "kernel_size": 3} | options
        layer = nn.Conv2d(bias=bias, **settings)  # type: ignore[arg-type]
        return nn.Sequential(
            layer,
            nn.ReLU(inplace=True),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
            nn.Linear(4 * layer.out_channels, 3, bias=bias),
        )

    return build


def convolution_alone(**options: object) -> Callable[[bool], nn.Module]:
    """A convolution seen at one or few positions, so that patches are rotated before the product."""

    def build(bias: bool) -> nn.Module:
        settings: dict[str, object] = {"in_channels": 2, "out_channels": 24, "kernel_size": 3} | options
        return nn.Sequential(
            nn.Conv2d(bias=bias, **settings),  # type: ignore[arg-type]
            nn.Tanh(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(24, 3, bias=bias),
        )

    return build


MODELS: dict[str, tuple[Callable[[bool], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda bias: nn.Linear(6, 3, bias=bias), (6,)),
    "mlp": (
        lambda bias: nn.Sequential(nn.Linear(6, 5, bias=bias), nn.ReLU(), nn.Linear(5, 3, bias=bias)),
        (6,),
    ),
    "tokens": (Tokens, (4, 4)),
    "many tokens": (Tokens, (40, 4)),
    "shared": (Shared, (2, 5, 4)),
    "residual": (Residual, (2, 6, 5)),
    "conv 3x3 same": (convolution(padding=1), (2, 5, 6)),
    "conv 3x3 same, two rows": (convolution(padding=1), (2, 2, 3)),
    "conv 3x3 same, one pixel": (convolution(padding=1), (2, 1, 1)),
    "conv 3x3 valid": (convolution(padding="valid"), (2, 6, 5)),
    "conv stride": (convolution(stride=2, padding=1), (2, 7, 6)),
    "conv stride two ways": (convolution(kernel_size=(3, 2), stride=(1, 2), padding=(0, 1)), (2, 6, 7)),
    "conv dilation": (convolution(dilation=2, padding=2), (2, 6, 6)),
    "conv groups": (convolution(groups=2, padding=1), (2, 5, 5)),
    "conv depthwise": (convolution(groups=2, out_channels=2, stride=2), (2, 6, 6)),
    "conv word same, even kernel": (convolution(kernel_size=(2, 4), padding="same"), (2, 5, 6)),
    "conv reflect": (convolution(padding=1, padding_mode="reflect"), (2, 5, 5)),
    "conv circular": (convolution(padding=(1, 2), padding_mode="circular"), (2, 5, 5)),
    "conv replicate same": (
        convolution(kernel_size=2, padding="same", padding_mode="replicate"),
        (2, 5, 5),
    ),
    "conv 1x1 stride": (convolution(kernel_size=1, stride=2), (2, 6, 5)),
    "conv few positions": (convolution_alone(), (2, 4, 3)),
    "conv few positions, groups": (convolution_alone(groups=2, padding=1, stride=2), (2, 4, 3)),
}


@dataclass(frozen=True)
class Case:
    module: nn.Module
    inputs: Tensor
    loss: ConceptLoss | LabelLoss


def make_case(model: str, bias: bool = True, kind: str = "concepts", weights: str = "none", n: int = 13) -> Case:
    """A case of the table; everything in it follows from the arguments."""
    torch.manual_seed(0)
    build, shape = MODELS[model]
    module = build(bias).double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    module.eval()
    inputs = torch.randn(n, *shape, dtype=torch.float64)
    targets, labels = torch.rand(n, 3, dtype=torch.float64), torch.randint(0, 3, (n,))
    if kind == "concepts":
        given = None
        if weights == "real":
            given = 2 * torch.rand(n, 3, dtype=torch.float64)
        elif weights == "missing":
            targets[torch.rand(n, 3) < 0.4] = float("nan")
        return Case(module, inputs, ConceptLoss(targets, given))
    given = None
    if weights == "real":
        given = 2 * torch.rand(n, dtype=torch.float64)
    elif weights == "missing":
        labels[torch.rand(n) < 0.4] = -1
    return Case(module, inputs, LabelLoss(labels, given))


def reference_output_gradients(case: Case, logits: Tensor, fisher: str, seed: int) -> Tensor:
    """columns × n × k: for each column, the gradient at the logits of every sample; loops over everything."""
    loss, n, k = case.loss, *logits.shape
    if fisher == "true":
        keys = input_keys(lambda rows: case.inputs[rows.start : rows.stop], n)
        numbers = uniforms(seed, keys, loss.draws)
    result = torch.zeros(k if fisher == "exact" else 1, n, k, dtype=torch.float64)
    for i in range(n):
        if isinstance(loss, ConceptLoss):
            for j in range(k):
                p, t, w = torch.sigmoid(logits[i, j]), loss.targets[i, j], loss.weights[i, j]
                if fisher == "empirical":
                    result[0, i, j] = w * (p - t)
                elif fisher == "true":
                    result[0, i, j] = w.sqrt() * (p - float(numbers[i, j] < p))
                else:
                    result[j, i, j] = (w * p * (1 - p)).sqrt()
        else:
            p, v = torch.softmax(logits[i], 0), loss.weights[i]
            if fisher == "empirical":
                result[0, i] = v * (p - functional.one_hot(loss.labels[i], k))
            elif fisher == "true":
                drawn = int((numbers[i, 0] >= p.cumsum(0)[:-1]).sum())
                result[0, i] = v.sqrt() * (p - functional.one_hot(torch.tensor(drawn), k))
            else:
                for c in range(k):
                    result[c, i] = (v * p[c]).sqrt() * (p - functional.one_hot(torch.tensor(c), k))
    return result


def naive_patches(layer: nn.Conv2d, x: Tensor) -> Tensor:
    """positions × groups × inputs of one sample, by convolving with every unit kernel: no unfolding, no tricks."""
    per_group = layer.in_channels // layer.groups
    size = per_group * layer.kernel_size[0] * layer.kernel_size[1]
    columns = []
    for group in range(layer.groups):
        channels = x[:, group * per_group : (group + 1) * per_group]
        probe = nn.Conv2d(
            per_group,
            size,
            layer.kernel_size,
            layer.stride,
            layer.padding,
            layer.dilation,
            bias=False,
            padding_mode=layer.padding_mode,
        ).double()
        with torch.no_grad():
            probe.weight.copy_(torch.eye(size, dtype=torch.float64).view_as(probe.weight))
            columns.append(probe(channels)[0].flatten(1).T)
    return torch.stack(columns, 1)


def rows_of_linear(layer: nn.Linear, a: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    return a.reshape(-1, 1, layer.in_features), s.reshape(-1, 1, layer.out_features)


def rows_of_convolution(layer: nn.Conv2d, a: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    per_group = layer.out_channels // layer.groups
    return naive_patches(layer, a), s[0].flatten(1).T.reshape(-1, layer.groups, per_group)


ROWS: dict[type[nn.Module], Callable[..., tuple[Tensor, Tensor]]] = {
    nn.Linear: rows_of_linear,
    nn.Conv2d: rows_of_convolution,
}
"""What a layer multiplies at every position for one sample, and the gradient at its output there: both
positions × groups × size, from its whole input and the gradient of its whole output."""


def reference_blocks(case: Case, fisher: str, seed: int = 0) -> dict[str, Tensor]:
    """The EK-FAC matrix of every layer in ROWS, as (weight, bias), by explicit Kronecker products."""
    module, n = case.module, len(case.inputs)
    layers = {name: m for name, m in module.named_modules() if type(m) in ROWS}
    store: dict[str, list[tuple[Tensor, list[Tensor]]]] = {}

    def watch(name: str) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], None]:
        def hook(_: nn.Module, arguments: tuple[Tensor, ...], output: Tensor) -> None:
            gradient: list[Tensor] = []
            store.setdefault(name, []).append((arguments[0].detach().clone(), gradient))
            if output.requires_grad:
                output.register_hook(lambda g: gradient.append(g.clone()))

        return hook

    handles = [layer.register_forward_hook(watch(name)) for name, layer in layers.items()]
    with torch.no_grad():
        logits = module(case.inputs)
    store.clear()
    outputs = reference_output_gradients(case, logits, fisher, seed)
    omega: dict[str, Tensor] = {}
    gamma: dict[str, Tensor] = {}
    per_sample: dict[str, list[Tensor]] = {name: [] for name in layers}
    for i in range(n):
        for column in outputs:
            store.clear()
            module.zero_grad()
            out = module(case.inputs[i : i + 1].clone())
            out.backward(column[i : i + 1])
            for name, layer in layers.items():
                groups = getattr(layer, "groups", 1)
                for a, (s,) in store[name]:
                    rows, s = ROWS[type(layer)](layer, a, s)
                    if layer.bias is not None:
                        rows = torch.cat([rows, torch.ones(*rows.shape[:2], 1, dtype=rows.dtype)], 2)
                    omega[name] = omega.get(name, 0) + torch.einsum("tgi,tgj->gij", rows, rows) / len(outputs)
                    gamma[name] = gamma.get(name, 0) + torch.einsum("tgi,tgj->gij", s, s)
                weight = layer.weight.grad.reshape(groups, layer.weight.shape[0] // groups, -1)
                if layer.bias is not None:
                    weight = torch.cat([weight, layer.bias.grad.reshape(groups, -1, 1)], 2)
                per_sample[name].append(weight.clone())
    for handle in handles:
        handle.remove()
    module.zero_grad()
    result = {}
    for name, layer in layers.items():
        parts = []
        groups, size_out, size_in = per_sample[name][0].shape
        for g in range(groups):
            _, right = torch.linalg.eigh(omega[name][g])
            _, left = torch.linalg.eigh(gamma[name][g])
            basis = torch.kron(left, right)
            rotated = torch.stack([(basis.T @ G[g].reshape(-1)).square() for G in per_sample[name]])
            parts.append(basis @ torch.diag(rotated.sum(0) / n) @ basis.T)
        whole = torch.block_diag(*parts)
        # from (group, output, column) to all weights, then all biases
        places = torch.arange(groups * size_out * size_in).view(groups * size_out, size_in)
        order = places[:, : size_in - (layer.bias is not None)].reshape(-1)
        if layer.bias is not None:
            order = torch.cat([order, places[:, -1]])
        result[name] = whole[order][:, order]
    return result


def per_sample_gradients(case: Case, names: list[str], fisher: str, seed: int = 0) -> Tensor:
    """(columns·n) × parameters: each sample's gradient by autograd, one at a time."""
    with torch.no_grad():
        logits = case.module(case.inputs)
    outputs = reference_output_gradients(case, logits, fisher, seed)
    parameters = dict(case.module.named_parameters())
    rows = []
    for i in range(len(case.inputs)):
        for column in outputs:
            out = case.module(case.inputs[i : i + 1].clone())
            parts = torch.autograd.grad(out, [parameters[name] for name in names], column[i : i + 1])
            rows.append(torch.cat([part.reshape(-1) for part in parts]))
    return torch.stack(rows)


def relative_error(value: Tensor, truth: Tensor) -> float:
    return float((value.double() - truth.double()).norm() / truth.double().norm().clamp_min(1e-300))


def flatten(vector: dict[str, Tensor], names: list[str]) -> Tensor:
    return torch.cat([vector[name].reshape(-1) for name in names])


def random_vector(module: nn.Module, names: list[str], seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    parameters = dict(module.named_parameters())
    return {
        name: torch.randn(parameters[name].shape, generator=generator, dtype=torch.float64).to(parameters[name])
        for name in names
    }
