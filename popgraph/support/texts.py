"""What does a file of text say, or why can it not be read?"""

from __future__ import annotations

from pathlib import Path

from popgraph.support.errors import ParseError


def read_text(path: Path) -> str:
    """The text of a file; a ParseError says why it cannot be read."""
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise ParseError("this is no UTF-8 text", str(path), "save the file as UTF-8") from error
    except OSError as error:
        raise ParseError(f"the file cannot be read: {error.strerror}", str(path)) from error
