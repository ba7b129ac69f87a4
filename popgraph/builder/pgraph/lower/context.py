"""The context of lowering: the graph writer, name resolution, annotations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from xdsl.ir import SSAValue

from popgraph.builder.pgraph.check.annotations import Notes
from popgraph.builder.pgraph.check.file_context import FileContext
from popgraph.builder.pgraph.check.graph_notes import GraphNotes
from popgraph.builder.pgraph.check.node_names import NodeNames
from popgraph.builder.pgraph.check.scope import Scope
from popgraph.builder.pgraph.syntax.source import Source
from popgraph.builder.pgraph.syntax.tree import Expression, Name, Statement
from popgraph.dialects.onnx.attributes import ValueInfoAttr
from popgraph.dialects.onnx.writer import GraphWriter


@dataclass(frozen=True)
class Rules:
    """
    The lowering functions of expressions and statements: the tables of `rules.py`.

    They are in the context because expressions and statements nest arbitrarily: a call has
    arguments, a graph argument has statements, and so on.
    """

    expression: Callable[[GraphContext, Expression, Sequence[str] | None], list[SSAValue]]
    statement: Callable[[GraphContext, Statement, Notes], None]


@dataclass
class StatementContext:
    """
    The statement being lowered, which may contain others.

    Intermediate values of a result `y` are named `y/1`, `y/2`, ... in order of computation; `steps`
    counts them.
    """

    stem: str = ""
    """The first name that it defines."""
    wanted: Sequence[Name] = ()
    """All names that it defines."""
    overload: str = ""
    """The overload of the function that it calls."""
    steps: int = 0


@dataclass(frozen=True)
class GraphContext:
    """
    The state passed to lowering functions: a graph, and the position in it.

    Nested constructs get a copy with another scope, prefix or graph. State shared by all copies of
    one graph is mutable: the writer, `infos`, `labels`, the counters.
    """

    file: FileContext
    writer: GraphWriter
    scope: Scope
    rules: Rules
    about: GraphNotes = field(default_factory=GraphNotes)
    """Annotations of the whole graph."""
    is_inner: bool = False
    """Whether this is a subgraph or a function."""
    calls: tuple[str, ...] = ()
    """The templates being expanded, outermost first."""
    prefix: str = ""
    """Prefix of the names of all values written here."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """The caller's names of a template's results."""
    notes: Notes = field(default_factory=Notes)
    """Annotations of every node being written."""
    node_names: NodeNames = field(default_factory=NodeNames)
    """Names of nodes that the text does not name."""
    references: Mapping[str, str] = field(default_factory=dict)
    """The attributes of the enclosing function, with their kinds if known."""
    statement: StatementContext = field(default_factory=StatementContext)
    infos: list[ValueInfoAttr] = field(default_factory=list)
    """Declared types of inner values."""
    labels: dict[str, int] = field(default_factory=dict)
    """The number of uses of each call label."""

    @property
    def source(self) -> Source:
        """The text, which collects errors."""
        return self.file.source

    def described(self, notes: GraphNotes) -> GraphContext:
        """A copy with the annotations of the whole graph."""
        if notes.rule is None:
            return replace(self, about=notes)
        return replace(self, about=notes, node_names=NodeNames(notes.rule))

    def within(self, scope: Scope, prefix: str | None = None) -> GraphContext:
        """A copy in an inner scope."""
        return replace(self, scope=scope, prefix=self.prefix if prefix is None else prefix)
