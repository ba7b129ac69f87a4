"""A model's note that a session is to refuse one of its nodes."""

from __future__ import annotations

import json
from collections.abc import Iterable

from popgraph.support.errors import TypeMismatchError

REFUSED = "popgraph.refused"
"""The property of a model with a node that a session is to refuse."""


def refusal_note(error: TypeMismatchError) -> dict[str, str]:
    """What a model says of the first of its nodes that does not take its inputs."""
    return {REFUSED: json.dumps([error.what, error.where, error.hint])}


def check_notes(notes: Iterable[tuple[str, str]]) -> None:
    """Raises the error that a model brings along."""
    for key, value in notes:
        if key == REFUSED:
            raise TypeMismatchError(*json.loads(value))
