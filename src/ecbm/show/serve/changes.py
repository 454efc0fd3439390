"""What the page and the server say to each other about changes: answers, edits, previews, versions, erasures."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from ecbm.show.serve.schemas import (
    ConceptInfo,
    ConceptName,
    Count,
    Loading,
    Model,
    Problem,
    Ref,
    SampleId,
    Share,
    StagedCounts,
    Status,
    Tile,
    Value,
    VersionNumber,
    Words,
)

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


# -- jobs ------------------------------------------------------------------------------------------------


class Job(Model):
    """Something that takes time. Progress comes by /api/events as `job`; `result` says where the outcome is."""

    id: str
    kind: Literal[
        "preview", "commit", "undo", "redo", "train", "export", "forget", "suspicious", "behind", "report"
    ]
    person: str
    state: Literal["waiting", "running", "writing", "done", "failed", "cancelled"]
    progress: Loading
    can_cancel: bool = Field(description="Until the write.")
    problem: Problem | MovedOn | None
    result: str | None = Field(description="Address of the outcome, when done.")
    version: int | None = Field(description="The version it made, or was made for.")


class MovedOn(Problem):
    """409: the model moved on since the page looked. The staged edit was rebased onto the new version."""

    version: int = Field(description="The version that is now the current one.")
    author: str | None
    time: str
    reason: str | None
    words: str = Field(description="What that version did.")
    fits: int = Field(description="How many staged items still fit.")
    of: int
    dropped: list[StagedItem] = Field(description="Items that no longer fit, with why; at most 50.")


# -- preview, commit -------------------------------------------------------------------------------------

Method = Literal["exact", "auto", "retrain"]


class PreviewRequest(Model):
    """POST /api/previews. `version` is the one the page shows; 409 if it is not the current one any more."""

    version: VersionNumber
    method: Method = "exact"
    budget: float = Field(default=0.05, gt=0, le=1, description="For auto: a share of retraining's work.")


class MetricChange(Model):
    name: str
    title: str
    before: float | None
    after: float | None
    right_before: int | None
    right_after: int | None
    of: int
    unit: str = ""
    query: str


class Reading(Model):
    concept: ConceptName
    title: str
    before: float
    after: float


class Flip(Model):
    """A validation picture whose class would change."""

    id: str
    thumb: str | None
    picture: str | None
    label: str
    before: str
    before_probability: float | None
    after: str
    after_probability: float | None
    outcome: Literal["becomes_right", "becomes_wrong", "stays_wrong"]
    because: list[Reading] = Field(description="The concept readings that moved most, at most 3.")


class ReadingChanges(Model):
    """Validation pictures on which the reading of one concept would change sides."""

    concept: ConceptName
    title: str
    count: int
    becomes_right: int
    becomes_wrong: int
    examples: list[Ref] = Field(description="At most 24.")


class Certificate(Model):
    """`proven` in one sentence, and what it leaves out in the same box."""

    state: Literal["none_differ", "at_most", "not_certified"]
    words: str
    leaves_out: str
    could_differ: int | None
    of: int | None
    bound: float | None = Field(default=None, description="Of a predicted number, in its unit.")


class MethodChoice(Model):
    method: Method
    budget: float | None
    title: str
    seconds: float | None = Field(description="Expected; null if nothing is known yet.")
    words: str


class Preview(Model):
    """GET /api/previews/{id}. Everything is counted on validation pictures."""

    id: str
    version: int = Field(description="Made for this version.")
    revision: int
    current: bool = Field(description="Still the current version and the same staged edit.")
    method: Method
    budget: float
    seconds: float
    words: str = Field(description="'6 of 480 validation pictures would change class'.")
    split: str
    of: int
    becomes_right: int
    becomes_wrong: int
    stays_wrong: int
    flips: list[Flip] = Field(description="At most 200, those that become wrong first.")
    flips_total: int
    readings_changed: int
    readings_of: int
    readings: list[ReadingChanges]
    metrics: list[MetricChange] = Field(description="Classes and concepts first, then concepts that change.")
    unchanged_concepts: int
    certificate: Certificate
    methods: list[MethodChoice]
    notes: list[str]
    next_version: int
    largest_change: float | None = Field(default=None, description="Of a predicted number, in its unit.")


class CommitRequest(Model):
    """POST /api/commits."""

    version: VersionNumber
    reason: Words
    method: Method = "exact"
    budget: float = Field(default=0.05, gt=0, le=1)


class Move(Model):
    """POST /api/undo and /api/redo: `version` is the one the page shows."""

    version: VersionNumber
    reason: Annotated[str, StringConstraints(max_length=2000)] = ""


class Moved(Model):
    version: int
    from_version: int
    words: str


# -- history ---------------------------------------------------------------------------------------------


class VersionRow(Model):
    version: int
    parent: int | None
    kind: str
    words: str
    author: str | None
    reason: str | None
    time: str
    state: Literal["current", "plain", "undone", "erased"]
    undone_by: str | None = None
    undone_at: str | None = None
    certified: Certificate | None
    classes_changed: int | None = Field(description="Validation pictures that changed class.")
    classes_of: int | None
    method: str | None
    query: str = Field(description="Pictures whose labels it changed.")
    can_report: bool
    can_export: bool


class History(Model):
    """GET /api/history: newest first."""

    version: int
    revision: int
    total: int
    rows: list[VersionRow]
    staged: StagedCounts
    can_undo: bool
    can_redo: bool
    ledger_hash: str


class LabelsCorrected(Model):
    title: str
    concept: ConceptName | None
    before: str
    after: str
    count: int
    examples: list[Ref]


class Comparison(Model):
    """GET /api/compare: on validation pictures that both versions have."""

    first: int
    second: int
    words: str
    split: str
    of: int
    metrics: list[MetricChange]
    unchanged_concepts: int
    flips: list[Flip]
    flips_total: int
    becomes_right: int
    becomes_wrong: int
    stays_wrong: int
    labels: list[LabelsCorrected]
    people: list[str]
    edits: int


class ExportRequest(Model):
    """POST /api/exports: a job; its `result` is the address of a zip."""

    version: VersionNumber
    onnx: bool = False


# -- forgetting ------------------------------------------------------------------------------------------


class ForgetPlanRequest(Model):
    """POST /api/forget/plan."""

    ids: list[SampleId] = Field(min_length=1, max_length=1000)


class ForgetSample(Model):
    id: str
    thumb: str | None
    split: str | None = Field(description="null: an edit removed it earlier, but the workspace still knows it.")
    label: str | None


class ForgetMethod(Model):
    method: Literal["exact", "retrain"]
    words: str
    seconds: float | None
    complete: bool = Field(description="Nothing that was learnt from the pictures is left.")


class ForgetPlan(Model):
    """What will be destroyed, what stays, what cannot be reached."""

    version: int
    samples: list[ForgetSample]
    unknown: list[str]
    concept_labels: int
    of: int
    destroyed: list[Destroyed]
    stays: list[str]
    not_reached: list[str]
    methods: list[ForgetMethod]
    staged_lost: int = Field(description="Staged items and answers of anybody about these pictures.")
    confirm: str = Field(description="The words to type.")


class Destroyed(Model):
    words: str
    amount: str


class ForgetRequest(Model):
    """POST /api/forget. `confirm` must be the words of the plan."""

    version: VersionNumber
    ids: list[SampleId] = Field(min_length=1, max_length=1000)
    method: Literal["exact", "retrain"]
    reason: Words
    confirm: Annotated[str, StringConstraints(max_length=200)]


class Searched(Model):
    """One line of the audit after an erasure."""

    words: str
    ok: bool
    checked: int


class ForgetCertificate(Model):
    """GET /api/forget/{job}: the audit and the certificate to print. It names no picture."""

    version: int
    time: str
    author: str
    reason: str
    erased: int
    method: str
    words: str
    audit: list[Searched]
    ok: bool
    not_reached: list[str]
    ledger_hash: str
    certificate: Certificate | None


class Event(Model):
    """What /api/events sends; `data` of the event is this as JSON, its name is `kind`.

    `version`: somebody (also on the command line) made another version the current one; `staged`: staged items or
    answers of somebody changed; `job`: a job moved on; `ready`: the model was read; `suspicious`: the list of
    suspicious labels is there; `hello`: the stream begins.
    """

    kind: Literal["version", "staged", "job", "ready", "suspicious", "hello"]
    version: int | None = None
    revision: int | None = None
    by: str | None = None
    words: str = ""
    job: Job | None = None


for _model in (Answered, TakeBack, Job, ForgetPlan):
    _model.model_rebuild()
