// Made from the server's schemas by tests/show/page/declare_types.py; a test keeps it true.

export interface Answer {
  id: string;
  concept: string | null;
  answer: "present" | "absent" | "unsure" | "value" | "missing";
  value?: number | string | null;
}

export interface Answered {
  version: number;
  revision: number;
  staged: StagedCounts;
  unsure: number;
  items: AnsweredItem[];
}

export interface AnsweredItem {
  id: string;
  concept: string | null;
  status: "plain" | "staged" | "kept" | "unsure" | "removed";
  /** The staged item or answer, for taking it back. */
  item: number | null;
}

export interface Answers {
  answers: Answer[];
}

export interface Before {
  version: number;
  share: number | null;
}

export interface Behind {
  id: string;
  thumb: string | null;
  concept: string | null;
  title: string;
  label_words: string;
  adds: number;
}

export interface BehindView {
  available: boolean;
  /** What the figures mean, or why there are none. */
  words: string;
  job: string | null;
  class_name: string;
  labels: Behind[];
}

export interface Certificate {
  state: "none_differ" | "at_most" | "not_certified";
  words: string;
  leaves_out: string;
  could_differ: number | null;
  of: number | null;
  /** Of a predicted number, in its unit. */
  bound: number | null;
}

export interface ClassFigure {
  name: string;
  example: Ref | null;
  figure: Share;
}

export interface ClassScore {
  name: string;
  probability: number | null;
  score: number;
  start: number;
  /** Largest first; empty unless the class was asked for. */
  parts: Part[];
}

export interface CommitRequest {
  version: number;
  reason: string;
  method?: "exact" | "auto" | "retrain";
  budget?: number;
}

export interface Comparison {
  first: number;
  second: number;
  words: string;
  split: string;
  of: number;
  metrics: MetricChange[];
  unchanged_concepts: number;
  flips: Flip[];
  flips_total: number;
  becomes_right: number;
  becomes_wrong: number;
  stays_wrong: number;
  labels: LabelsCorrected[];
  people: string[];
  edits: number;
}

export interface ConceptDetail {
  row: ConceptRow;
  /** How it pushes each class if present, strongest first. */
  pushes: Push[];
  present: Ref[];
  absent: Ref[];
  present_query: string;
  absent_query: string;
  absent_count: number;
  notes: string[];
}

export interface ConceptInfo {
  name: string;
  /** For people: 'Wing color: blue', 'Crest'. */
  title: string;
  group: string;
  group_title: string;
  /** Inside its group: 'blue'. */
  short: string;
  type: "binary" | "categorical" | "ordinal" | "continuous";
  values: string[];
  unit: string;
  description: string;
}

export interface ConceptRow {
  concept: ConceptInfo;
  /** Right on validation; null for a continuous concept. */
  figure: Share | null;
  /** Root mean square error of a continuous one, in its unit. */
  error: number | null;
  /** Labelled present in training. */
  present: number;
  /** Labelled at all in training. */
  labelled: number;
  present_query: string;
  /** Validation pictures whose class hangs on it: another class without it. */
  importance: number;
  importance_of: number;
  suspicious: number | null;
  suspicious_query: string;
  staged: number;
  /** 'removed', 'renamed to …', 'merged with …', if staged. */
  staged_change: string | null;
  examples_present: Ref[];
  examples_absent: Ref[];
}

export interface Concepts {
  version: number;
  revision: number;
  rows: ConceptRow[];
  /** Concepts that are staged to be added. */
  added: string[];
}

export interface Count {
  name: string;
  count: number;
  query: string;
}

export interface Destroyed {
  words: string;
  amount: string;
}

export interface Edited {
  version: number;
  words: string;
  author: string | null;
  time: string;
  state: "current" | "plain" | "undone" | "erased";
  /** Pictures whose labels it changed. */
  query: string;
}

export interface Event {
  kind: "version" | "staged" | "job" | "ready" | "suspicious" | "hello";
  version: number | null;
  revision: number | null;
  by: string | null;
  words: string;
  job: Job | null;
}

export interface ExportRequest {
  version: number;
  onnx?: boolean;
}

