"""Edits, editors and results say what they are at a prompt and in a notebook."""

from __future__ import annotations

import ecbm
from ecbm.keep.workspace import Workspace
from ecbm.words import summary_words
from kit import tabular

DATA = tabular(60)
EDIT = ecbm.Edit(
    correct_concepts=[("s0", "round", 0.25), ("s1", "round", None)],
    correct_labels=[("s2", "<b>")],
    remove_samples=["s3"],
    remove_concepts=["size=big"],
    add_concepts={"new": {"s0": 1}},
)


def test_a_result_prints_the_sentence_that_show_prints(tmp_path):
    edit = ecbm.Edit(correct_concepts=[("s0", "round", 0.25)], remove_samples=["s5"])
    result = ecbm.Editor(ecbm.train(DATA), DATA).apply(edit)
    workspace = Workspace.create(tmp_path / "w", DATA)
    workspace.train()
    version, _ = workspace.edit(edit)
    sentence = summary_words(Workspace(tmp_path / "w").version(version).summary)
    assert sentence.startswith("corrected 1 concept label of 1 sample; removed 1 sample; ")
    assert repr(result) == f"<EditResult: {sentence}>"
    assert sentence in result._repr_html_()


def test_an_edit_lists_what_becomes_of_what():
    markup = EDIT._repr_html_()
    for cells in (
        "<td>s0</td><td>round</td><td>0.25</td>",
        "<td>s1</td><td>round</td><td>missing</td>",
        "<td>s2</td><td>class</td><td>&lt;b&gt;</td>",
        "<td>s3</td><td>sample</td><td>removed</td>",
        "<td></td><td>size=big</td><td>removed</td>",
        "<td></td><td>new</td><td>added, 1 label</td>",
    ):
        assert cells in markup
    many = ecbm.Edit(remove_samples=[f"s{number}" for number in range(100)])
    assert "and 88 more" in many._repr_html_()


def test_an_editor_says_what_it_edits_and_what_it_keeps():
    editor = ecbm.Editor(ecbm.train(DATA), DATA)
    assert repr(editor).endswith("kept: nothing yet)")
    assert "60 samples" in repr(editor)
    editor.apply(ecbm.Edit(remove_samples=["s5"]))
    assert "features" in repr(editor)
    assert "kept for later edits: features" in editor._repr_html_()
