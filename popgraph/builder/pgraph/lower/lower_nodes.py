"""Creates nodes of onnx IR with names, locations and annotations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from xdsl.dialects.builtin import FileLineColLoc, IntAttr, NameLoc, StringAttr
from xdsl.ir import Attribute, SSAValue

from popgraph.builder.budget import NODE
from popgraph.builder.pgraph.check.annotations import Notes
from popgraph.builder.pgraph.check.file_context import FileContext
from popgraph.builder.pgraph.check.node_names import NodeNames
from popgraph.builder.pgraph.check.operators import (
    Operator,
    newest,
    operator_of,
)
from popgraph.builder.pgraph.check.scope import Scope
from popgraph.builder.pgraph.syntax.source import Failed
from popgraph.builder.pgraph.syntax.tree import (
    Expression,
    Name,
    Path,
    Span,
)
from popgraph.dialects.onnx.op import OnnxOp
from popgraph.dialects.onnx.writer import GraphWriter
from popgraph.support.arrays import Array
from popgraph.support.errors import PopgraphError


class NodeLowering:
    """
    Writes nodes.

    What a statement computes on the way to its result `y` is named `y/1`, `y/2`, ... in the order
    of computation. `prefix` stands before the names of all values written here, `renamed` are the
    names that the caller of a template has given to its results.
    """

    def __init__(self, context: FileContext, writer: GraphWriter, scope: Scope) -> None:
        self.context = context
        self.source = context.source
        self.writer = writer
        self.scope = scope
        self.prefix = ""
        self.renamed: dict[str, str] = {}
        self.notes = Notes()
        """What annotations say about every node that is written now."""
        self.node_names = NodeNames()
        """How nodes are named of which the text does not say it."""
        self.references: dict[str, str] = {}
        """The attributes of the function around, and their kinds as far as they are known."""
        self.overload = ""
        """Which of the functions of one name the statement calls."""
        self._stem = ""
        self._steps = 0

    # names

    def full_name(self, name: str) -> str:
        """The name in the graph of what the text calls `name` here."""
        wanted = self.renamed.get(name, self.prefix + name)
        full, number = wanted, 1
        while name and self.writer.has_value(full):
            number += 1
            full = f"{wanted}_{number}"
        return full if name else ""

    def step(self) -> str:
        """The name of the next value on the way to the result of this statement."""
        stem = self.renamed.get(self._stem, self.prefix + self._stem)
        while True:
            self._steps += 1
            name = f"{stem}/{self._steps}"
            if not self.scope.taken(name) and not self.writer.has_value(name):
                return name

    # nodes

    def constant(self, array: Array, name: str, span: Span) -> SSAValue:
        return self.node("Constant", [], [name], span, {"value": array})[0]

    def node(
        self,
        op_type: str,
        operands: Sequence[SSAValue | None],
        names: Sequence[str],
        span: Span,
        attributes: dict[str, object] | None = None,
        domain: str = "",
        types: Sequence[Attribute] | None = None,
        overload: str = "",
    ) -> list[SSAValue]:
        """Writes a node; what it says against it is a mistake at `span`."""
        unfolded = self.context.unfolded.get((domain, op_type, overload), 1)
        self.source.spend(span, NODE * unfolded)
        if types is not None:
            types = [type_ for name, type_ in zip(names, types, strict=False) if name]
        self.writer.import_opset(domain, newest().get(domain, 1))
        first = next(filter(None, names), "")
        label = self.node_names.next(op_type, first)
        try:
            values = self.writer.add_node(
                op_type,
                operands,
                attributes,
                domain=domain,
                outputs=list(names),
                name=label,
                overload=overload,
                result_types=types,
            )
        except PopgraphError as error:
            self.source.note(span, error)
            raise Failed from error
        self.locate(label or first, span)
        written = self.writer.block.last_op
        assert isinstance(written, OnnxOp)
        self.notes.put(written, self.context.store)
        return values

    def locate(self, label: str, span: Span) -> None:
        """Gives what was written last its place in the text."""
        written = self.writer.block.last_op
        assert written is not None
        place = FileLineColLoc(
            StringAttr(self.source.filename), IntAttr(span.line), IntAttr(span.column)
        )
        written.location = NameLoc(StringAttr(label), place)

    def whole_numbers(self, given: SSAValue | int | list[int], span: Span) -> SSAValue:
        """A value of the graph; numbers become a constant."""
        if isinstance(given, SSAValue):
            return given
        return self.constant(np.array(given, np.int64), self.step(), span)

    def operator(self, op_type: str, span: Span) -> Operator:
        path = Path(span, (Name(span, op_type),))
        return operator_of(self.source, path, self.writer.opsets)


class OperandLowering(NodeLowering, ABC):
    """Writes nodes whose operands are expressions."""

    @abstractmethod
    def value(self, expression: Expression) -> SSAValue:
        """The value of an expression within another."""

    @abstractmethod
    def fold(self, expression: Expression) -> Expression:
        """The expression with everything computed that is known now."""
