"""An unknown name is answered with the one that was meant."""

from __future__ import annotations

import pytest

from ecbm.errors import unknown_name

BIRDS = [f"bird-{number:05d}" for number in range(3000)]


@pytest.mark.parametrize(
    ("given", "names", "meant"),
    [
        ("bird-0005", BIRDS, "'bird-00005'"),
        ("bird-000005", BIRDS, "'bird-00005'"),
        ("Bird 5", BIRDS, "'bird-00005'"),
        ("7", ["0007", "0017"], "'0007'"),
        ("Wing Color=Blue", ["wing_color=blue", "wing_color=red"], "'wing_color=blue'"),
        ("wing::blue", ["wing=blue", "wing=red"], "'wing=blue'"),
        ("wing_colour=blue", ["wing_color=blue", "tail=long"], "'wing_color=blue'"),
    ],
)
def test_the_same_name_in_another_spelling_is_the_only_suggestion(given, names, meant):
    assert str(unknown_name("name", given, names)) == f"unknown name {given!r}; did you mean {meant}?"


def test_numbers_that_stand_apart_are_not_run_together():
    message = str(unknown_name("id", "1-23", ["12-3", "1-2-3"]))
    assert message.endswith("did you mean '1-2-3' or '12-3'?")


def test_a_name_of_signs_alone_is_alike_to_nothing():
    assert "known: 'a', 'b'" in str(unknown_name("id", "?", ["a", "b"]))
