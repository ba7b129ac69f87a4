"""The document of a model: all that a page shows of it, in parts that are made when asked."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from threading import RLock
from typing import Any

from xdsl.dialects.builtin import ModuleOp

from popgraph import compiler
from popgraph.backends.c.run.profile import Profile
from popgraph.dialects.levels import MEANINGS, ONNX, level_of
from popgraph.dialects.onnx.containers import model_of
from popgraph.dialects.program import WeightStore
from popgraph.measure.facts import facts_of
from popgraph.measure.profile_rows import Described
from popgraph.measure.roof import roof
from popgraph.measure.timing import random_model_inputs
from popgraph.passes.base import Compilation
from popgraph.passes.options import Options
from popgraph.support.arrays import Array
from popgraph.support.errors import ErrorGroup, ModelError, PopgraphError
from popgraph.support.texts import read_text
from popgraph.viewer.graphs import Graph, graph_of
from popgraph.viewer.kernels import calls, kernels, program_text
from popgraph.viewer.memory import memory
from popgraph.viewer.passes import Passes
from popgraph.viewer.recording import Recording
from popgraph.viewer.weights import weights

Part = dict[str, Any]
SOURCES = (".pgraph",)
"""Endings of the files whose lines are shown."""


@dataclass
class Document:
    """A model, and how it is to be compiled; the module is marked, and lowered only as a copy."""

    name: str
    module: ModuleOp
    compilation: Compilation
    options: Options
    rounds: int = 0
    """How often calls are measured; 0: they are not."""
    origin: Path | None = None
    """The file that it was read from."""
    live: dict[str, Callable[[], Part]] = field(default_factory=dict)
    """Makes parts that change, again whenever they are asked for."""
    trained: Mapping[str, Array] = field(default_factory=dict)
    """Weights that are no longer what the module says."""
    _made: dict[str, Part] = field(default_factory=dict)
    _files: dict[str, str] = field(default_factory=dict)
    """What the page calls the files in which nodes were written."""
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
        """What makes each part."""
        return {
            "model": self._model,
            "lowered": self._lowered,
            "passes": self._passes,
            "weights": self._weights,
            **self.live,
        }

    def part(self, name: str) -> Part:
        """A part, made once unless it is live; one that a mistake prevents says which."""
        if name in self.live:
            return self.live[name]()
        with self._lock:
            if name not in self._made:
                try:
                    self._made[name] = self.parts[name]()
                except PopgraphError as error:
                    self._made[name] = {"error": _error(error)}
            return self._made[name]

    @cached_property
    def _graph(self) -> Graph:
        """The model as it was written; lines are those of files as seen from the model's folder."""
        found = graph_of(self.module, ONNX)
        for node in found.nodes:
            node["file"] = self._files.setdefault(node["file"], self._relative(node["file"]))
        return found

    def _relative(self, file: str) -> str:
        if not file or self.origin is None:
            return file
        return Path(os.path.relpath(file, self.origin.parent)).as_posix()

    @cached_property
    def _marked(self) -> ModuleOp:
        """The module, with marks on its nodes."""
        self._graph.mark()
        return self.module

    def _model(self) -> Part:
        said = compiler.description_here(self.name, self.module, self.compilation)
        facts = facts_of(self.name, self.module, said)
        return {
            "name": self.name,
            "levels": MEANINGS,
            "graph": self._graph.nodes,
            "facts": asdict(facts),
            "parameters": said.parameters_text,
            "sources": self._sources(),
            "live": list(self.live),
        }

    def _sources(self) -> dict[str, str]:
        """The texts in which the nodes were written, if the model comes from such a text."""
        if self.origin is None or self.origin.suffix not in SOURCES:
            return {}
        written = {name: file for file, name in self._files.items() if file.endswith(SOURCES)}
        return {name: read_text(Path(written[name])) for name in sorted(written)}

    def _copy(self) -> tuple[ModuleOp, Compilation]:
        return self._marked.clone(), Compilation(WeightStore(self.compilation.weights))

    def _lowered(self) -> Part:
        module, compilation = self._copy()
        recording = Recording(options=self.options)
        compiler.lower(module, compilation, self.options, observer=recording)
        found = {
            "machine": asdict(self.options.target.machine),
            "graphs": recording.graphs,
            "types": recording.types,
            "kernels": kernels(module),
            "calls": calls(module, recording),
            "program": program_text(module, self.options),
            "memory": memory(module),
        }
        return found | (self._times(module, compilation) if self.rounds else {})

    def _times(self, module: ModuleOp, compilation: Compilation) -> Part:
        """What each call of a step takes, in microseconds, and what it could reach at most."""
        measured = Profile(module, compilation.weights, self.options.threads)
        measured.measure(random_model_inputs(measured.executable.inputs), self.rounds)
        rows = Described(module, measured).calls(sum(measured.times))
        return {
            "total": measured.total / 1e3,
            "times": [row.microseconds for row in rows],
            "roof": asdict(roof(self.options.threads)),
        }

    def _passes(self) -> Part:
        module, compilation = self._copy()
        passes = Passes(options=self.options)
        compiler.lower(module, compilation, self.options, observer=passes)
        return {"passes": passes.described(ONNX)}

    def _weights(self) -> Part:
        return {
            "weights": weights(model_of(self.module).graph, self.compilation.weights, self.trained)
        }


def _error(error: PopgraphError) -> dict[str, str]:
    if isinstance(error, ErrorGroup):
        return {"what": "\n".join(map(str, error.errors)), "where": "", "hint": ""}
    return {"what": error.what, "where": error.where, "hint": error.hint}
