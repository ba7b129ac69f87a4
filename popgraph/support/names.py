"""Names of a model: the closest known one to a misspelt one, and their spelling in IR text."""

from __future__ import annotations

import re
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
        folded.setdefault(one.casefold(), str(one))  # a member of an enum as its text
    return next((folded[one] for one in get_close_matches(name.casefold(), folded, 1, least)), "")


def hint(name: str) -> str | None:
    """An IR name as close to the name as IR text allows."""
    plain = re.sub(r"\W", "_", name, flags=re.ASCII).strip("_")
    if not plain:
        return None
    return f"v{plain}" if plain[0].isdigit() else plain
