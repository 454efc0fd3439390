"""Pictures: a window of those that fit a filter, where one stands among them, and the pictures themselves."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from fastapi import APIRouter, Query, Request, Response
from PIL import Image

from ecbm.show.serve.filters import AmongQuery, WindowQuery, query_of, words_of
from ecbm.show.serve.needs import BenchNeed, PersonNeed, ordered_rows
from ecbm.show.serve.schemas import Pictures, Place, Similar
from ecbm.show.serve.staging import mine_of
from ecbm.show.serve.state import refuse_unknown
from ecbm.show.serve.tiles import fields_of, thumb_address, tile_of

if TYPE_CHECKING:
    from ecbm.read.inputs import Inputs
    from ecbm.show.serve.snapshot import Snapshot

__all__ = ["router", "similar_to"]

router = APIRouter()
_THUMB = 192
_MOST_PIXELS = 4096
_CACHE_SECONDS = 24 * 3600
# Files that browsers show as they are, by their first bytes. Others are made PNG.
_SHOWN = {b"\xff\xd8\xff": "image/jpeg", b"\x89PNG": "image/png", b"RIFF": "image/webp"}


@router.get("/api/pictures")
def pictures(bench: BenchNeed, person: PersonNeed, asked: WindowQuery) -> Pictures:
    """One window of the pictures that fit a filter."""
    snapshot = bench.current()
    wanted, offset, limit = asked.filter(), asked.offset, asked.limit
    mine = mine_of(bench, snapshot, person)
    rows = ordered_rows(bench, snapshot, mine, wanted)
    window = rows[offset : offset + limit].tolist()
    place = snapshot.places.get(wanted.concept) if wanted.concept is not None else None
    alike = (
        snapshot.similar(snapshot.data.row(wanted.near)) if wanted.near is not None and snapshot.trained else None
    )
    return Pictures(
        version=snapshot.number,
        revision=mine.revision,
        total=len(rows),
        offset=offset,
        items=[
            tile_of(
                snapshot, row, mine, place, concept=wanted.concept,
                similarity=None if alike is None else float(alike[row]),
            )
            for row in window
        ],
        query=query_of(**wanted.model_dump(exclude_none=True)),
        words=words_of(snapshot, wanted, len(rows)),
    )  # fmt: skip


@router.get("/api/place")
def place(bench: BenchNeed, person: PersonNeed, asked: AmongQuery) -> Place:
    """Where a picture stands among those of a filter, and its neighbours there."""
    snapshot = bench.current()
    row = snapshot.data.row(asked.id)
    rows = ordered_rows(bench, snapshot, mine_of(bench, snapshot, person), asked.filter())
    found = np.flatnonzero(rows == row)
    if not len(found):
        return Place(place=None, total=len(rows), previous=None, next=None)
    at = int(found[0])
    ids = snapshot.data.ids
    return Place(
        place=at,
        total=len(rows),
        previous=ids[int(rows[at - 1])] if at > 0 else None,
        next=ids[int(rows[at + 1])] if at + 1 < len(rows) else None,
    )


@router.get("/api/similar")
def similar(
    bench: BenchNeed,
    id: Annotated[str, Query(max_length=500)],
    split: Literal["train", "val", "test"] = "train",
    limit: Annotated[int, Query(ge=1, le=100)] = 8,
) -> list[Similar]:
    """The most similar pictures of a split."""
    snapshot = bench.trained()
    return similar_to(snapshot, snapshot.data.row(id), split, limit)


def similar_to(snapshot: Snapshot, row: int, split: str, limit: int) -> list[Similar]:
    """The nearest samples of a split, itself left out."""
    alike = snapshot.similar(row)
    rows = snapshot.rows(split)
    rows = rows[rows != row]
    if len(rows) > limit:
        rows = rows[np.argpartition(-alike[rows], limit)[:limit]]
    rows = rows[np.argsort(-alike[rows], kind="stable")]
    return [
        Similar(
            id=snapshot.data.ids[one],
            thumb=thumb_address(snapshot, one),
            label=snapshot.label_text(one),
            split=split,
            similarity=round(float(alike[one]), 4),
            fields=fields_of(snapshot, one, 4),
        )
        for one in rows.tolist()
    ]


# -- the pictures themselves -----------------------------------------------------------------------------


@router.get(
    "/picture",
    response_class=Response,
    responses={
        200: {"content": {"image/*": {}}, "description": "The picture."},
        304: {"description": "Not changed."},
    },
)
def picture(
    bench: BenchNeed,
    request: Request,
    id: Annotated[str, Query(max_length=500)],
    size: Literal["thumb", "full"] = "full",
    v: Annotated[str, Query(max_length=64, description="The digest in the address, for caches.")] = "",
) -> Response:
    """A picture, small or as large as it is; browsers may keep it for a day."""
    snapshot = bench.current()
    if not snapshot.pictures:
        raise refuse_unknown("picture of", id)
    row = snapshot.data.row(id)
    tag = f'"{snapshot.digest(row)}-{size}"'
    headers = {"ETag": tag, "Cache-Control": f"private, max-age={_CACHE_SECONDS if v else 0}"}
    if tag in [one.strip() for one in request.headers.get("if-none-match", "").split(",")]:
        return Response(status_code=304, headers=headers)
    if size == "thumb":
        content = bench.thumbnails.get(snapshot.digest(row), lambda: _thumbnail(snapshot, row))
        kind = "image/webp"
    else:
        content, kind = _full(snapshot, row)
    return Response(content, media_type=kind, headers=headers)


def _encoded(inputs: Inputs, row: int) -> bytes | None:
    """The file a picture was given as, if it was."""
    from ecbm.read.inputs import ImageInputs, JoinedInputs  # loads torch, which the first page does without

    if isinstance(inputs, JoinedInputs):
        for part in inputs._parts:
            if row < len(part):
                return _encoded(part, row)
            row -= len(part)
    return inputs.encoded(row) if isinstance(inputs, ImageInputs) else None


def _opened(snapshot: Snapshot, row: int) -> Image.Image:
    from ecbm.read.decoding import decode_picture

    given = _encoded(snapshot.data.inputs, row)
    if given is not None:
        return decode_picture(given)
    pixels = snapshot.data.inputs.raw([row])[0]
    if pixels.dtype.is_floating_point:
        pixels = (pixels.clamp(0, 1) * 255).round().byte()
    array = pixels.numpy().transpose(1, 2, 0)
    return Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array).convert("RGB")


def _full(snapshot: Snapshot, row: int) -> tuple[bytes, str]:
    given = _encoded(snapshot.data.inputs, row)
    if given is not None:
        kind = next((kind for start, kind in _SHOWN.items() if given.startswith(start)), None)
        if kind is not None:
            with Image.open(io.BytesIO(given)) as found:
                if max(found.size) <= _MOST_PIXELS:
                    return given, kind
    shown = _opened(snapshot, row)
    shown.thumbnail((_MOST_PIXELS, _MOST_PIXELS))
    return _saved(shown, "PNG"), "image/png"


def _thumbnail(snapshot: Snapshot, row: int) -> bytes:
    shown = _opened(snapshot, row)
    shown.thumbnail((_THUMB, _THUMB))
    return _saved(shown, "WEBP")


def _saved(shown: Image.Image, kind: str) -> bytes:
    out = io.BytesIO()
    shown.save(out, kind, quality=82) if kind == "WEBP" else shown.save(out, kind)
    return out.getvalue()
