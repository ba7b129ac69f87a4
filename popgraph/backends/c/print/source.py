"""Source names: what a user calls an operation, and the line where it was written."""

from __future__ import annotations

import re
from pathlib import Path

from xdsl.dialects.builtin import FileLineColLoc, NameLoc
from xdsl.ir import Attribute


def source(location: Attribute | None) -> str:
    """The user's name for an operation, without its notes, and the line where it was written."""
    match location:
        case NameLoc():
            place: Attribute = location.location
            while isinstance(place, NameLoc):
                place = place.location
            return f"{location.desc.data}  {source(place)}".strip()
        case FileLineColLoc():
            return f"{Path(location.filename.data).name}:{location.line.data}"
    return ""


def comment(text: str) -> str:
    """A comment of C, whatever the text holds: names of models may be anything."""
    plain = re.sub(r"[^ -~]|\\", "?", text)
    return f"/* {plain.replace('*/', '*?').replace('/*', '?*')} */"
