"""The page: markup, style and scripts in one text, with or without embedded data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent / "page"
IPU = HERE.parents[1] / "ipu" / "page"
SCRIPTS = (
    HERE / "data.js",
    HERE / "elements.js",
    HERE / "layout.js",
    HERE / "graph.js",
    HERE / "paint.js",
    HERE / "tree.js",
    HERE / "details.js",
    HERE / "views.js",
    HERE / "strip.js",
    IPU / "tiles.js",
    IPU / "ipu.js",
    IPU / "ipu_details.js",
    HERE / "flame.js",
    HERE / "main.js",
)
"""Scripts in dependency order."""


def script() -> str:
    """The scripts of the page in one text."""
    return "\n".join(file.read_text("utf-8") for file in SCRIPTS)


def page(parts: Mapping[str, Any] | None = None) -> str:
    """The page; self-contained if it embeds the parts, otherwise it loads them from the server."""
    data = "\n".join(_held(name, part) for name, part in (parts or {}).items())
    text = (HERE / "index.html").read_text("utf-8")
    pieces = {"style": (HERE / "style.css").read_text("utf-8"), "script": script(), "data": data}
    before, _, rest = text.partition("{{style}}")
    between, _, rest = rest.partition("{{data}}")
    behind, _, end = rest.partition("{{script}}")
    return "".join(
        [before, pieces["style"], between, pieces["data"], behind, pieces["script"], end]
    )


def _held(name: str, part: object) -> str:
    """Embeds a part as JSON. `<` is escaped, so that no name in a model can end the element."""
    text = json.dumps(part).replace("<", "\\u003c")
    return f'<script type="application/json" id="part-{name}">{text}</script>'
