"""Predictions by name: probabilities that know their columns, and names that know their probabilities."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

if TYPE_CHECKING:
    import pandas

__all__ = ["Predicted", "Probabilities"]

T = TypeVar("T")


class Probabilities(Tensor):
    """Probabilities (n, names) that :meth:`to_frame` labels. What is computed from them is a plain tensor."""

    # As nn.Parameter does: every operation gives a plain tensor, so that labels never stick to other columns.
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    names: tuple[str, ...]
    ids: tuple[str, ...] | None

    @staticmethod
    def of(values: Tensor, names: Sequence[str], ids: Sequence[str] | None = None) -> Probabilities:
        """``values`` with a name for each column and, where they are known, an id for each row."""
        labelled = values.as_subclass(Probabilities)
        labelled.names, labelled.ids = tuple(names), None if ids is None else tuple(ids)
        return labelled

    def __deepcopy__(self, memo: dict[int, Any]) -> Probabilities:
        return Probabilities.of(self.detach().clone(), self.names, self.ids)

    def to_frame(self) -> pandas.DataFrame:
        """The same as a pandas table: one column a name, one row an input (by id where it has one)."""
        import pandas

        index = None if self.ids is None else pandas.Index(list(self.ids), name="id")
        return pandas.DataFrame(self.detach().cpu().numpy(), index=index, columns=list(self.names))


class Predicted(list[T]):
    """A list of names, one entry an input; :attr:`probabilities` and :meth:`to_frame` say how sure they are."""

    def __init__(self, names: Iterable[T], probabilities: Probabilities) -> None:
        super().__init__(names)
        self.probabilities = probabilities

    def to_frame(self) -> pandas.DataFrame:
        """The probabilities as a pandas table with a column for every class or concept."""
        return self.probabilities.to_frame()
