"""Pictures changed a little at random while a network is trained on them: flipped, shifted, in another light.

Numbers are drawn from torch's own generator, which training seeds anew for every epoch: a training that is resumed
sees the same pictures.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["AUGMENTATIONS", "augmented"]

AUGMENTATIONS = ("flip", "crop", "colour")


def augmented(x: Tensor, kinds: tuple[str, ...]) -> Tensor:
    """A batch of pictures (n, 3, height, width), each changed in its own way.

    Parameters
    ----------
    x
        The pictures; they are not changed themselves.
    kinds
        ``"flip"``: left and right exchanged in every second picture. ``"crop"``: moved by up to an eighth of its
        size, the border mirrored. ``"colour"``: contrast and each channel's strength changed by up to a fifth.

    Examples
    --------
    >>> augmented(torch.rand(4, 3, 16, 16), ("flip", "crop", "colour")).shape
    torch.Size([4, 3, 16, 16])
    """
    if "flip" in kinds:
        turned = torch.rand(len(x), 1, 1, 1) < 0.5
        x = torch.where(turned, x.flip(3), x)
    if "crop" in kinds:
        x = _moved(x)
    if "colour" in kinds:
        mean = x.mean((1, 2, 3), keepdim=True)
        contrast = 0.8 + 0.4 * torch.rand(len(x), 1, 1, 1)
        strength = 0.8 + 0.4 * torch.rand(len(x), x.shape[1], 1, 1)
        x = (mean + contrast * (x - mean)) * strength
    return x


def _moved(x: Tensor) -> Tensor:
    count, channels, height, width = x.shape
    down, across = max(height // 8, 1), max(width // 8, 1)
    padded = functional.pad(x, (across, across, down, down), mode="reflect")
    rows = torch.randint(2 * down + 1, (count, 1)) + torch.arange(height)
    columns = torch.randint(2 * across + 1, (count, 1)) + torch.arange(width)
    samples = torch.arange(count)[:, None, None, None]
    layers = torch.arange(channels)[None, :, None, None]
    return padded[samples, layers, rows[:, None, :, None], columns[:, None, None, :]]
