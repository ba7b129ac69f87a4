"""Metadata of a model that makes a session reject one of its nodes."""

from __future__ import annotations

import json
from collections.abc import Iterable

from popgraph.support.errors import TypeMismatchError

REFUSED = "popgraph.refused"
"""Metadata key for a node that a session must reject."""


def refusal_note(error: TypeMismatchError) -> dict[str, str]:
    """The metadata for the first node with invalid operands."""
    return {REFUSED: json.dumps([error.what, error.where, error.hint])}


def check_notes(notes: Iterable[tuple[str, str]]) -> None:
    """Raises the error stored in a model."""
    for key, value in notes:
        if key == REFUSED:
            raise TypeMismatchError(*json.loads(value))
