"""Tables of influence, and questions that cannot be answered."""

from __future__ import annotations

import pytest
import torch

import ecbm
import number_kit
import types_kit
from ecbm.errors import InputError
from ecbm.verify.influence.asking import Influence
from kit import pictures, tabular

LINEAR = ecbm.Recipe(backbone="linear")


@pytest.fixture(scope="module")
def asked() -> Influence:
    data = tabular(90, missing=0.1)
    return Influence(ecbm.Editor(ecbm.train(data, LINEAR), data))


@pytest.fixture(scope="module")
def deep(tmp_path_factory) -> tuple[ecbm.ConceptBottleneck, ecbm.Dataset, str]:
    folder, data = str(tmp_path_factory.mktemp("epochs")), tabular(90)
    recipe = ecbm.Recipe(backbone="mlp", hidden=(8,), epochs=4, patience=None)
    return ecbm.train(data, recipe, trajectory=folder), data, folder


def test_tables_are_tidy_and_the_most_harmful_come_first(asked):
    data = asked.editor.data
    train = data.split("train")
    samples, labels, concepts = (asked.table(kind) for kind in ("samples", "labels", "concepts"))
    assert sorted(samples["id"]) == sorted(train.ids)
    assert len(labels) == int((~train.concepts.isnan()).sum())
    assert sorted(concepts["concept"]) == sorted(data.concept_names)
    for table in (samples, labels, concepts):
        assert {"id", "concept", "change"} <= set(table.columns)
        assert table["change"].is_monotonic_increasing
    row = labels.iloc[0]
    assert row["label"] == float(train.concepts[train.row(row["id"]), data.concept_index(row["concept"])])
    assert row["flipped"] == 1 - row["label"]


def test_top_gives_both_ends_of_the_whole_table(asked):
    whole, ends = asked.labels("val"), asked.labels("val", top=7)
    assert ends["change"].tolist() == whole["change"].tolist()[:7] + whole["change"].tolist()[-7:]
    assert len(asked.concepts("val", top=100)) == 5


def test_the_same_question_has_the_same_answer_whoever_asks(asked):
    editor = asked.editor
    tables = [
        ecbm.influence(editor.model, editor.data, kind="labels"),
        ecbm.influence(ecbm.Editor(editor.model, editor.data), kind="labels"),
        ecbm.influence(asked, kind="labels"),
    ]
    assert tables[0].equals(tables[1])
    assert tables[0].equals(tables[2])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"of": "s9999"}, "unknown sample id or split 's9999'"),
        ({"of": []}, "at least one id"),
        ({"of": ["s1", "s1"]}, "names a sample twice"),
        ({"of": ["s1", "nobody"]}, "unknown sample id 'nobody'"),
        ({"kind": "sample"}, "unknown kind 'sample'; did you mean 'samples'"),
        ({"loss": "rund"}, "unknown loss 'rund'; did you mean 'round'"),
        ({"label": "crows"}, "unknown class 'crows'"),
        ({"label": "crow", "loss": "round"}, "give one of them"),
        ({"method": "magic"}, "unknown method 'magic'"),
        ({"method": "ekfac"}, "with a frozen one 'heads' is exact"),
        ({"top": 0}, "top must be at least 1"),
        ({"exact": -1}, "exact must be at least 0"),
        ({"kind": "concepts", "loss": "round"}, "ranked by the class loss"),
    ],
)
def test_what_cannot_be_answered_is_refused_in_one_line(asked, options, words):
    with pytest.raises(ecbm.InputError) as refused:
        ecbm.influence(asked.editor, **options)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_model_needs_its_data_and_an_editor_has_it(asked):
    with pytest.raises(ecbm.InputError, match="needs the dataset"):
        ecbm.influence(asked.editor.model)
    with pytest.raises(ecbm.InputError, match="leave data out"):
        ecbm.influence(asked.editor, asked.editor.data)


def test_without_a_validation_split_another_target_must_be_named():
    data = tabular(40).replace(splits=["train"] * 40)
    model = ecbm.train(data, LINEAR)
    with pytest.raises(ecbm.InputError, match="no val split"):
        ecbm.influence(model, data)
    assert len(ecbm.influence(model, data, of="train")) == 40


def test_labels_of_every_type_are_flipped_to_what_an_edit_can_be_told():
    data = types_kit.mixed(120)
    table = ecbm.influence(ecbm.train(data, LINEAR), data, kind="labels")
    flipped = {name: set(part["flipped"].dropna()) for name, part in table.groupby("concept")}
    assert flipped["colour"] == {"red", "blue", "green"}
    assert flipped["severity"] <= {0.0, 1.0, 2.0, 3.0}
    assert flipped["size"] == set()  # a number has no opposite: it is taken out
    graded = table[table["concept"] == "severity"]
    assert ((graded["label"] - graded["flipped"]).abs() == 1).all()
    named = table[table["concept"] == "colour"]
    assert (named["label"] != named["flipped"]).all()
    assert set(table["concept"]) == set(types_kit.GROUPS)


