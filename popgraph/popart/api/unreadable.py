"""What PopART says of a model that is neither a file nor the bytes of one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from popgraph.dialects.onnx.reader import RepeatedInput
from popgraph.popart.exceptions import (
    as_popart_errors,
    popart_exception,
    unreadable_model,
)
from popgraph.support.errors import ModelError


@contextmanager
def reading_model(source: object) -> Iterator[None]:
    """Within it, a model is read; one that is none is PopART's error, and so is any other."""
    with as_popart_errors():
        missing = isinstance(source, str) and not Path(source).exists()
        try:
            if missing:
                raise ModelError("no such file", str(source))
            yield
        except RepeatedInput as error:
            raise popart_exception(
                f"Invalid ONNX Model : repeated name: ({error.name}) in input list"
            ) from error
        except ModelError as error:
            if not missing and error.where != "the bytes given":
                raise
            raise unreadable_model(
                f"Failed to load a ModelProto from the string '{_shown(source)}'.\nCheck that it "
                "is either a valid path to an existing onnx model file, or is a valid onnx "
                "ModelProto string."
            ) from error


def _shown(source: object) -> str:
    """The first bytes of what is no model, as Python prints bytes."""
    given = source.encode() if isinstance(source, str) else source
    if not isinstance(given, bytes):
        return type(source).__name__
    shown = repr(b'"' + given[:_SHOWN])[3:-1]  # The double quote makes Python escape the others.
    return shown + ("..." if len(given) >= _SHOWN else "")


_SHOWN = 101