export interface Field_ {
  name: string;
  value: number | string | null;
}

export interface Flip {
  id: string;
  thumb: string | null;
  picture: string | null;
  label: string;
  before: string;
  before_probability: number | null;
  after: string;
  after_probability: number | null;
  outcome: "becomes_right" | "becomes_wrong" | "stays_wrong";
  /** The concept readings that moved most, at most 3. */
  because: Reading[];
}

export interface ForgetCertificate {
  version: number;
  time: string;
  author: string;
  reason: string;
  erased: number;
  method: string;
  words: string;
  audit: Searched[];
  ok: boolean;
  not_reached: string[];
  ledger_hash: string;
  certificate: Certificate | null;
}

export interface ForgetMethod {
  method: "exact" | "retrain";
  words: string;
  seconds: number | null;
  /** Nothing that was learnt from the pictures is left. */
  complete: boolean;
}

export interface ForgetPlan {
  version: number;
  samples: ForgetSample[];
  unknown: string[];
  concept_labels: number;
  of: number;
  destroyed: Destroyed[];
  stays: string[];
  not_reached: string[];
  methods: ForgetMethod[];
  /** Staged items and answers of anybody about these pictures. */
  staged_lost: number;
  /** The words to type. */
  confirm: string;
}

export interface ForgetPlanRequest {
  ids: string[];
}

export interface ForgetRequest {
  version: number;
  ids: string[];
  method: "exact" | "retrain";
  reason: string;
  confirm: string;
}

export interface ForgetSample {
  id: string;
  thumb: string | null;
  /** null: an edit removed it earlier, but the workspace still knows it. */
  split: string | null;
  label: string | null;
}

export interface Group {
  name: string;
  title: string;
  labels: Label[];
}

export interface Headline {
  figure: Share | null;
  before: Before | null;
  /** Mean absolute error, where a number is predicted. */
  error: number | null;
  unit: string;
}

export interface History {
  version: number;
  revision: number;
  total: number;
  rows: VersionRow[];
  staged: StagedCounts;
  can_undo: boolean;
  can_redo: boolean;
  ledger_hash: string;
}

export interface Invitation {
  address: string;
}

export interface Job {
  id: string;
  kind: "preview" | "commit" | "undo" | "redo" | "train" | "export" | "forget" | "suspicious" | "behind" | "report";
  person: string;
  state: "waiting" | "running" | "writing" | "done" | "failed" | "cancelled";
  progress: Loading;
  /** Until the write. */
  can_cancel: boolean;
  problem: Problem | MovedOn | null;
  /** Address of the outcome, when done. */
  result: string | null;
  /** The version it made, or was made for. */
  version: number | null;
}

export interface Label {
  concept: string;
  label: number | string | null;
  /** 'present', 'absent', 'missing', 'blue', 'grade 2', '12.5 mm'. */
  label_words: string;
  /** Probability of a binary concept; else the likeliest value. */
  predicted: number | string | null;
  predicted_words: string;
  /** Of presence for a binary concept, else of the likeliest value; null for a continuous one. */
  probability: number | null;
  /** By value, of a categorical or ordinal one. */
  probabilities: Record<string, number>;
  /** Model and label differ. */
  wrong: boolean;
  status: "plain" | "staged" | "kept" | "unsure" | "removed";
  /** The staged label, if `status` is 'staged'. */
  staged: number | string | null;
}

export interface LabelsCorrected {
  title: string;
  concept: string | null;
  before: string;
  after: string;
  count: number;
  examples: Ref[];
}

export interface LearnRequest {
  version: number;
  /** The order that the page shows. */
  ranking?: number;
  /** Questions that keep their place. */
  seen?: QuestionKey[];
}

export interface Learned {
  version: number;
  ready: boolean;
  /** The job that ranks again, while `ready` is false; ask again at its end. */
  job: string | null;
  /** The new order, for `ranking` of /api/queue. */
  ranking: number;
  /** How many answers it has learnt from. */
  answers: number;
  /** How many of the next 10 questions were not among them before. */
  moved: number;
}

