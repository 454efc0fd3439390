"""What the page and the server say to each other while somebody looks around, as Pydantic models.

What changes something (answers, staged edits, previews, versions, erasures) is in :mod:`~ecbm.show.serve.changes`.

Names that occur everywhere:

- ``version``: the number of the model's current version; ``revision``: counts changes of what is staged.
- ``query``: a filter as a query string (``split=val&label=Moss+Piper``), for ``/api/pictures`` and for the page's
  own address. Every figure carries the query that leads to the pictures behind it.
- ``concept``: a concept's full name as the dataset has it (``wing_color=blue``); ``title`` is how to show it.
- ``thumb``, ``picture``: addresses of a small and of the full picture; ``null`` where samples are rows of a table.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

SampleId = Annotated[str, StringConstraints(min_length=1, max_length=500)]
ConceptName = Annotated[str, StringConstraints(min_length=1, max_length=500)]
Words = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=2000)]
PersonName = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=100)]
VersionNumber = Annotated[int, Field(ge=0, le=10**9)]
Value = float | str | None
"""A label: 0..1 of a binary concept, a name of a categorical one, a grade or a number; ``null``: missing."""

Status = Literal["plain", "staged", "kept", "unsure", "removed"]
"""What the person has done to a picture or label: ``kept`` is an answer that agrees with the label."""


class Model(BaseModel):
    """Requests with unknown fields are refused: a misspelt field must not be ignored."""

    model_config = ConfigDict(extra="forbid")


class Problem(Model):
    """A refusal: what is wrong, and what to do about it."""

    kind: Literal[
        "input",
        "unknown",
        "not_allowed",
        "no_model",
        "busy",
        "moved_on",
        "full_disk",
        "loading",
        "gone",
        "too_large",
    ]
    what: str = Field(description="What is wrong, in one sentence.")
    todo: str = Field(default="", description="What to do about it, in one sentence.")


# -- small parts -----------------------------------------------------------------------------------------


class Ref(Model):
    """A picture by id, as small as possible."""

    id: str
    thumb: str | None
    label: str = Field(description="Its class, or its number with the unit.")


class Share(Model):
    """A figure: ``right`` of ``of``. ``share`` is null where there is nothing to count."""

    right: int
    of: int
    share: float | None
    query: str = Field(description="The pictures that are wrong.")
    query_all: str = Field(description="All pictures that were counted.")


class ConceptInfo(Model):
    """A concept's name and type; ``values`` of a categorical or ordinal one, ``unit`` of a continuous one."""

    name: ConceptName
    title: str = Field(description="For people: 'Wing color: blue', 'Crest'.")
    group: str
    group_title: str
    short: str = Field(description="Inside its group: 'blue'.")
    type: Literal["binary", "categorical", "ordinal", "continuous"]
    values: list[str] = []
    unit: str = ""
    description: str = ""


class Loading(Model):
    """Something long is being computed; ``total`` is 0 where its length is not known."""

    step: str
    done: int
    total: int
    seconds: float


class StagedCounts(Model):
    """What the person at this browser has staged: one line for the tray."""

    total: int
    labels: int
    pictures: int = Field(description="How many pictures the staged labels are of.")
    words: str = Field(description="'47 labels of 47 pictures', '1 concept removed'; empty if nothing is staged.")
    since: str | None = Field(description="When the first was staged (UTC).")
    conflicts: int = Field(description="Items that do not fit the current version and would be left out.")


class State(Model):
    """What every page needs: who, which version, what is staged. Carried by the events too."""

    workspace: str
    kind: Literal["pictures", "table"]
    target: Literal["class", "number"]
    target_name: str = Field(description="What the number is called; 'class' for classes.")
    unit: str
    person: str
    people: list[str] = Field(description="Everybody who has answered or staged something here.")
    ready: bool = Field(description="False while the model is being read; see `loading`.")
    trained: bool
    loading: Loading | None
    version: int
    author: str | None
    time: str
    reason: str | None
    revision: int
    can_undo: bool
    can_redo: bool
    samples: int
    splits: dict[str, int]
    classes: list[str]
    concepts: list[ConceptInfo]
    annotators: list[str] = Field(default=[], description="Values of the annotator column, where the data has one.")
    staged: StagedCounts
    suspicious: int | None = Field(description="How many labels are suspicious; null until computed.")
    unsure: int


