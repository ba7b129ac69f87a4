"""What `%load_ext popgraph` adds to a notebook: cells that are models, by `%%pgraph`."""

from __future__ import annotations

from functools import partial
from typing import Any

from popgraph.builder.pgraph import Listing, parse
from popgraph.dialects.onnx import model_of
from popgraph.support.errors import PopgraphError


def load_ipython_extension(shell: Any) -> None:
    """Gives a shell of IPython the magic `%%pgraph`."""
    shell.register_magic_function(partial(define, shell), "cell", "pgraph")


def define(shell: Any, line: str, cell: str) -> Listing:
    """
    %%pgraph [NAME]: the cell is a `.pgraph` text, and NAME is the model.

    Without a name, it is that of the first graph. The model is a text that `popgraph.compile`,
    `train` and `view` take; a mistake in it is shown at its place.
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
