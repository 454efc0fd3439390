"""Small data whose label is a number, edits of it, and the ridge regression to compare the label head with."""

from __future__ import annotations

import torch
from torch import Tensor

import ecbm
import types_kit


def numbered(n: int = 120, width: int = 5, *, seed: int = 0, prefix: str = "s") -> ecbm.Dataset:
    """Concepts of every type and a price in EUR that follows from the inputs, with noise."""
    data = types_kit.mixed(n, width, seed=seed, prefix=prefix)
    noise = torch.randn(n, generator=torch.Generator().manual_seed(100 + seed), dtype=torch.float64)
    x = data.x.double()
    return with_price(data, 1000 + 300 * (x[:, 0] - x[:, 1]) + 50 * noise)


def with_price(data: ecbm.Dataset, price: Tensor) -> ecbm.Dataset:
    """The same samples, labelled by a number."""
    layout = data.layout
    return ecbm.Dataset(
        data.ids, data.inputs, data.concepts, price, data.concept_names, ["price"], data.splits,
        layout.declared, layout.units, target="number", target_unit="EUR",
    )  # fmt: skip


def edits(data: ecbm.Dataset) -> dict[str, ecbm.Edit]:
    """Edits of every level, both directions, and all at once."""
    ids, x = data.split("train").ids, data.x
    more = numbered(24, data.inputs.shape[0], seed=9, prefix="n").replace(splits=["train"] * 24)
    early = {sample: float(row[2] > 0) for sample, row in zip(data.ids, x, strict=True)}
    prices = [(sample, 2500.25) for sample in ids[:6]] + [(ids[6], 3)]
    return {
        "correct labels": ecbm.Edit(correct_labels=prices),
        "correct concepts": ecbm.Edit(
            [(i, "colour", "blue") for i in ids[:9]]
            + [(i, "striped", 1) for i in ids[:20]]
            + [(ids[2], "size", 44.0)]
        ),
        "remove a concept": ecbm.Edit(remove_concepts=["striped"]),
        "add a concept": ecbm.Edit(add_concepts={"early": early}),
        "remove samples": ecbm.Edit(remove_samples=ids[:10]),
        "add samples": ecbm.Edit(add_samples=more),
        "mix": ecbm.Edit(
            [(i, "colour", "red") for i in ids[20:30]], [(ids[35], -400.125)], ["severity"],
            {"early": {i: v for i, v in early.items() if i not in ids[:8]}}, ids[:8], more,
        ),
    }  # fmt: skip


def predicted(model: ecbm.ConceptBottleneck, data: ecbm.Dataset) -> Tensor:
    """The numbers of the test split (n,)."""
    return torch.tensor(model.predict(data.split("test")), dtype=torch.float64)


def ridge(read: Tensor, numbers: Tensor, l2: float) -> Tensor:
    """Weights and bias (d,) of J_Y over what the label head reads, by a dense solve."""
    design = torch.cat([read, torch.ones(len(read), 1)], 1).double()
    standardised = (numbers - numbers.mean()) / numbers.std(correction=0)
    matrix = design.T @ design / len(design) + l2 * torch.eye(design.shape[1], dtype=torch.float64)
    return torch.linalg.solve(matrix, design.T @ standardised / len(design))


def label_row(model: ecbm.ConceptBottleneck) -> Tensor:
    """The label head's weights and bias (d,)."""
    return torch.cat([model.label_head.weight[0], model.label_head.bias]).detach()