class Person(Model):
    """PUT /api/person: who is at this browser; names the author of answers and versions."""

    name: PersonName


class Invitation(Model):
    """A one-time address for another browser."""

    address: str


# -- overview --------------------------------------------------------------------------------------------


class Before(Model):
    """The same figure of version 1, on the same split."""

    version: int
    share: float | None


class Headline(Model):
    """A key figure on validation pictures."""

    figure: Share | None
    before: Before | None
    error: float | None = Field(default=None, description="Mean absolute error, where a number is predicted.")
    unit: str = ""


class ClassFigure(Model):
    name: str
    example: Ref | None
    figure: Share


class WorstConcept(Model):
    concept: ConceptInfo
    figure: Share
    missed: int = Field(description="How many of the wrong ones are labelled present and read absent.")
    examples: list[Ref]


class WorstClass(Model):
    name: str
    figure: Share
    mostly_as: str | None = Field(description="The class it is most often read as, if one stands out.")
    mostly_count: int
    examples: list[Ref]


class Count(Model):
    """A count of something by name, with the query behind it."""

    name: str
    count: int
    query: str


class Waiting(Model):
    suspicious: int | None
    suspicious_by_concept: list[Count]
    suspicious_job: str | None = Field(description="The job that computes it, if it is not ready.")
    staged: StagedCounts
    unsure: int
    unsure_by_person: list[Count]


class SinceFirst(Model):
    """What edits have done since version 1, in counts that an erasure leaves."""

    concept_labels: int
    class_labels: int
    samples_removed: int
    samples_added: int
    versions: int
    words: str


class Edited(Model):
    """One line of 'last edits'."""

    version: int
    words: str
    author: str | None
    time: str
    state: Literal["current", "plain", "undone", "erased"]
    query: str = Field(description="Pictures whose labels it changed.")


class Overview(Model):
    """GET /api/overview."""

    version: int
    revision: int
    split: Literal["val", "train"] = Field(description="What figures are about: validation, unless there is none.")
    split_size: int
    learnt_from: int
    about: str = Field(description="One sentence: what the model is.")
    classes_right: Headline
    concepts_right: Headline
    since_first: SinceFirst | None
    classes: list[ClassFigure]
    worst_concepts: list[WorstConcept]
    worst_classes: list[WorstClass]
    waiting: Waiting
    last_edits: list[Edited]


# -- pictures and the queue ------------------------------------------------------------------------------


class Label(Model):
    """A concept of one picture: what the model says and what the label is."""

    concept: ConceptName
    label: Value
    label_words: str = Field(description="'present', 'absent', 'missing', 'blue', 'grade 2', '12.5 mm'.")
    predicted: Value = Field(description="Probability of a binary concept; else the likeliest value.")
    predicted_words: str
    probability: float | None = Field(
        description="Of presence for a binary concept, else of the likeliest value; null for a continuous one."
    )
    probabilities: dict[str, float] = Field(default={}, description="By value, of a categorical or ordinal one.")
    wrong: bool = Field(description="Model and label differ.")
    status: Status
    staged: Value = Field(default=None, description="The staged label, if `status` is 'staged'.")


class Field_(Model):
    """One field of a row of a table."""

    name: str
    value: Value


class Tile(Model):
    """One picture of a grid or strip."""

    id: str
    thumb: str | None
    split: str
    label: str
    predicted: str | None
    right: bool | None
    confidence: float | None
    status: Status
    concept: Label | None = Field(default=None, description="Of the concept the filter names.")
    similarity: float | None = None
    score: float | None = Field(default=None, description="How suspicious, where sorted by that.")
    fields: list[Field_] = Field(default=[], description="The first fields of a row of a table.")


