"""Small data with concepts of every type, edits of it, and the dense reference that heads are compared with."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

import ecbm
from ecbm.train.heads.objectives import with_ones

NAMES = (
    "striped",
    "colour::red",
    "colour::blue",
    "colour::green",
    "severity::>=1",
    "severity::>=2",
    "severity::>=3",
    "size",
    "crest",
)
TYPES = {"colour": "categorical", "severity": "ordinal", "size": "continuous"}
GROUPS = {"striped": (0,), "colour": (1, 2, 3), "severity": (4, 5, 6), "size": (7,), "crest": (8,)}
BINARY, CATEGORICAL, ORDINAL, CONTINUOUS = (0, 8), (1, 2, 3), (4, 5, 6), 7


def mixed(n: int = 120, width: int = 5, *, seed: int = 0, missing: float = 0.1, prefix: str = "s") -> ecbm.Dataset:
    """Two binary concepts, a colour, a severity 0..3 and a size in millimetres; some labels are missing."""
    world, draw = torch.Generator().manual_seed(7), torch.Generator().manual_seed(seed)
    weights, noise = torch.randn(6, width, generator=world), 0.7
    x = torch.randn(n, width, generator=draw)
    score = x @ weights.T + noise * torch.randn(n, 6, generator=draw)
    colour = torch.stack([score[:, 1], score[:, 2], torch.zeros(n)], 1).argmax(1)
    concepts = torch.cat(
        [
            (score[:, :1] > 0).float(),
            functional.one_hot(colour, 3).float(),
            torch.stack([(score[:, 3] > cut).float() for cut in (-1.5, 0.0, 2.0)], 1),
            20 + 5 * score[:, 4:5],
            (score[:, 5:6] > 0.5).float(),
        ],
        1,
    )
    for columns in GROUPS.values():
        gone = (torch.rand(n, generator=draw) < missing).nonzero().flatten()
        concepts[gone[:, None], torch.tensor(columns)] = torch.nan
    labels = torch.bucketize(score[:, 0] + score[:, 1] - score[:, 3] + 0.3 * score[:, 4], torch.tensor([-1.5, 1.5]))
    splits = (["train"] * 4 + ["val", "test"]) * (n // 6 + 1)
    return ecbm.Dataset(
        [f"{prefix}{row:03d}" for row in range(n)],
        x,
        concepts,
        labels,
        NAMES,
        ["low", "mid", "high"],
        splits[:n],
        TYPES,
        {"size": "mm"},
    )


def edits(data: ecbm.Dataset) -> dict[str, ecbm.Edit]:
    """Edits of every level and type, both directions, and all at once."""
    ids, x = data.split("train").ids, data.x

    def by_id(values: list[object]) -> dict[str, object]:
        return dict(zip(data.ids, values, strict=True))

    shape = by_id([("round", "long", "flat")[int(row[0] > 0) + int(row[1] > 0.8)] for row in x])
    pain = by_id([1 + int(row[1] > 0) + int(row[1] > 1) for row in x])
    length = by_id([float(100 + 10 * row[2]) for row in x])
    more = mixed(24, data.inputs.shape[0], seed=9, prefix="n").replace(splits=["train"] * 24)
    return {
        "correct binary": ecbm.Edit([(i, "crest", 1) for i in ids[:12]]),
        "correct categorical": ecbm.Edit([(i, "colour", "blue") for i in ids[:12]]),
        "correct ordinal": ecbm.Edit([(i, "severity", 3) for i in ids[:12]]),
        "correct continuous": ecbm.Edit([(i, "size", 40.5) for i in ids[:12]]),
        "correct all types": ecbm.Edit(
            [(ids[0], "colour", None), (ids[1], "severity", None), (ids[2], "size", None), (ids[3], "striped", 1)]
            + [(i, "colour", "red") for i in ids[20:30]]
        ),
        "remove categorical": ecbm.Edit(remove_concepts=["colour"]),
        "remove ordinal": ecbm.Edit(remove_concepts=["severity"]),
        "remove continuous": ecbm.Edit(remove_concepts=["size"]),
        "add categorical": ecbm.Edit(add_concepts={"shape": shape}),
        "add ordinal": ecbm.Edit(add_concepts={"pain": pain}, concept_types={"pain": "ordinal"}),
        "add continuous": ecbm.Edit(
            add_concepts={"length": length}, concept_types={"length": "continuous"}, units={"length": "cm"}
        ),
        "remove samples": ecbm.Edit(remove_samples=ids[:10]),
        "add samples": ecbm.Edit(add_samples=more),
        "mix": ecbm.Edit(
            [(i, "colour", "blue") for i in ids[20:30]],
            [(ids[35], "high")],
            ["severity"],
            {"length": {i: v for i, v in length.items() if i not in ids[:8]}},
            ids[:8],
            more,
            {"length": "continuous"},
        ),
    }


class Reference:
    """J_C of a mixed dataset as a function of free parameters: one slope an ordinal concept.

    Written out term by term from the labels, for small problems; autograd does the rest.
    """

    def __init__(self, data: ecbm.Dataset, design: Tensor, l2: float) -> None:
        self.data, self.design, self.l2 = data, design, l2
        self.width, self.labels = design.shape[1], data.concepts.double()
        self.sizes = [len(one.columns) for one in data.layout.concepts]

    def pieces(self, free: Tensor) -> list[tuple[object, Tensor]]:
        """(concept, its rows) from the flat free parameters."""
        found, place = [], 0
        for concept in self.data.layout.concepts:
            m = len(concept.columns)
            count = self.width - 1 + m if concept.type == "ordinal" else self.width * m
            own = free[place : place + count]
            place += count
            if concept.type == "ordinal":
                slope, cuts = own[: self.width - 1], own[self.width - 1 :]
                rows = torch.cat([slope.expand(m, -1), cuts[:, None]], 1)
            else:
                rows = own.reshape(m, self.width)
            found.append((concept, rows))
        return found

    @property
    def count(self) -> int:
        return sum(
            self.width - 1 + len(one.columns) if one.type == "ordinal" else self.width * len(one.columns)
            for one in self.data.layout.concepts
        )

    def rows(self, free: Tensor) -> Tensor:
        out = torch.zeros(len(self.data.concept_names), self.width, dtype=torch.float64)
        for concept, rows in self.pieces(free):
            out[list(concept.columns)] = rows  # type: ignore[attr-defined]
        return out

    def free(self, rows: Tensor) -> Tensor:
        """The free parameters of tied rows."""
        parts = []
        for concept in self.data.layout.concepts:
            own = rows[list(concept.columns)]
            parts.append(torch.cat([own[0, :-1], own[:, -1]]) if concept.type == "ordinal" else own.flatten())
        return torch.cat(parts)

    def objective(self, free: Tensor) -> Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for concept, rows in self.pieces(free):
            labels = self.labels[:, list(concept.columns)]  # type: ignore[attr-defined]
            known = ~labels[:, 0].isnan()
            z, t = self.design[known] @ rows.T, labels[known]
            kind = concept.type  # type: ignore[attr-defined]
            if kind == "categorical":
                loss = -(t * torch.log_softmax(z, 1)).sum()
            elif kind == "continuous":
                loss = 0.5 * (z - (t - t.mean()) / t.std(correction=0)).square().sum()
            else:
                loss = functional.binary_cross_entropy_with_logits(z, t, reduction="sum")
            total = total + loss / len(self.design) + 0.5 * self.l2 * rows.square().sum()
        return total

    def gradient(self, free: Tensor) -> Tensor:
        return torch.func.grad(self.objective)(free)  # type: ignore[no-any-return]

    def hessian(self, free: Tensor) -> Tensor:
        return torch.func.hessian(self.objective)(free)  # type: ignore[no-any-return]

    def solve(self) -> Tensor:
        """Rows at the optimum, by dense Newton."""
        free = torch.zeros(self.count, dtype=torch.float64)
        for _ in range(50):
            step = torch.linalg.solve(self.hessian(free), self.gradient(free))
            length = 1.0
            while length > 1e-6 and self.objective(free - length * step) > self.objective(free) + 1e-15:
                length /= 2
            free = free - length * step
            if float(step.norm()) < 1e-13:
                break
        return self.rows(free)


def reference_of(model: ecbm.ConceptBottleneck, data: ecbm.Dataset) -> Reference:
    """The reference on the training features of a model."""
    train = data.split("train")
    return Reference(train, with_ones(model.features(train.inputs)), model.recipe.concept_regularisation)


def head_rows(model: ecbm.ConceptBottleneck) -> Tensor:
    return torch.cat([model.concept_head.weight, model.concept_head.bias[:, None]], 1).detach()
