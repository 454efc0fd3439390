"""What the page and the server say to each other about answers, staged edits and concepts."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from ecbm.show.serve.schemas import (
    ConceptInfo,
    ConceptName,
    Count,
    Model,
    Ref,
    SampleId,
    Share,
    StagedCounts,
    Status,
    Tile,
    Value,
    VersionNumber,
)

__all__ = [
    "Answer",
    "Answered",
    "AnsweredItem",
    "Answers",
    "ConceptDetail",
    "ConceptRow",
    "Concepts",
    "LearnRequest",
    "Learned",
    "Push",
    "QuestionKey",
    "Stage",
    "StageClass",
    "StageConcept",
    "StageConceptRemoval",
    "StageMerge",
    "StageRemoval",
    "StageRename",
    "StageRequest",
    "Staged",
    "StagedGroup",
    "StagedItem",
    "Suggested",
    "TakeBack",
    "Uploaded",
]

# -- answers and what is staged --------------------------------------------------------------------------


class Answer(Model):
    """An answer to one question; ``concept`` is null for the question about the class.

    ``present``, ``absent`` and ``unsure`` are for binary concepts (and for values of a categorical one);
    ``value`` gives a name, a grade or a number; ``missing`` says that there should be no label.
    """

    id: SampleId
    concept: ConceptName | None
    answer: Literal["present", "absent", "unsure", "value", "missing"]
    value: Value = None


class Answers(Model):
    """POST /api/answers: stored before the reply is sent. A later answer to a question replaces the earlier."""

    answers: list[Answer] = Field(min_length=1, max_length=5000)


class Answered(Model):
    """What became of answers: the tiles to redraw and the tray."""

    version: int
    revision: int
    staged: StagedCounts
    unsure: int
    items: list[AnsweredItem]


class AnsweredItem(Model):
    id: str
    concept: ConceptName | None
    status: Status
    item: int | None = Field(description="The staged item or answer, for taking it back.")


class StageClass(Model):
    """Correct the class (or the number) of a picture."""

    kind: Literal["class"]
    id: SampleId
    label: Annotated[str, StringConstraints(min_length=1, max_length=500)]


class StageRemoval(Model):
    """Remove a picture from the data. It can be undone; erasing somebody is another thing."""

    kind: Literal["remove_sample"]
    id: SampleId


class StageConceptRemoval(Model):
    kind: Literal["remove_concept"]
    concept: ConceptName


class StageRename(Model):
    kind: Literal["rename_concept"]
    concept: ConceptName
    name: ConceptName


class StageMerge(Model):
    """Merge two binary concepts: present where either is. `name` may be that of one of them."""

    kind: Literal["merge_concepts"]
    concept: ConceptName
    other: ConceptName
    name: ConceptName


class StageConcept(Model):
    """A new binary concept. Its labels are given by answers under its name, or by a CSV."""

    kind: Literal["add_concept"]
    concept: ConceptName


Stage = Annotated[
    StageClass | StageRemoval | StageConceptRemoval | StageRename | StageMerge | StageConcept,
    Field(discriminator="kind"),
]


class StageRequest(Model):
    """POST /api/staged."""

    item: Stage


class StagedItem(Model):
    """One thing that is staged."""

    item: int
    kind: Literal[
        "label", "class", "remove_sample", "remove_concept", "rename_concept", "merge_concepts", "add_concept"
    ]
    id: str | None
    thumb: str | None
    concept: ConceptName | None
    title: str
    before: str = Field(description="In words: 'absent'.")
    after: str = Field(description="In words: 'present'.")
    words: str
    time: str
    fits: bool = Field(description="False: it would be left out of the edit; `why` says why.")
    why: str = ""


class StagedGroup(Model):
    """Staged labels of one concept and one direction: 'Wing bar, absent → present, 35'."""

    title: str
    concept: ConceptName | None
    kind: str
    before: str
    after: str
    count: int
    items: list[StagedItem] = Field(description="At most 200; all of them by GET /api/staged?group=.")
    key: str


class Staged(Model):
    """GET /api/staged: the staged edit of the person at this browser."""

    version: int
    revision: int
    counts: StagedCounts
    groups: list[StagedGroup]
    unsure: list[StagedItem]


class TakeBack(Model):
    """POST /api/staged/take-back: by item, by question, by group, or all of it."""

    items: list[VersionNumber] = Field(default=[], max_length=5000)
    questions: list[QuestionKey] = Field(default=[], max_length=5000)
    group: str | None = None
    everything: bool = False


class QuestionKey(Model):
    id: SampleId
    concept: ConceptName | None


class LearnRequest(Model):
    """POST /api/queue/learn: put what follows in the queue in a new order."""

    version: VersionNumber
    ranking: int = Field(default=0, ge=0, le=10**9, description="The order that the page shows.")
    seen: list[QuestionKey] = Field(default=[], max_length=20_000, description="Questions that keep their place.")


class Learned(Model):
    """What the answers so far have done to the order of the queue."""

    version: int
    ready: bool
    job: str | None = Field(description="The job that ranks again, while `ready` is false; ask again at its end.")
    ranking: int = Field(description="The new order, for `ranking` of /api/queue.")
    answers: int = Field(description="How many answers it has learnt from.")
    moved: int = Field(description="How many of the next 10 questions were not among them before.")


class Uploaded(Model):
    """POST /api/staged/upload: what was found in a CSV with an id column and one column for each new concept."""

    revision: int
    concepts: list[Count]
    unknown_ids: list[str] = Field(description="Ids that the data does not have, at most 20; they were left out.")
    unknown_count: int
    staged: StagedCounts


class Suggested(Model):
    """GET /api/concept/suggested: for a concept that is being added, what the rest would be.

    Fitted on the answers given so far; `question` is what to label next because it is least certain.
    """

    concept: ConceptName
    labelled_present: int
    labelled_absent: int
    ready: bool = Field(description="At least two present and two absent are needed.")
    words: str
    question: list[Tile]
    likely_present: list[Tile]
    likely_absent: list[Tile]
    agreement: float | None = Field(description="Of left-out answers, how many were predicted right (0..1).")


# -- concepts --------------------------------------------------------------------------------------------


class ConceptRow(Model):
    """One row of the table of concepts."""

    concept: ConceptInfo
    figure: Share | None = Field(description="Right on validation; null for a continuous concept.")
    error: float | None = Field(
        default=None, description="Root mean square error of a continuous one, in its unit."
    )
    present: int = Field(description="Labelled present in training.")
    labelled: int = Field(description="Labelled at all in training.")
    present_query: str
    importance: int = Field(description="Validation pictures whose class hangs on it: another class without it.")
    importance_of: int
    suspicious: int | None
    suspicious_query: str
    staged: int
    staged_change: str | None = Field(description="'removed', 'renamed to …', 'merged with …', if staged.")
    examples_present: list[Ref]
    examples_absent: list[Ref]


class Concepts(Model):
    """GET /api/concepts."""

    version: int
    revision: int
    rows: list[ConceptRow]
    added: list[ConceptName] = Field(description="Concepts that are staged to be added.")


class Push(Model):
    name: str
    weight: float


class ConceptDetail(Model):
    """GET /api/concept."""

    row: ConceptRow
    pushes: list[Push] = Field(description="How it pushes each class if present, strongest first.")
    present: list[Ref]
    absent: list[Ref]
    present_query: str
    absent_query: str
    absent_count: int
    notes: list[str]


for _model in (Answered, TakeBack):
    _model.model_rebuild()
