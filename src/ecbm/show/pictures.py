"""Pictures in a terminal: two pixels a character, as coloured half blocks."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from rich.text import Text
from torch import Tensor
from torch.nn import functional

__all__ = ["terminal_row"]


def terminal_row(pictures: Sequence[Tensor], titles: Sequence[str], size: int = 24) -> Text:
    """Pictures (3, height, width, uint8) side by side with a title under each, ``size`` characters wide."""
    shrunk = [
        functional.interpolate(p[None].float(), size=(size, size), mode="area")[0].to(torch.uint8) for p in pictures
    ]
    text = Text()
    for line in range(0, size, 2):
        for picture in shrunk:
            for column in range(size):
                upper, lower = picture[:, line, column].tolist(), picture[:, line + 1, column].tolist()
                text.append("▀", f"rgb({','.join(map(str, upper))}) on rgb({','.join(map(str, lower))})")
            text.append("  ")
        text.append("\n")
    text.append("  ".join(title[:size].center(size) for title in titles), "bold")
    return text