export interface Loading {
  step: string;
  done: number;
  total: number;
  seconds: number;
}

export interface LooksLike {
  present: Ref[];
  absent: Ref[];
  present_query: string;
  absent_query: string;
  present_count: number;
  absent_count: number;
}

export interface MethodChoice {
  method: "exact" | "auto" | "retrain";
  budget: number | null;
  title: string;
  /** Expected; null if nothing is known yet. */
  seconds: number | null;
  words: string;
}

export interface MetricChange {
  name: string;
  title: string;
  before: number | null;
  after: number | null;
  right_before: number | null;
  right_after: number | null;
  of: number;
  unit: string;
  query: string;
}

export interface Move {
  version: number;
  reason?: string;
}

export interface Moved {
  version: number;
  from_version: number;
  words: string;
}

export interface MovedOn {
  kind: "input" | "unknown" | "not_allowed" | "no_model" | "busy" | "moved_on" | "full_disk" | "loading" | "gone" | "too_large";
  /** What is wrong, in one sentence. */
  what: string;
  /** What to do about it, in one sentence. */
  todo: string;
  /** The version that is now the current one. */
  version: number;
  author: string | null;
  time: string;
  reason: string | null;
  /** What that version did. */
  words: string;
  /** How many staged items still fit. */
  fits: number;
  of: number;
  /** Items that no longer fit, with why; at most 50. */
  dropped: StagedItem[];
}

export interface Overview {
  version: number;
  revision: number;
  /** What figures are about: validation, unless there is none. */
  split: "val" | "train";
  split_size: number;
  learnt_from: number;
  /** One sentence: what the model is. */
  about: string;
  classes_right: Headline;
  concepts_right: Headline;
  since_first: SinceFirst | null;
  classes: ClassFigure[];
  worst_concepts: WorstConcept[];
  worst_classes: WorstClass[];
  waiting: Waiting;
  last_edits: Edited[];
}

export interface Part {
  concept: string;
  title: string;
  /** What the last layer reads. */
  value: number;
  /** null where several columns are added up. */
  weight: number | null;
  adds: number;
}

export interface Person {
  name: string;
}

export interface Pictures {
  version: number;
  revision: number;
  total: number;
  offset: number;
  items: Tile[];
  /** The filter in its shortest form. */
  query: string;
  /** The filter in words, and if nothing fits, what to do. */
  words: string;
}

export interface Place {
  /** From 0; null if the picture does not fit the filter. */
  place: number | null;
  total: number;
  previous: string | null;
  next: string | null;
}

export interface Preview {
  id: string;
  /** Made for this version. */
  version: number;
  revision: number;
  /** Still the current version and the same staged edit. */
  current: boolean;
  method: "exact" | "auto" | "retrain";
  budget: number;
  seconds: number;
  /** '6 of 480 validation pictures would change class'. */
  words: string;
  split: string;
  of: number;
  becomes_right: number;
  becomes_wrong: number;
  stays_wrong: number;
  /** At most 200, those that become wrong first. */
  flips: Flip[];
  flips_total: number;
  readings_changed: number;
  readings_of: number;
  readings: ReadingChanges[];
  /** Classes and concepts first, then concepts that change. */
  metrics: MetricChange[];
  unchanged_concepts: number;
  certificate: Certificate;
  methods: MethodChoice[];
  notes: string[];
  next_version: number;
  /** Of a predicted number, in its unit. */
  largest_change: number | null;
}

export interface PreviewRequest {
  version: number;
  method?: "exact" | "auto" | "retrain";
  /** For auto: a share of retraining's work. */
  budget?: number;
}

export interface Problem {
  kind: "input" | "unknown" | "not_allowed" | "no_model" | "busy" | "moved_on" | "full_disk" | "loading" | "gone" | "too_large";
  /** What is wrong, in one sentence. */
  what: string;
  /** What to do about it, in one sentence. */
  todo: string;
}

export interface Push {
  name: string;
  weight: number;
}