def test_labels_that_are_numbers_have_influence_but_no_class():
    data = number_kit.numbered(90)
    model = ecbm.train(data, LINEAR)
    assert ecbm.influence(model, data, kind="samples")["label"].dtype == float
    with pytest.raises(ecbm.InputError, match="predicts a number"):
        ecbm.influence(model, data, label="price")


def test_epochs_of_a_training_are_kept_and_asked(deep):
    model, data, folder = deep
    editor = ecbm.Editor(model, data)
    along, last = Influence(editor, trajectory=folder), Influence(editor)
    assert (along.method, last.method) == ("trajectory", "heads")
    assert len(along._members) == 4
    target = along.target("val")
    members = [found.of_samples() for found in along.sensitivities(target)]
    assert torch.allclose(along.sample_changes(target), torch.stack(members).mean(0))
    # The last epoch is the model itself.
    assert torch.allclose(members[-1], last.sample_changes(target), rtol=1e-3, atol=1e-7)
    assert not torch.allclose(members[0], members[-1], rtol=0.1)
    assert len(along.labels()) == data.split("train").concepts.numel()
    assert len(ecbm.influence(model, data, kind="concepts", trajectory=folder)) == 5


def test_epochs_of_another_network_are_refused(deep, tmp_path):
    model, data, folder = deep
    other = ecbm.train(data, ecbm.Recipe(backbone="mlp", hidden=(5,), epochs=1, patience=None))
    with pytest.raises(ecbm.InputError, match="no epoch of this model's training"):
        ecbm.influence(other, data, trajectory=folder)
    with pytest.raises(ecbm.InputError, match="holds no epochs"):
        ecbm.influence(model, data, trajectory=tmp_path)
    with pytest.raises(ecbm.InputError, match="none were kept"):
        ecbm.influence(model, data, method="trajectory")
    with pytest.raises(ecbm.InputError, match="retraining with a frozen backbone only"):
        ecbm.influence(model, data, exact=1)


def test_a_deep_pass_forwards_is_the_transpose_of_the_pass_back():
    from ecbm.verify.influence.deep import pull_back, push_forward

    data = pictures(80)
    model = ecbm.train(data, ecbm.Recipe(backbone="convnet", epochs=1, patience=None))
    part, inputs = ecbm.Editor(model, data).state.part, data.inputs
    draw = torch.Generator().manual_seed(0)
    direction = {name: torch.randn(part.get_parameter(name).shape, generator=draw) for name in part.trained}
    cotangents = torch.randn(len(data), len(data.concept_names), generator=draw, dtype=torch.float64)
    forwards = push_forward(part, inputs, direction)
    back = pull_back(part, inputs, cotangents)
    inner = sum(float((back[name] * direction[name]).double().sum()) for name in direction)
    assert float((forwards * cotangents).sum()) == pytest.approx(inner, rel=1e-3)


def test_ekfac_of_a_deep_model_answers_every_kind_and_agrees_in_sign_with_the_heads(deep):
    model, data, _ = deep
    editor = ecbm.Editor(model, data)
    found, heads = Influence(editor, method="ekfac"), Influence(editor)
    target = heads.target("val")
    first, second = found.sample_changes(target), heads.sample_changes(target)
    assert float(torch.corrcoef(torch.stack([first, second]))[0, 1]) > 0.5
    assert len(found.labels()) == data.split("train").concepts.numel()
    assert len(found.concepts()) == 5
    assert editor.state.has_curvature("true")


def test_what_cannot_be_carried_out_is_left_unmeasured():
    """The last sample of a class cannot be removed; the table says so in its row and measures the others."""
    data = tabular(90, 6, seed=1)
    train = [row for row, split in enumerate(data.splits) if split == "train"]
    labels = data.labels.clamp_max(1)
    labels[train[4]] = 2
    lonely = data.replace(labels=labels)
    asked = Influence(ecbm.Editor(ecbm.train(lonely, ecbm.Recipe(backbone="linear")), lonely))
    table = asked.samples("val", exact=len(train))
    missing = table["actual"].isna()
    assert table["id"][missing].tolist() == [data.ids[train[4]]]
    with pytest.raises(InputError, match="without a training sample"):
        asked.group_change([data.ids[train[4]], data.ids[train[5]]], asked.target("val"))
