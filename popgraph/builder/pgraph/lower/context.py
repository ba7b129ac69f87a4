"""The context of lowering: where nodes go, what names mean, and what is said about them."""

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
    How each kind of expression and of statement is lowered: the tables of `rules.py`.

    They stand in the context because everything inside an expression may hold any other: a call
    has arguments, a graph that is one of them has statements, and so on.
    """

    expression: Callable[[GraphContext, Expression, Sequence[str] | None], list[SSAValue]]
    statement: Callable[[GraphContext, Statement, Notes], None]


@dataclass
class StatementContext:
    """
    The statement that is being written, which may hold others.

    What it computes on the way to its result `y` is named `y/1`, `y/2`, ... in the order of
    computation; `steps` counts these values.
    """

    stem: str = ""
    """The first name that it defines."""
    wanted: Sequence[Name] = ()
    """All names that it defines."""
    overload: str = ""
    """Which of the functions of one name it calls."""
    steps: int = 0


@dataclass(frozen=True)
class GraphContext:
    """
    What the functions of this room are handed: one graph, and the place in it that is written.

    Who lowers something inside of something else hands on a copy in which that differs: a scope,
    a prefix, another graph. What all copies for one graph share is mutable: the writer, `infos`,
    `labels`, the counters.
    """

    file: FileContext
    writer: GraphWriter
    scope: Scope
    rules: Rules
    about: GraphNotes = field(default_factory=GraphNotes)
    """What is said about the graph as a whole."""
    is_inner: bool = False
    """Whether this is a graph inside a node, or a function."""
    calls: tuple[str, ...] = ()
    """The templates that are being written out around this, from the outermost in."""
    prefix: str = ""
    """What stands before the names of all values that are written here."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """The names that the caller of a template has given to its results."""
    notes: Notes = field(default_factory=Notes)
    """What annotations say about every node that is written now."""
    node_names: NodeNames = field(default_factory=NodeNames)
    """How nodes are named of which the text does not say it."""
    references: Mapping[str, str] = field(default_factory=dict)
    """The attributes of the function around, and their kinds as far as they are known."""
    statement: StatementContext = field(default_factory=StatementContext)
    infos: list[ValueInfoAttr] = field(default_factory=list)
    """What the text says about the types of inner values."""
    labels: dict[str, int] = field(default_factory=dict)
    """How often each label of a call has been wanted."""

    @property
    def source(self) -> Source:
        """The text, which takes note of mistakes."""
        return self.file.source

    def described(self, notes: GraphNotes) -> GraphContext:
        """The same, following what is said about the graph as a whole."""
        if notes.rule is None:
            return replace(self, about=notes)
        return replace(self, about=notes, node_names=NodeNames(notes.rule))

    def within(self, scope: Scope, prefix: str | None = None) -> GraphContext:
        """The same graph, in a scope inside this one."""
        return replace(self, scope=scope, prefix=self.prefix if prefix is None else prefix)