export interface Question {
  id: string;
  /** null: the question is about the class. */
  concept: string | null;
  title: string;
  thumb: string | null;
  split: string;
  score: number;
  /** The first reason, short. */
  why: string;
  label_words: string;
  predicted_words: string;
  status: "plain" | "staged" | "kept" | "unsure" | "removed";
  /** The staged label, if `status` is 'staged'. */
  staged: number | string | null;
  fields: Field_[];
}

export interface QuestionDetail {
  question: Question;
  picture: string | null;
  label: Label | null;
  class_label: string;
  class_predicted: string | null;
  annotator: string | null;
  reasons: Reason[];
  looks_like: LooksLike | null;
}

export interface QuestionKey {
  id: string;
  concept: string | null;
}

export interface Queue {
  version: number;
  revision: number;
  ready: boolean;
  /** The job that computes the list, while `ready` is false. */
  job: string | null;
  total: number;
  /** How many of them the person has answered. */
  answered: number;
  offset: number;
  items: Question[];
  concepts: Count[];
  words: string;
}

export interface Reading {
  concept: string;
  title: string;
  before: number;
  after: number;
}

export interface ReadingChanges {
  concept: string;
  title: string;
  count: number;
  becomes_right: number;
  becomes_wrong: number;
  /** At most 24. */
  examples: Ref[];
}

export interface Reason {
  kind: string;
  words: string;
  /** Before the drawing, where it says something else than the words. */
  note: string;
  shares: ShownShare[];
  examples: Tile[];
}

export interface Ref {
  id: string;
  thumb: string | null;
  /** Its class, or its number with the unit. */
  label: string;
}

export interface SampleView {
  version: number;
  revision: number;
  id: string;
  picture: string | null;
  thumb: string | null;
  width: number | null;
  height: number | null;
  fields: Field_[];
  split: string;
  label: string;
  predicted: string | null;
  right: boolean | null;
  annotator: string | null;
  status: "plain" | "staged" | "kept" | "unsure" | "removed";
  class_status: "plain" | "staged" | "kept" | "unsure" | "removed";
  class_staged: string | null;
  /** The predicted number, in its unit. */
  number: number | null;
  groups: Group[];
  /** Likeliest first; the first two and the label have parts. */
  classes: ClassScore[];
  similar: Similar[];
}

export interface Searched {
  words: string;
  ok: boolean;
  checked: number;
}

export interface Share {
  right: number;
  of: number;
  share: number | null;
  /** The pictures that are wrong. */
  query: string;
  /** All pictures that were counted. */
  query_all: string;
}

export interface ShownShare {
  name: string;
  count: number | null;
  of: number | null;
  share: number;
}

export interface Similar {
  id: string;
  thumb: string | null;
  label: string;
  split: string;
  similarity: number;
  fields: Field_[];
}

export interface SinceFirst {
  concept_labels: number;
  class_labels: number;
  samples_removed: number;
  samples_added: number;
  versions: number;
  words: string;
}

export interface StageClass {
  kind: "class";
  id: string;
  label: string;
}

export interface StageConcept {
  kind: "add_concept";
  concept: string;
}

export interface StageConceptRemoval {
  kind: "remove_concept";
  concept: string;
}

export interface StageMerge {
  kind: "merge_concepts";
  concept: string;
  other: string;
  name: string;
}

export interface StageRemoval {
  kind: "remove_sample";
  id: string;
}

export interface StageRename {
  kind: "rename_concept";
  concept: string;
  name: string;
}

export interface StageRequest {
  item: StageClass | StageRemoval | StageConceptRemoval | StageRename | StageMerge | StageConcept;
}

export interface Staged {
  version: number;
  revision: number;
  counts: StagedCounts;
  groups: StagedGroup[];
  unsure: StagedItem[];
}

export interface StagedCounts {
  total: number;
  labels: number;
  /** How many pictures the staged labels are of. */
  pictures: number;
  /** '47 labels of 47 pictures', '1 concept removed'; empty if nothing is staged. */
  words: string;
  /** When the first was staged (UTC). */
  since: string | null;
  /** Items that do not fit the current version and would be left out. */
  conflicts: number;
}

