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
from popgraph.support.errors import PassError
from popgraph.support.figures import json_text
from popgraph.support.files import path_of
from popgraph.support.names import names_arguments
from popgraph.support.writing import write_text
from popgraph.viewer.document import Document
from popgraph.viewer.flame import csv_of
from popgraph.viewer.page import page
from popgraph.viewer.server import Server

HEIGHT = 640
"""Pixels of a page in a notebook."""


@dataclass
class View:
    """A model that can be looked at; a notebook shows it."""

    document: Document
    _server: Server | None = field(default=None, repr=False)

    def html(self) -> str:
        """The whole page as one text that needs nothing else."""
        return page({name: self.document.part(name) for name in self.document.parts})

    def save(self, path: str | Path) -> None:
        """Writes the page as one file."""
        write_text(Path(path), self.html())

    def times_as_json(self) -> str:
        """What was measured, by level, as the flame graph shows it."""
        return json_text(asdict(self.document.times())) + "\n"

    def times_as_csv(self) -> str:
        """The same as a row for each part, below the number of the part that holds it."""
        return csv_of(self.document.times())

    def open(self) -> str:
        """Shows the page in the browser, as long as this process runs; gives its address."""
        if self._server is None:
            self._server = Server(self.document)
            Thread(target=self._server.run, daemon=True).start()
        webbrowser.open(self._server.address)
        return self._server.address

    def close(self) -> None:
        """Ends what `open` began."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def _repr_html_(self) -> str:
        style = f"width:100%;height:{HEIGHT}px;border:1px solid #ccc;border-radius:8px"
        held = escape(self.html())
        return f'<iframe sandbox="allow-scripts" srcdoc="{held}" style="{style}"></iframe>'


@names_arguments
def view(
    model: Model,
    *,
    sizes: Mapping[str, int] | None = None,
    options: Options | None = None,
    threads: int = 1,
    device: str | None = None,
) -> View:
    """
    A model to look at: its graph at each level, its kernels as C, its memory and its passes.

    `model` is what `popgraph.compile` takes, of the onnx level; `sizes` are those of its symbolic
    dimensions, without which it has a graph, and no kernels. `device` names IPUs, as `ipu:2` names
    two: what a model of them says of its steps and of the memory of their tiles is shown, too.
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
