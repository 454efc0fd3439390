"""Edit files: what the interface says, read and written; everything else refused with the place in the file."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ecbm
from ecbm.edit.files import read_edit, write_edit
from kit import pictures, tabular


def written(folder, content) -> object:
    path = folder / "edit.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def test_the_interface_s_example(tmp_path):
    (tmp_path / "concepts.csv").write_text("id,new,other\nid1,1,\nid2,0.5,0\n")
    (tmp_path / "more.csv").write_text("id,label,noisy\nid100,sparrow,1\n")
    np.save(tmp_path / "more.npy", np.zeros((1, 3), np.float32))
    path = written(
        tmp_path,
        {
            "correct_concepts": [{"id": "id17", "concept": "wing_color=blue", "value": 1}],
            "correct_labels": [{"id": "id4", "label": "sparrow"}],
            "remove_samples": ["id9"],
            "remove_concepts": ["noisy"],
            "add_samples": "more.csv",
            "add_concepts": "concepts.csv",
        },
    )
    edit = read_edit(path)
    assert edit.correct_concepts == (("id17", "wing_color=blue", 1.0),)
    assert edit.correct_labels == (("id4", "sparrow"),)
    assert edit.remove_samples == ("id9",)
    assert edit.remove_concepts == ("noisy",)
    assert edit.add_concepts == {"new": {"id1": 1.0, "id2": 0.5}, "other": {"id2": 0.0}}
    assert edit.add_samples is not None
    assert edit.add_samples.ids == ("id100",)
    assert edit.add_samples.splits == ("train",)


@pytest.mark.parametrize("value", ["more.csv", "written", {"table": "more.csv", "features": "x.npy"}])
def test_new_samples_in_each_form(tmp_path, value):
    more = tabular(12, 4).select([10, 11])
    ecbm.write_dataset(more, tmp_path / "written")
    (tmp_path / "more.csv").write_bytes((tmp_path / "written" / "samples.csv").read_bytes())
    for name in ("more.npy", "x.npy"):
        np.save(tmp_path / name, more.x.numpy())
    edit = read_edit(written(tmp_path, {"add_samples": value}), tabular(10, 4))
    assert edit.add_samples is not None
    assert edit.add_samples.ids == more.ids
    assert np.array_equal(edit.add_samples.x.numpy(), more.x.numpy())


def test_new_pictures_are_found_beside_the_table_and_resized(tmp_path):
    drawn = ecbm.datasets.birds(n=80, size=48)
    ecbm.write_dataset(drawn.select([3, 4]), tmp_path / "more")
    edit = read_edit(written(tmp_path / "more", {"add_samples": "samples.csv"}), pictures(80))
    assert edit.add_samples is not None
    assert tuple(edit.add_samples.inputs.shape) == (3, 32, 32)


def test_concepts_may_be_given_in_place(tmp_path):
    edit = read_edit(written(tmp_path, {"add_concepts": {"new": {"a": 1, "b": None}}}))
    assert edit.add_concepts["new"]["a"] == 1
    assert math.isnan(edit.add_concepts["new"]["b"])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "not a JSON edit"),
        ("{", "not a JSON edit"),
        ("[" * 100_000, "nested too deeply"),
        ("[]", "an edit is an object"),
        ('{"remove_samples": ["a"], "remove_samples": ["b"]}', "given twice"),
        ('{"correct_concepts": [{"id": "a", "concept": "c", "value": NaN}]}', "null for a missing label"),
        ({"remove_sample": ["a"]}, "did you mean 'remove_samples'"),
        ({"remove_samples": "a"}, "expected a list of names, got text"),
        ({"remove_samples": [1]}, r'item 1: expected text, got a number; write it in quotes, "1"'),
        ({"correct_concepts": {"a": 1}}, "expected a list of objects"),
        ({"correct_concepts": [["a", "c", 1]]}, "item 1: expected an object"),
        ({"correct_concepts": [{"id": "a", "concept": "c"}]}, "item 1: 'value' is missing"),
        ({"correct_concepts": [{"id": "a", "concept": "c", "value": 1, "x": 2}]}, "unknown field 'x'"),
        ({"correct_concepts": [{"id": "a", "concept": "c", "value": 2}]}, r"2 is not in \[0, 1\]"),
        ({"correct_concepts": [{"id": "a", "concept": "c", "value": 10**400}]}, r"is not in \[0, 1\]"),
        ({"correct_concepts": [{"id": "a", "concept": "c", "value": True}]}, "got true or false"),
        ({"correct_concepts": [{"id": "a", "concept": "c", "value": "1"}]}, "got text"),
        ({"correct_labels": [{"id": "a", "label": None}]}, "'label': expected text, got null"),
        ({"add_concepts": {"new": [1]}}, "expected an object from ids to values"),
        ({"add_concepts": {"": {}}}, "needs a name"),
        ({"add_concepts": "none.csv"}, "none.csv"),
        ({"add_concepts": 3}, "expected text"),
        ({"add_samples": "none.csv"}, "no inputs for none.csv"),
        ({"add_samples": {"features": "x.npy"}}, "'table' is missing"),
        ({"add_samples": {"table": "a.csv", "pictures": "x"}}, "unknown field 'pictures'"),
        ({"add_samples": "a\0b"}, "not a path"),
        ('{"remove_samples": ["\\ud800"]}', "not valid text"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, content, words):
    with pytest.raises(ecbm.InputError, match=words) as caught:
        read_edit(written(tmp_path, content))
    assert str(caught.value).startswith(str(tmp_path))
    assert len(str(caught.value).splitlines()) == 1


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(ecbm.InputError, match="check the path"):
        read_edit(tmp_path / "none.json")
    (tmp_path / "latin.json").write_bytes(b'{"remove_samples": ["\xe9"]}')
    with pytest.raises(ecbm.InputError, match="not UTF-8"):
        read_edit(tmp_path / "latin.json")
    (tmp_path / "marked.json").write_bytes(b'\xef\xbb\xbf{"remove_samples": ["a"]}')
    assert read_edit(tmp_path / "marked.json").remove_samples == ("a",)


def test_written_edits_read_back_equal(tmp_path):
    more = tabular(12, 4).select([10, 11])
    edit = ecbm.Edit(
        correct_concepts=[("a", "c", None), ("b", "c", 0.25)],
        correct_labels=[("a", "wren")],
        remove_concepts=["d"],
        add_concepts={"new": {"a": 1, "b": None}},
        remove_samples=["e"],
        add_samples=more,
    )
    assert read_edit(write_edit(edit, tmp_path / "edit.json")) == edit
    assert read_edit(write_edit(ecbm.Edit(), tmp_path / "none.json")) == ecbm.Edit()


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
_field = st.sampled_from(
    ["correct_concepts", "correct_labels", "remove_concepts", "add_concepts", "remove_samples", "add_samples"]
)
_item = st.dictionaries(st.sampled_from(["id", "concept", "value", "label"]), _json, max_size=4)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(_field, _json | st.lists(_item, max_size=3), max_size=3))
def test_any_json_is_an_edit_or_refused(tmp_path, content):
    try:
        edit = read_edit(written(tmp_path, json.dumps(content)))
    except ecbm.InputError:
        return
    assert read_edit(write_edit(edit, tmp_path / "again.json")) == edit
