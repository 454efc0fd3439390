"""Where a backbone can be cut in two: a front that is left alone and a tail that an edit may move.

A backbone says of which pieces it is made by a method ``pieces()``, a list of names and modules whose composition
is its ``forward``; a plain ``nn.Sequential`` is made of its children. Anything else cannot be cut. Pieces are the
backbone's own modules, not copies: what moves the tail moves the backbone.
"""

from __future__ import annotations

import dataclasses

from torch import nn

__all__ = ["Cut", "cuts_of"]


@dataclasses.dataclass(frozen=True, eq=False)
class Cut:
    """A backbone as tail(front(x)); ``name`` is that of the tail's first piece.

    ``front`` without parameters means that everything is behind the cut.
    """

    name: str
    front: nn.Module
    tail: nn.Module

    @property
    def whole(self) -> bool:
        """Whether every parameter of the backbone is behind the cut."""
        return next(self.front.parameters(), None) is None

    @property
    def trained(self) -> list[nn.Parameter]:
        """Parameters behind the cut that training moves."""
        return [parameter for parameter in self.tail.parameters() if parameter.requires_grad]


def cuts_of(backbone: nn.Module) -> list[Cut]:
    """Every cut of a backbone, the shortest tail first and the whole network last; none if it cannot be cut.

    Parameters
    ----------
    backbone
        A built-in backbone, a custom one with a method ``pieces()``, or an ``nn.Sequential``.

    Returns
    -------
    list of Cut
        A piece without parameters (an activation, a pooling) belongs to the piece in front of it.

    Examples
    --------
    >>> network = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> [cut.name for cut in cuts_of(network)]
    ['2', '0']
    """
    pieces = _pieces(backbone)
    starts = [place for place, (_, piece) in enumerate(pieces) if _has_weights(piece)]
    modules = [piece for _, piece in pieces]
    return [
        Cut(pieces[place][0], nn.Sequential(*modules[:place]), nn.Sequential(*modules[place:]))
        for place in reversed(starts)
    ]


def _pieces(backbone: nn.Module) -> list[tuple[str, nn.Module]]:
    pieces = getattr(backbone, "pieces", None)
    if callable(pieces):
        return list(pieces())
    # A subclass may have a forward of its own.
    return list(backbone.named_children()) if type(backbone) is nn.Sequential else []


def _has_weights(piece: nn.Module) -> bool:
    """Whether it holds a matrix or kernel; a normalisation alone starts no tail of its own."""
    return any(parameter.ndim > 1 for parameter in piece.parameters())
