"""Reads `.pgraph` files, with hints for other files."""

from __future__ import annotations

from pathlib import Path

from popgraph.support import texts
from popgraph.support.errors import ParseError

SUFFIX = ".pgraph"

_OTHERS = {
    ".onnx": "`popgraph convert {model} {text}` makes one",
    ".mlir": "`popgraph convert` makes one of the model that this IR came from",
}
"""Extensions of models in other formats, and how to convert them."""


def read_text(path: str | Path) -> str:
    """The text of a file; ParseError if it is not a text."""
    path = Path(path)
    if path.suffix in _OTHERS:
        hint = _OTHERS[path.suffix].format(model=path, text=path.with_suffix(SUFFIX))
        raise ParseError(f"{path.name} is not a {SUFFIX} file", str(path), hint)
    return texts.read_text(path)