class Pictures(Model):
    """GET /api/pictures: one window of the pictures that fit a filter, in order."""

    version: int
    revision: int
    total: int
    offset: int
    items: list[Tile]
    query: str = Field(description="The filter in its shortest form.")
    words: str = Field(description="The filter in words, and if nothing fits, what to do.")


class Place(Model):
    """GET /api/place: where a picture stands among those of a filter."""

    place: int | None = Field(description="From 0; null if the picture does not fit the filter.")
    total: int
    previous: str | None
    next: str | None


class Question(Model):
    """One suspicious label: one picture, one question."""

    id: str
    concept: ConceptName | None = Field(description="null: the question is about the class.")
    title: str
    thumb: str | None
    split: str
    score: float
    why: str = Field(description="The first reason, short.")
    label_words: str
    predicted_words: str
    status: Status
    staged: Value = Field(default=None, description="The staged label, if `status` is 'staged'.")
    fields: list[Field_] = []


class Queue(Model):
    """GET /api/queue: one window of suspicious labels, most likely wrong first."""

    version: int
    revision: int
    ready: bool
    job: str | None = Field(description="The job that computes the list, while `ready` is false.")
    total: int
    answered: int = Field(description="How many of them the person has answered.")
    offset: int
    items: list[Question]
    concepts: list[Count]
    words: str


class ShownShare(Model):
    name: str
    count: int | None = None
    of: int | None = None
    share: float


class Reason(Model):
    """Why a label is here. `kind` chooses how it is drawn; `words` suffice without a drawing."""

    kind: str
    words: str
    note: str = Field(default="", description="Before the drawing, where it says something else than the words.")
    shares: list[ShownShare] = []
    examples: list[Tile] = []


class LooksLike(Model):
    """Examples of a concept on training pictures where model and label agree."""

    present: list[Ref]
    absent: list[Ref]
    present_query: str
    absent_query: str
    present_count: int
    absent_count: int


class QuestionDetail(Model):
    """GET /api/question: everything beside the picture."""

    question: Question
    picture: str | None
    label: Label | None
    class_label: str
    class_predicted: str | None
    annotator: str | None
    reasons: list[Reason]
    looks_like: LooksLike | None


# -- one picture -----------------------------------------------------------------------------------------


class Part(Model):
    """What one concept adds to a class's score: weight × value."""

    concept: ConceptName
    title: str
    value: float = Field(description="What the last layer reads.")
    weight: float | None = Field(description="null where several columns are added up.")
    adds: float


class ClassScore(Model):
    """A class: probability, and the score as start + parts; they add up to `score`."""

    name: str
    probability: float | None
    score: float
    start: float
    parts: list[Part] = Field(default=[], description="Largest first; empty unless the class was asked for.")


class Similar(Model):
    id: str
    thumb: str | None
    label: str
    split: str
    similarity: float
    fields: list[Field_] = []


class Group(Model):
    name: str
    title: str
    labels: list[Label]


class SampleView(Model):
    """GET /api/sample."""

    version: int
    revision: int
    id: str
    picture: str | None
    thumb: str | None
    width: int | None
    height: int | None
    fields: list[Field_]
    split: str
    label: str
    predicted: str | None
    right: bool | None
    annotator: str | None
    status: Status
    class_status: Status
    class_staged: str | None
    number: float | None = Field(default=None, description="The predicted number, in its unit.")
    groups: list[Group]
    classes: list[ClassScore] = Field(description="Likeliest first; the first two and the label have parts.")
    similar: list[Similar]


class Behind(Model):
    """One training label and what it adds to the score of a class."""

    id: str
    thumb: str | None
    concept: ConceptName | None
    title: str
    label_words: str
    adds: float


class BehindView(Model):
    """GET /api/behind."""

    available: bool
    words: str = Field(description="What the figures mean, or why there are none.")
    job: str | None = None
    class_name: str
    labels: list[Behind]


class Try(Model):
    """POST /api/try: set concepts by hand; nothing is kept."""

    id: SampleId
    values: dict[ConceptName, float | str] = Field(max_length=500)


class Tried(Model):
    version: int
    classes: list[ClassScore] = Field(description="In the order of /api/sample before anything was tried.")
    predicted: str
    number: float | None
