"""Numbers and names as a results section has them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ecbm.show.reproduce.findings import number

__all__ = ["capital", "joined", "number", "of_all", "percent", "short", "shown", "span", "whole"]

# Names in sentences; tables have the long ones.
_SHORT = {
    "exact (heads only)": "exact",
    "ekfac as written (ECBM)": "ekfac as written",
    "ekfac guarded (ECBM)": "ekfac guarded",
    "hessian guarded (CBM-IF)": "hessian guarded",
    "fine-tuning of equal work": "fine-tuning",
}


def short(name: str) -> str:
    """A method's name in a sentence."""
    return _SHORT.get(name, name)


def shown(title: str) -> str:
    """The title of a level in a sentence.

    Examples
    --------
    >>> shown("samples, 3% removed")
    'samples, 3 % removed'
    """
    return title.replace("%", " %")


def capital(text: str) -> str:
    """The first letter large, the others as they are."""
    return text[:1].upper() + text[1:]


def percent(share: float) -> str:
    """
    Examples
    --------
    >>> percent(0.064), percent(0.0042), percent(1.6)
    ('6 %', '0.4 %', '160 %')
    """
    return f"{number(100 * share, '.1f' if abs(share) < 0.01 else '.0f')} %"


def span(values: Sequence[float], form: str = ".2f") -> str:
    """The smallest and the largest, or one of them where they are written alike.

    Examples
    --------
    >>> span([0.5, -0.1, 0.3]), span([0.5, 0.501])
    ('−0.10 to 0.50', '0.50')
    """
    low, high = number(min(values), form), number(max(values), form)
    return low if low == high else f"{low} to {high}"


def whole(value: float) -> str:
    """A count, or a mean of counts with one digit.

    Examples
    --------
    >>> whole(10.0), whole(4.76)
    ('10', '4.8')
    """
    return f"{round(value, 1):g}"


def of_all(count: int, total: int, what: str) -> str:
    """How many of some things.

    Examples
    --------
    >>> of_all(4, 4, "levels"), of_all(1, 4, "levels"), of_all(0, 4, "levels"), of_all(1, 1, "levels")
    ('all 4 levels', '1 of the 4 levels', 'none of the 4 levels', '1 of 1 levels')
    """
    if total == 1:
        return f"{count} of 1 {what}"
    return f"all {total} {what}" if count == total else f"{count or 'none'} of the {total} {what}"


def joined(words: Iterable[str]) -> str:
    """Words in a sentence, all of them.

    Examples
    --------
    >>> joined(["a", "b", "c"]), joined(["a"]), joined([])
    ('a, b and c', 'a', '')
    """
    found = list(words)
    return " and ".join([", ".join(found[:-1]), found[-1]]) if len(found) > 1 else "".join(found)
