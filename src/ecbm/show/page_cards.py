"""Cards of a page: a picture, what a model says about it as probability bars, and remarks."""

from __future__ import annotations

import base64
import dataclasses
import io
import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ecbm.errors import InputError

__all__ = ["Badge", "Card", "ConceptBar", "card_block", "key", "picture_uri", "share"]


@dataclasses.dataclass(frozen=True)
class ConceptBar:
    """One probability as a horizontal bar, with a mark for the true value where it is known.

    A bar whose probability lies on the wrong side of one half is shown as mistaken; a ``corrected`` one is
    shaded instead.
    """

    name: str
    probability: float
    truth: float | bool | None = None
    corrected: bool = False

    @property
    def known(self) -> bool:
        """Whether there is a true value."""
        return self.truth is not None and not math.isnan(self.truth)

    @property
    def mistaken(self) -> bool:
        """Whether prediction and truth lie on different sides of one half."""
        if self.truth is None or not self.known:
            return False
        return (self.probability >= 0.5) != (self.truth >= 0.5)


@dataclasses.dataclass(frozen=True)
class Badge:
    """A short remark on a card."""

    text: str
    kind: Literal["plain", "good", "bad", "accent"] = "plain"


@dataclasses.dataclass(frozen=True, eq=False)
class Card:
    """A picture with what a model says about it.

    Parameters
    ----------
    image
        (3, height, width) or (1, height, width), uint8 or float 0..1; ``None`` for a card without a picture.
    title, caption
        Heading and a line under it. ``alt`` describes the picture; by default title and caption do.
    bars, classes
        Probabilities of concepts and of classes.
    pixelated
        Show the pixels of a small picture as squares instead of smoothing them.
    """

    image: Tensor | None
    title: str
    caption: str = ""
    bars: Sequence[ConceptBar] = ()
    classes: Sequence[ConceptBar] = ()
    badges: Sequence[Badge] = ()
    alt: str = ""
    pixelated: bool = False


# Small pictures are enlarged up to about this many pixels a side.
_SHOWN = 192


def share(value: float) -> str:
    """A number 0..1 as a CSS width."""
    return f"{100 * min(max(value, 0.0), 1.0):.1f}%"


def picture_uri(image: Tensor, enlarge: bool = False) -> str:
    """A picture as a ``data:`` address holding a PNG.

    ``enlarge`` enlarges a small picture first, more smoothly than browsers do.
    """
    if image.ndim != 3 or image.shape[0] not in (1, 3):
        raise InputError(f"a picture of shape {tuple(image.shape)}; give (3, height, width) or (1, height, width)")
    pixels = image.detach().cpu()
    if pixels.dtype != torch.uint8:
        pixels = (pixels.float().clamp(0, 1) * 255).round().to(torch.uint8)
    array = np.ascontiguousarray(pixels.expand(3, -1, -1).permute(1, 2, 0).numpy())
    picture = Image.fromarray(array)
    factor = _SHOWN // max(picture.size)
    if enlarge and factor > 1:
        size = (picture.width * factor, picture.height * factor)
        picture = picture.resize(size, Image.Resampling.BICUBIC)
    file = io.BytesIO()
    picture.save(file, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def card_block(card: Card, wide: bool = False) -> str:
    """A card; a wide one has its picture beside the heading and the class bars, not above them."""
    classes = _bars("Class", card.classes)
    concepts = _bars("Concepts", card.bars)
    inside = f'<div class="inside">{_heading(card)}{classes}{"" if wide else concepts}</div>'
    top = _picture(card) + inside
    if wide:
        rest = f'<div class="rest">{concepts}</div>' if concepts else ""
        top = f'<div class="top">{top}</div>{rest}'
    return f'<article class="card">{top}</article>'


def key(cards: Iterable[Card]) -> str:
    """What the marks beside the bars mean, if the cards have any."""
    if not any(bar.known for card in cards for bar in (*card.bars, *card.classes)):
        return ""
    return (
        '<p class="key">Bars show predicted probabilities. The dot is the true value: filled for yes, open '
        "for no. A prediction on the wrong side of one half is set in rust; a corrected one is shaded.</p>"
    )


def _picture(card: Card) -> str:
    if card.image is None:
        return ""
    alt = card.alt or ", ".join(part for part in (card.title, card.caption) if part)
    height, width = card.image.shape[-2:]
    kind = ' class="pixelated"' if card.pixelated else ""
    return (
        f'<img{kind} src="{picture_uri(card.image, not card.pixelated)}" width="{width}" height="{height}" '
        f'style="--ratio:{width}/{height}" alt="{escape(alt)}">'
    )


def _heading(card: Card) -> str:
    caption = f'<p class="caption">{escape(card.caption)}</p>' if card.caption else ""
    badges = "".join(f'<li class="{badge.kind}">{escape(badge.text)}</li>' for badge in card.badges)
    return f"<h3>{escape(card.title)}</h3>{caption}" + (f'<ul class="badges">{badges}</ul>' if badges else "")


def _bars(title: str, bars: Sequence[ConceptBar]) -> str:
    if not bars:
        return ""
    return f'<h4>{title}</h4><div class="fold"><ul class="bars">{"".join(map(_bar, bars))}</ul></div>'


def _bar(bar: ConceptBar) -> str:
    state = "corrected" if bar.corrected else "mistaken" if bar.mistaken else ""
    separator = next((s for s in ("::", "=") if s in bar.name), "")
    group, found, value = bar.name.partition(separator) if separator else ("", "", bar.name)
    name = f'<span class="group">{escape(group + found)}</span>{escape(value)}' if found else escape(value)
    truth = '<span aria-hidden="true"></span>'
    if bar.known:
        answer = "yes" if float(bar.truth or 0.0) >= 0.5 else "no"
        truth = f'<span class="truth {answer}" role="img" aria-label="truth: {answer}"></span>'
    spoken = ' <span class="unseen">(corrected)</span>' if bar.corrected else ""
    return (
        f'<li class="{state}"><span class="name" title="{escape(bar.name)}">{name}{spoken}</span>'
        f'<span class="track" aria-hidden="true"><i style="--p:{share(bar.probability)}"></i></span>'
        f'<span class="value">{100 * bar.probability:.0f}%</span>{truth}</li>'
    )
