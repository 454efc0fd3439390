"""Excel workbooks: read as they are, refused where a value is not there."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
from openpyxl import Workbook

import ecbm
from ecbm.errors import InputError

ROWS = [["id", "label", "crest", "size"], [7, "wren", True, 1.5], [8, "finch", False, None], [9, "wren", None, 12]]


def workbook(path, *sheets):
    book = Workbook()
    book.remove(book.active)
    for name, rows in sheets:
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    book.save(path)
    return path


def read(path, **options):
    return ecbm.read_dataset(path, features=np.zeros((3, 1)), types={"size": "continuous"}, **options)


def refusal(path, **options) -> str:
    with pytest.raises(InputError) as caught:
        read(path, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_sheet_reads_like_a_text_table(tmp_path, table):
    path = workbook(tmp_path / "t.xlsx", ("one", ROWS), ("empty", []))
    text, _ = table("id,label,crest,size\n7,wren,1,1.5\n8,finch,0,\n9,wren,,12\n")
    assert read(path) == read(text)


def test_empty_rows_and_columns_around_the_table_change_nothing_and_rows_keep_their_numbers(tmp_path):
    rows = [[], [*ROWS[0], None], [*ROWS[1], None], [], *ROWS[2:], []]
    path = workbook(tmp_path / "t.xlsx", ("one", rows))
    assert read(path) == read(workbook(tmp_path / "plain.xlsx", ("one", ROWS)))
    rows[4] = [8, "finch", "shy", None]
    assert "row 5, column 'crest': 'shy' is not a number" in refusal(workbook(tmp_path / "t.xlsx", ("one", rows)))


def test_which_sheet_is_asked_for_where_several_are_filled(tmp_path):
    path = workbook(tmp_path / "t.xlsx", ("notes", [["read me"]]), ("one", ROWS))
    assert "2 sheets ('notes', 'one'); say which with sheet='notes'" in refusal(path)
    assert len(read(path, sheet="one")) == 3
    assert "unknown sheet 'two'" in refusal(path, sheet="two")


def test_a_formula_without_a_stored_value_and_an_error_are_refused(tmp_path):
    rows = [*ROWS[:3], [9, "wren", None, "=A1+1"]]
    assert "row 4, column 'size': a formula whose value is not stored" in refusal(
        workbook(tmp_path / "t.xlsx", ("one", rows))
    )
    rows[3][3] = "#DIV/0!"
    assert "row 4, column 'size': #DIV/0!" in refusal(workbook(tmp_path / "t.xlsx", ("one", rows)))


def test_what_is_no_workbook_is_refused(tmp_path, monkeypatch):
    (tmp_path / "t.xlsx").write_bytes(b"PK nonsense")
    assert "not a readable .xlsx workbook" in refusal(tmp_path / "t.xlsx")
    assert "empty" in refusal(workbook(tmp_path / "t.xlsx", ("one", [])))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "pip install 'ecbm[excel]'" in refusal(tmp_path / "t.xlsx")
