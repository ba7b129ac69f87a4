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


@dataclass(frozen=True)
class Definition:
    """A `def`, and the context of the file in which it stands."""

    template: tree.Template
    context: FileContext

    @property
    def full_name(self) -> str:
        """A name that no other template has, and no text can say."""
        span = self.template.name.span
        return f"\n{self.context.source.filename}:{span.line}:{self.template.name.text}"


@dataclass(frozen=True)
class FileContext:
    """
    What all graphs of one file share.

    `scope` holds what stands outside of graphs. `definitions` are the templates that can be
    called; those of this file are added while it is read. `search` are folders with texts to
    import, `files` those that were imported already, `reading` those that are being read now,
    from the outermost in. `borrowed` are the names of the scope that come from other files.
    """

    source: Source
    opsets: dict[str, int]
    store: WeightStore
    scope: Scope
    definitions: dict[str, Definition] = field(default_factory=dict)
    functions: dict[FunctionKey, Function] = field(default_factory=dict)
    calls: set[FunctionKey] = field(default_factory=set)
    """What can be called of the functions of the model, also of those still to be read."""
    unfolded: dict[FunctionKey, int] = field(default_factory=dict)
    """How many calls a call of each of these functions is, with all that it calls in turn."""
    search: tuple[Path, ...] = ()
    files: dict[Path, FileContext] = field(default_factory=dict)
    reading: tuple[Path, ...] = ()
    borrowed: set[str] = field(default_factory=set)
    called: set[str] = field(default_factory=set)
    """The templates of this file that something has called."""
    weights: Path | None = None
    """The file from which `= load` takes the weights of this graph, by their full names."""

    @property
    def folder(self) -> Path:
        return Path(self.source.filename).parent

    def template(self, path: tree.Path) -> Definition | None:
        """The template that a call names, if it names one."""
        return self.definitions.get(path.text) if len(path.parts) == 1 else None

    def using(self, opsets: Mapping[str, int]) -> FileContext:
        """The same with other operator sets."""
        return replace(self, opsets=dict(opsets))
