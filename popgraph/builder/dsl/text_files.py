"""What does a `.pgraph` file say?"""

from __future__ import annotations

from pathlib import Path

from popgraph.support import texts
from popgraph.support.errors import ParseError

SUFFIX = ".pgraph"

_CONVERTED = (".onnx", ".mlir")
"""Files that are models as well, but no texts of this language."""


def read_text(path: str | Path) -> str:
    """The text of a file; a ParseError says why it is none."""
    path = Path(path)
    if path.suffix in _CONVERTED:
        raise ParseError(
            f"{path.name} is no {SUFFIX} file",
            str(path),
            f"`popgraph convert {path} {path.with_suffix(SUFFIX)}` makes one",
        )
    return texts.read_text(path)
