"""The notebook extension (`%load_ext popgraph`): `%%pgraph` cells define models."""

from __future__ import annotations

from functools import partial
from typing import Any

from popgraph.builder.pgraph import Listing, parse
from popgraph.dialects.onnx import model_of
from popgraph.support.errors import PopgraphError


def load_ipython_extension(shell: Any) -> None:
    """Registers the magic `%%pgraph` in an IPython shell."""
    shell.register_magic_function(partial(define, shell), "cell", "pgraph")


def define(shell: Any, line: str, cell: str) -> Listing:
    """
    %%pgraph [NAME]: the cell is a `.pgraph` text, stored in the variable NAME.

    NAME defaults to the name of the first graph. The text can be passed to `popgraph.compile`,
    `train` and `view`; errors are shown with their position.
    """
    try:
        document = parse(cell, "<cell>")
    except PopgraphError as error:
        told = str(error)
        error._render_traceback_ = lambda: [told]  # type: ignore[attr-defined]  # IPython asks
        raise
    model = Listing(cell if cell.endswith("\n") else f"{cell}\n")
    shell.user_ns[line.strip() or model_of(document.module).graph.graph_name.text] = model
    return model
