"""The document of a model: the parts of its page, built on demand."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from linecache import getlines
from pathlib import Path
from threading import RLock
from typing import Any, TypeAlias, TypeVar

from xdsl.dialects.builtin import ModuleOp

from popgraph import compiler
from popgraph.backends.registry import DEFAULT
from popgraph.dialects.levels import GRAPHCORE, MEANINGS, ONNX, STRUCTURED, level_of
from popgraph.dialects.onnx.containers import model_of
from popgraph.dialects.program import WeightStore
from popgraph.ipu.machine import Ipu
from popgraph.ipu.model import IpuModel
from popgraph.ipu.view import ipu_view
from popgraph.measure.facts import facts_of
from popgraph.measure.peak import roof
from popgraph.measure.recorded_steps import RanNode, RanSegment
from popgraph.passes.base import Compilation
from popgraph.passes.onnx.partition import host_nodes
from popgraph.passes.options import Options
from popgraph.support.arrays import Array
from popgraph.support.errors import ErrorGroup, ModelError, NeedsHostError, PopgraphError
from popgraph.support.memo import cached_property
from popgraph.support.texts import read_text
from popgraph.viewer.combined_steps import combine_lowerings, ran_steps
from popgraph.viewer.flame import Box, flame
from popgraph.viewer.graphs import Graph, graph_of
from popgraph.viewer.lowered import Lowered, Rows, lowered
from popgraph.viewer.pass_changes import passes_of, passes_of_steps
from popgraph.viewer.recording import GraphRecorder
from popgraph.viewer.weight_statistics import weights

Part = dict[str, Any]
Built = TypeVar("Built")
Combine: TypeAlias = Callable[[list[RanSegment | RanNode]], Built]
"""Combines the steps of a model."""
SOURCES = (".pgraph",)
"""Extensions of files whose source lines are shown."""


@dataclass
class Document:
    """A model and its compiler options; the module gets marks, and only copies are lowered."""

    name: str
    module: ModuleOp
    compilation: Compilation
    options: Options
    rounds: int = 0
    """Number of timed runs; 0: calls are not timed."""
    origin: Path | None = None
    """The model's file."""
    traced: bool = False
    """Whether its nodes carry lines of the Python program that created them."""
    live: dict[str, Callable[[], Part]] = field(default_factory=dict)
    """Builders of parts that change; they run on every request."""
    trained: Mapping[str, Array] = field(default_factory=dict)
    """Trained weights, which replace the module's weights."""
    ipu: Ipu | None = None
    """The IPUs whose model is shown, if any."""
    _parts: dict[str, Part] = field(default_factory=dict)
    _files: dict[str, str] = field(default_factory=dict)
    """Display names of the files in which nodes were written."""
    _lock: RLock = field(default_factory=RLock)

    def __post_init__(self) -> None:
        if level_of(self.module) != ONNX:
            raise ModelError(
                f"a module of the {level_of(self.module)} level is not viewed",
                self.name,
                "view the model that it comes from: .onnx, .pgraph, or .mlir of the onnx level",
            )

    @property
    def parts(self) -> Mapping[str, Callable[[], Part]]:
        """The builder of each part."""
        return {
            "model": self._model,
            "lowered": self._lowered,
            "passes": self._passes,
            "weights": self._weights,
            **({} if self.ipu is None else {"ipu": self._tiles}),
            **self.live,
        }

    def part(self, name: str) -> Part:
        """Builds a part, once unless it is live; an error becomes the content of the part."""
        if name in self.live:
            return self.live[name]()
        with self._lock:
            if name not in self._parts:
                try:
                    self._parts[name] = self.parts[name]()
                except PopgraphError as error:
                    self._parts[name] = {"error": _error(error)}
            return self._parts[name]

    @cached_property
    def _graph(self) -> Graph:
        """The graph of the model; file names are relative to the model's folder."""
        found = graph_of(self.module, ONNX)
        folder = self._folder({node["file"] for node in found.nodes})
        for node in found.nodes:
            name = _relative(node["file"], folder)
            node["file"] = self._files.setdefault(node["file"], name)
        return found

    def _folder(self, files: set[str]) -> str | None:
        """The folder of the model's file, or the common folder of all files."""
        if self.origin is not None:
            return str(self.origin.parent)
        folders = [os.path.dirname(file) for file in files if os.path.isabs(file)]
        return os.path.commonpath(folders) if folders else None

    @cached_property
    def _marked_module(self) -> ModuleOp:
        """The module, with marks on its nodes."""
        self._graph.mark()
        return self.module

    def _model(self) -> Part:
        description = compiler.description_here(self.name, self.module, self.compilation)
        facts = facts_of(self.name, self.module, description)
        return {
            "name": self.name,
            "levels": MEANINGS,
            "graph": self._graph.nodes,
            "facts": asdict(facts),
            "parameters": description.parameters_text,
            "sources": self._sources(),
            "live": list(self.live),
            "measured": self.rounds > 0,
            "ipu": self.ipu is not None,
        }

    def _sources(self) -> dict[str, str]:
        """The source texts of the nodes, if the model has some."""
        if self.traced:
            texts = {name: "".join(getlines(file)) for file, name in self._files.items()}
            return {name: text for name, text in sorted(texts.items()) if text}
        if self.origin is None or self.origin.suffix not in SOURCES:
            return {}
        written = {name: file for file, name in self._files.items() if file.endswith(SOURCES)}
        return {name: read_text(Path(written[name])) for name in sorted(written)}

    def _request(self) -> compiler.BuildRequest:
        """The build request of a copy of the marked module."""
        compilation = Compilation(WeightStore(self.compilation.weights))
        threads = self.options.threads
        return compiler.BuildRequest(
            self._marked_module.clone(), compilation, self.options, DEFAULT, threads
        )

    def _build(
        self, whole: Callable[[compiler.BuildRequest], Built], combine: Combine[Built]
    ) -> Built:
        """Builds from the model as one program, or from its steps if some run in Python."""
        request = self._request()
        reason: NeedsHostError | None = None
        compiler.settle_nodes(request.module, request.compilation, self.options)
        if not host_nodes(request.module, trained=self.options.training is not None):
            try:
                return whole(request)
            except NeedsHostError as error:
                if not request.may_split:
                    raise
                request, reason = request.before_lowering(error), error
        return combine(ran_steps(request, reason))

    @cached_property
    def _lowering(self) -> Lowered:
        return self._build(
            lambda request: lowered(request, self.rounds),
            lambda steps: combine_lowerings(steps, self.options.threads, self.rounds),
        )

    def times(self) -> Box:
        """The time of a step by level, if calls are timed."""
        with self._lock:
            found = self._lowering
            graphs = {ONNX: self._graph.nodes, **found.graphs}
            return flame(self.name, found.measured, found.calls, graphs)

    def _lowered(self) -> Part:
        shown = {**vars(self._lowering), "machine": asdict(self.options.target.machine)}
        del shown["measured"]
        if not self.rounds:
            return shown
        measured = roof(self.options.threads)
        return shown | {"flame": asdict(self.times()), "roof": asdict(measured)}

    def _tiles(self) -> Part:
        assert self.ipu is not None
        marking = GraphRecorder()
        compilation = Compilation(WeightStore(self.compilation.weights))
        model = IpuModel.of(self._marked_module, compilation, self.options, self.ipu, marking)
        graph = graph_of(model.module, STRUCTURED, GRAPHCORE)
        nodes = {op: graph.nodes[number] for number, op in graph.operations.items()}
        return ipu_view(model, nodes, marking.graphs[GRAPHCORE], self._core())

    def _core(self) -> Rows:
        """The nodes of the graphcore level on the page; empty if lowering fails."""
        try:
            return self._lowering.graphs[GRAPHCORE]
        except PopgraphError:
            return []

    def _passes(self) -> Part:
        return {"passes": self._build(passes_of, passes_of_steps)}

    def _weights(self) -> Part:
        return {
            "weights": weights(model_of(self.module).graph, self.compilation.weights, self.trained)
        }


def _relative(file: str, folder: str | None) -> str:
    """A file relative to a folder; pseudo-files such as `<stdin>` keep their name."""
    if not file or folder is None or file.startswith("<"):
        return file
    return Path(os.path.relpath(file, folder)).as_posix()


def _error(error: PopgraphError) -> dict[str, str]:
    if isinstance(error, ErrorGroup):
        return {"what": "\n".join(map(str, error.errors)), "where": "", "hint": ""}
    return {"what": error.what, "where": error.where, "hint": error.hint}
