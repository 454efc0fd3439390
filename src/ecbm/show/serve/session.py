"""Who is here: the way in, the state that every page needs, the person's name, events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, cast

from fastapi import APIRouter, Form, Query, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse, StreamingResponse

from ecbm.show.serve.changes import Event
from ecbm.show.serve.needs import BenchNeed, PersonNeed, SessionNeed
from ecbm.show.serve.queue import suspicious
from ecbm.show.serve.schemas import Invitation, Person, Problem, StagedCounts, State
from ecbm.show.serve.security import Doorkeeper, refused
from ecbm.show.serve.staging import mine_of

if TYPE_CHECKING:
    from ecbm.show.serve.state import Bench

__all__ = ["router"]

router = APIRouter()
_USED = Problem(
    kind="not_allowed",
    what="This address was used already, or is not one of this workbench's.",
    todo="Each address opens one browser, once. Go back to the browser that is open and make another address there "
    "(your name, then 'another browser'), or start 'ecbm serve' again.",
)
_WRONG = Problem(
    kind="not_allowed", what="This is not the password.", todo="Try again, or ask who started the workbench."
)
_FORM = (
    "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
    "<title>Workbench</title><link rel=stylesheet href=/page/refused.css><main><h1>Workbench</h1>"
    "<form method=post action=/enter><label>Password <input type=password name=password autofocus "
    "autocomplete=current-password required></label> <button>Open</button></form></main></html>"
)


def _door(request: Request) -> Doorkeeper:
    return cast(Doorkeeper, request.app.state.door)


@router.get("/enter", response_class=HTMLResponse, responses={303: {"description": "Let in; leads to the page."}})
def enter(request: Request, token: Annotated[str, Query(max_length=200)] = "") -> Response:
    """Exchange a one-time token for the cookie; without one, ask for the password if there is one."""
    door = _door(request)
    if not token and door.password is not None:
        return HTMLResponse(_FORM)
    session = door.exchange(token) if token else None
    if session is None:
        # A browser that is in already, and only opened its address again, goes on.
        if door.session(request.headers) is not None:
            return RedirectResponse("/", 303)
        return refused(request, 403, _USED)
    answer = RedirectResponse("/", 303)
    door.set_cookie(answer, session)
    return answer


@router.post("/enter", response_class=HTMLResponse, responses={303: {"description": "Let in; leads to the page."}})
def enter_with_password(request: Request, password: Annotated[str, Form(max_length=1000)]) -> Response:
    """Exchange the password for the cookie."""
    door = _door(request)
    session = door.guess(password)
    if session is None:
        return refused(request, 403, _WRONG)
    answer = RedirectResponse("/", 303)
    door.set_cookie(answer, session)
    return answer


def state_of(bench: Bench, person: str) -> State:
    """What every page needs."""
    if not bench.ready:
        return _before_reading(bench, person)
    snapshot = bench.current()
    mine = mine_of(bench, snapshot, person)
    described = bench.describe(snapshot.version)
    found = suspicious(bench, snapshot) if snapshot.trained else None
    items = bench.everybody()
    return State(
        workspace=bench.name,
        kind="pictures" if snapshot.pictures else "table",
        target="number" if snapshot.data.predicts_number else "class",
        target_name=snapshot.data.class_names[0] if snapshot.data.predicts_number else "class",
        unit=snapshot.data.target_unit,
        person=person,
        people=sorted({item.person for item in items} | {person}),
        ready=True,
        trained=snapshot.trained,
        loading=None,
        version=snapshot.number,
        author=described["author"],
        time=snapshot.version.time,
        reason=described["reason"],
        revision=mine.revision,
        can_undo=bench.can_undo(),
        can_redo=bench.can_redo(),
        samples=len(snapshot.data),
        splits=snapshot.data.split_sizes,
        classes=[] if snapshot.data.predicts_number else list(snapshot.data.class_names),
        concepts=snapshot.infos,
        annotators=sorted(set(bench.annotators.values())),
        staged=mine.counts,
        suspicious=None if found is None else len(found),
        unsure=sum(item.answer == "unsure" and item.done is None for item in items),
    )


def _before_reading(bench: Bench, person: str) -> State:
    """The state as the records alone know it: the page can be drawn before the model was read."""
    shape = bench.head.summary.get("shape", {})
    described = bench.describe(bench.head)
    return State(
        workspace=bench.name,
        kind="pictures" if len(shape.get("input_shape", ())) == 3 else "table",
        target="number" if "target" in shape else "class",
        target_name=str(shape.get("target", "class")),
        unit="",
        person=person,
        people=[person],
        ready=False,
        trained=bench.head.model is not None,
        loading=bench.loading,
        version=bench.head.version,
        author=described["author"],
        time=bench.head.time,
        reason=described["reason"],
        revision=bench.staged.revision(),
        can_undo=False,
        can_redo=False,
        samples=int(shape.get("samples", 0)),
        splits=dict(shape.get("splits", {})),
        classes=[],
        concepts=[],
        staged=StagedCounts(total=0, labels=0, pictures=0, words="", since=None, conflicts=0),
        suspicious=None,
        unsure=0,
    )


@router.get("/api/state")
def state(bench: BenchNeed, person: PersonNeed) -> State:
    """What every page needs; also while the model is still being read."""
    return state_of(bench, person)


@router.put("/api/person")
def put_person(request: Request, bench: BenchNeed, session: SessionNeed, given: Person) -> State:
    """Say who is at this browser."""
    _door(request).rename(session, given.name)
    return state_of(bench, given.name)


@router.post("/api/invitations", status_code=201)
def invite(request: Request) -> Invitation:
    """A one-time address for another browser."""
    door = _door(request)
    return Invitation(address=f"{request.url.scheme}://{request.headers['host']}/enter?token={door.new_token()}")


@router.get(
    "/api/events",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {}}, "description": "Events, until the page goes."}},
)
async def events(bench: BenchNeed, person: PersonNeed) -> StreamingResponse:
    """What happens, as it happens."""
    hello = Event(kind="hello", version=bench.head.version, revision=bench.staged.revision(), by=person)
    return StreamingResponse(bench.events.stream(hello), media_type="text/event-stream")
