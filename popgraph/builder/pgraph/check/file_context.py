"""The context of one file: scope, templates, functions, imports, opsets, weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from popgraph.builder.pgraph.check.scope import Scope
from popgraph.builder.pgraph.syntax import tree
from popgraph.builder.pgraph.syntax.source import Source
from popgraph.dialects.onnx.containers import Function
from popgraph.dialects.onnx.writer import FunctionKey
from popgraph.dialects.program import WeightStore
from popgraph.support.checkpoints import Checkpoint, open_checkpoint
from popgraph.support.files import state_of


@dataclass(frozen=True)
class Definition:
    """A `def`, with the context of its file."""

    template: tree.Template
    context: FileContext

    @property
    def full_name(self) -> str:
        """A unique name that cannot occur in a text."""
        span = self.template.name.span
        return f"\n{self.context.source.filename}:{span.line}:{self.template.name.text}"


@dataclass(frozen=True)
class FileContext:
    """
    The shared state of all graphs of a file.

    `scope` holds file-level names. `definitions` are the callable templates; templates of this
    file are added while it is read. `search` are folders for imports, `files` the imported files,
    and `reading` the files being read, outermost first. `borrowed` are imported names of the scope.
    """

    source: Source
    opsets: dict[str, int]
    store: WeightStore
    scope: Scope
    definitions: dict[str, Definition] = field(default_factory=dict)
    functions: dict[FunctionKey, Function] = field(default_factory=dict)
    calls: set[FunctionKey] = field(default_factory=set)
    """Callable functions of the model, including those not yet read."""
    unfolded: dict[FunctionKey, int] = field(default_factory=dict)
    """The number of calls that a call of each function expands to."""
    search: tuple[Path, ...] = ()
    files: dict[Path, FileContext] = field(default_factory=dict)
    reading: tuple[Path, ...] = ()
    borrowed: set[str] = field(default_factory=set)
    called: set[str] = field(default_factory=set)
    """The templates of this file that have been called."""
    weights: Path | None = None
    """The file from which `= load` reads the weights of this graph, by full name."""
    checkpoints: dict[Path, Checkpoint] = field(default_factory=dict)
    """The weight files that were opened."""

    @property
    def folder(self) -> Path:
        return Path(self.source.filename).parent

    def loading(self, weights: Checkpoint) -> FileContext:
        """A copy whose graphs load these weights."""
        self._opened(weights.path, weights)
        return replace(self, weights=weights.path)

    def _opened(self, path: Path, weights: Checkpoint) -> Checkpoint:
        self.checkpoints[path] = weights
        for file in weights.files:
            self.store.files.setdefault(file, state_of(file))
        return weights

    def checkpoint(self, path: Path) -> Checkpoint:
        """The weights of a file, opened once; `Unreadable` if that fails."""
        return self.checkpoints.get(path) or self._opened(path, open_checkpoint(path))

    def template(self, path: tree.Path) -> Definition | None:
        """The template that a call names, if any."""
        return self.definitions.get(path.text) if len(path.parts) == 1 else None

    def using(self, opsets: Mapping[str, int]) -> FileContext:
        """A copy with other operator sets."""
        return replace(self, opsets=dict(opsets))
