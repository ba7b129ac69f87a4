"""Suggests the closest known name for a misspelt one."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def closest(name: str, known: Iterable[str], least: float = 0.6) -> str:
    """
    The known name that looks most like this one; empty when none does.

    Case is no difference, so a name that differs in nothing else wins. `least` is how alike two
    names must be, from 0 to 1.
    """
    folded: dict[str, str] = {}
    for one in known:
        folded.setdefault(one.casefold(), one)
    return next((folded[one] for one in get_close_matches(name.casefold(), folded, 1, least)), "")
