"""What an era says of a model that is none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from popgraph.popart.eras.era import Era
from popgraph.popart.exceptions import popart_exception, unreadable_model


@contextmanager
def in_words_of(era: Era) -> Iterator[None]:
    """Within it, a model is read."""
    try:
        yield
    except unreadable_model as error:
        if not era.unreadable:
            raise
        raise popart_exception(
            era.unreadable,
            hint="give a path to an existing model, or the bytes of one",
        ) from error