export interface StagedGroup {
  title: string;
  concept: string | null;
  kind: string;
  before: string;
  after: string;
  count: number;
  /** At most 200; all of them by GET /api/staged?group=. */
  items: StagedItem[];
  key: string;
}

export interface StagedItem {
  item: number;
  kind: "label" | "class" | "remove_sample" | "remove_concept" | "rename_concept" | "merge_concepts" | "add_concept";
  id: string | null;
  thumb: string | null;
  concept: string | null;
  title: string;
  /** In words: 'absent'. */
  before: string;
  /** In words: 'present'. */
  after: string;
  words: string;
  time: string;
  /** False: it would be left out of the edit; `why` says why. */
  fits: boolean;
  why: string;
}

export interface State {
  workspace: string;
  kind: "pictures" | "table";
  target: "class" | "number";
  /** What the number is called; 'class' for classes. */
  target_name: string;
  unit: string;
  person: string;
  /** Everybody who has answered or staged something here. */
  people: string[];
  /** False while the model is being read; see `loading`. */
  ready: boolean;
  trained: boolean;
  loading: Loading | null;
  version: number;
  author: string | null;
  time: string;
  reason: string | null;
  revision: number;
  can_undo: boolean;
  can_redo: boolean;
  samples: number;
  splits: Record<string, number>;
  classes: string[];
  concepts: ConceptInfo[];
  /** Values of the annotator column, where the data has one. */
  annotators: string[];
  staged: StagedCounts;
  /** How many labels are suspicious; null until computed. */
  suspicious: number | null;
  unsure: number;
}

export interface Suggested {
  concept: string;
  labelled_present: number;
  labelled_absent: number;
  /** At least two present and two absent are needed. */
  ready: boolean;
  words: string;
  question: Tile[];
  likely_present: Tile[];
  likely_absent: Tile[];
  /** Of left-out answers, how many were predicted right (0..1). */
  agreement: number | null;
}

export interface TakeBack {
  items?: number[];
  questions?: QuestionKey[];
  group?: string | null;
  everything?: boolean;
}

export interface Tile {
  id: string;
  thumb: string | null;
  split: string;
  label: string;
  predicted: string | null;
  right: boolean | null;
  confidence: number | null;
  status: "plain" | "staged" | "kept" | "unsure" | "removed";
  /** Of the concept the filter names. */
  concept: Label | null;
  similarity: number | null;
  /** How suspicious, where sorted by that. */
  score: number | null;
  /** The first fields of a row of a table. */
  fields: Field_[];
}

export interface Tried {
  version: number;
  /** In the order of /api/sample before anything was tried. */
  classes: ClassScore[];
  predicted: string;
  number: number | null;
}

export interface Try {
  id: string;
  values: Record<string, number | string>;
}

export interface Uploaded {
  revision: number;
  concepts: Count[];
  /** Ids that the data does not have, at most 20; they were left out. */
  unknown_ids: string[];
  unknown_count: number;
  staged: StagedCounts;
}

export interface VersionRow {
  version: number;
  parent: number | null;
  kind: string;
  words: string;
  author: string | null;
  reason: string | null;
  time: string;
  state: "current" | "plain" | "undone" | "erased";
  undone_by: string | null;
  undone_at: string | null;
  certified: Certificate | null;
  /** Validation pictures that changed class. */
  classes_changed: number | null;
  classes_of: number | null;
  method: string | null;
  /** Pictures whose labels it changed. */
  query: string;
  can_report: boolean;
  can_export: boolean;
}

export interface Waiting {
  suspicious: number | null;
  suspicious_by_concept: Count[];
  /** The job that computes it, if it is not ready. */
  suspicious_job: string | null;
  staged: StagedCounts;
  unsure: number;
  unsure_by_person: Count[];
}

export interface WorstClass {
  name: string;
  figure: Share;
  /** The class it is most often read as, if one stands out. */
  mostly_as: string | null;
  mostly_count: number;
  examples: Ref[];
}

export interface WorstConcept {
  concept: ConceptInfo;
  figure: Share;
  /** How many of the wrong ones are labelled present and read absent. */
  missed: number;
  examples: Ref[];
}

