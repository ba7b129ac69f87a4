"""`popgraph.view`: a model as a page, for notebooks, files and browsers."""

from __future__ import annotations

import webbrowser
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from html import escape
from pathlib import Path
from threading import Thread

from popgraph import compiler
from popgraph.builder.source import ModelSource
from popgraph.compiler import Model
from popgraph.compiler.sizes import specialise
from popgraph.ipu.machine import Ipu, device_named
from popgraph.passes.options import Options
from popgraph.support.argument_types import check_types
from popgraph.support.errors import PassError
from popgraph.support.figures import json_text
from popgraph.support.files import path_of
from popgraph.support.writing import write_text
from popgraph.viewer.document import Document
from popgraph.viewer.flame import csv_of
from popgraph.viewer.page import page
from popgraph.viewer.server import Server

HEIGHT = 640
"""Height of a page in a notebook, in pixels."""


@dataclass
class View:
    """A model to look at; a notebook shows it."""

    document: Document
    _server: Server | None = field(default=None, repr=False)

    def html(self) -> str:
        """The whole page as one self-contained text."""
        return page({name: self.document.part(name) for name in self.document.parts})

    def save(self, path: str | Path) -> None:
        """Writes the page as one file."""
        write_text(Path(path), self.html())

    def times_as_json(self) -> str:
        """The times of the flame graph, by level, as JSON."""
        return json_text(asdict(self.document.times())) + "\n"

    def times_as_csv(self) -> str:
        """The times of the flame graph as CSV; `in` is the number of the enclosing row."""
        return csv_of(self.document.times())

    def open(self) -> str:
        """
        Serves the page and opens it in the browser while this process runs; returns its address.
        """
        if self._server is None:
            self._server = Server(self.document)
            Thread(target=self._server.run, daemon=True).start()
        webbrowser.open(self._server.address)
        return self._server.address

    def close(self) -> None:
        """Stops the server that `open` started."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def _repr_html_(self) -> str:
        style = f"width:100%;height:{HEIGHT}px;border:1px solid #ccc;border-radius:8px"
        held = escape(self.html())
        return f'<iframe sandbox="allow-scripts" srcdoc="{held}" style="{style}"></iframe>'


@check_types()
def view(
    model: Model,
    *,
    sizes: Mapping[str, int] | None = None,
    options: Options | None = None,
    threads: int = 1,
    device: str | None = None,
) -> View:
    """
    Shows a model: its graph at each level, its kernels as C, its memory and its passes.

    `model` is any model of the onnx level that `popgraph.compile` accepts. `sizes` are values of
    its symbolic dimensions; without them the page has a graph, but no kernels. `device` names IPUs,
    such as `ipu:2` for two: the page then also shows the modelled steps and tile memory.
    """
    wanted = compiler.for_this_machine(options or Options(), threads)
    ipu = None if device is None else _ipu(device)
    module, compilation = compiler.load(model, search=wanted.search)
    specialise(module, compilation, sizes or {})
    name = compiler.description_here(model, module, compilation).model
    traced, origin = isinstance(model, ModelSource), path_of(model)
    found = Document(name or "model", module, compilation, wanted, 0, origin, traced, ipu=ipu)
    return View(found)


def _ipu(device: str) -> Ipu:
    try:
        return device_named(device)
    except ValueError as error:
        raise PassError(str(error), "view(device=...)", "'ipu:2' are two IPUs") from error
