"""Graphs of a module at any tensor level as plain data: nodes, edges, types and scopes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.printer import Printer

from popgraph.dialects.graphcore.control import Control
from popgraph.dialects.levels import ONNX
from popgraph.dialects.onnx.containers import model_of
from popgraph.dialects.onnx.initializer import Initializer
from popgraph.dialects.onnx.metadata import node_metadata
from popgraph.dialects.onnx.op import OnnxOp, Yield
from popgraph.dialects.onnx.types import describe
from popgraph.dialects.onnx.weight_names import weight_name
from popgraph.dialects.program import ConstantOp, PrepareOp, VariableOp, graphs_of
from popgraph.dialects.program.ops import ReturnOp, UpdateOp, YieldOp
from popgraph.passes.changes import elided
from popgraph.viewer.nodes import (
    Node,
    Operand,
    fold,
    kind_of,
    modules_of,
    plain,
    scope_below,
    scope_of,
)
from popgraph.viewer.provenance import mark, mark_modules, modules_marked, origins, source_line

STORED = (Initializer, ConstantOp, VariableOp)
"""Operations that hold a tensor; shown inside the nodes that read it."""
LONGEST = 400
"""Longest text of an attribute value, in characters."""


@dataclass(frozen=True)
class Graph:
    """The nodes of a level, with their operations."""

    level: str
    nodes: list[dict[str, Any]]
    operations: dict[int, Operation]

    def mark(self) -> None:
        """Marks each operation, so that lowered operations can be traced to their nodes."""
        for number, op in self.operations.items():
            mark(op, self.level, number)
            if isinstance(op, OnnxOp):
                mark_modules(op, _modules(op))


def graph_of(module: ModuleOp, level: str, above: str = "") -> Graph:
    """
    The nodes of all graphs of a module, in order.

    `sources` are the numbers of the marked nodes of the level `above` from which a node comes.
    """
    reader = _Reader(above)
    if level == ONNX:
        graph = model_of(module).graph
        reader.inputs(graph.block, graph.input_names)
        reader.block(graph.block, "")
        reader.outputs(graph.yielded, graph.output_names)
    else:
        graphs = graphs_of(module)
        for one in graphs:
            name = one.sym_name.data if len(graphs) > 1 else ""
            reader.inputs(one.block, list(one.inputs), name)
            reader.block(one.block, name)
            reader.outputs(list(one.outputs.values()), list(one.outputs), name)
    fold(reader.nodes, reader.results)
    return Graph(level, [plain(node) for node in reader.nodes], reader.operations)


class _Reader:
    """Converts blocks to nodes."""

    def __init__(self, above: str) -> None:
        self._above = above
        self.nodes: list[Node] = []
        self.operations: dict[int, Operation] = {}
        self.results: set[int] = set()
        """Nodes that compute the results of subgraphs."""
        self._types: dict[Attribute, str] = {}
        self._givers: dict[SSAValue, int] = {}
        self._held: dict[SSAValue, str] = {}
        self._printer = Printer()

    def inputs(self, block: Block, names: Sequence[str], scope: str = "") -> None:
        for name, argument in zip(names, block.args, strict=True):
            node = self._add(Node(len(self.nodes), "input", name, scope))
            node.outputs.append(Operand(name, self._type(argument)))
            self._givers[argument] = node.id

    def outputs(self, values: Sequence[SSAValue], names: Sequence[str], scope: str = "") -> None:
        for name, value in zip(names, values, strict=True):
            node = self._add(Node(len(self.nodes), "output", name, scope))
            node.inputs.append(self._operand(value))

    def block(self, block: Block, scope: str) -> None:
        """Adds the operations of a block, each after the nodes of its subgraphs."""
        for op in block.ops:
            if isinstance(op, STORED):
                self._held[op.results[0]] = _stored_name(op)
            elif isinstance(op, PrepareOp):
                self.block(op.body.block, f"{scope}/prepare".strip("/"))
                self._forward(op.results, op.body.block)
            elif not isinstance(op, Yield | YieldOp | ReturnOp):
                self._operation(op, scope)

    def _forward(self, results: Sequence[SSAValue], block: Block) -> None:
        """Maps the results of a region to the nodes that compute them."""
        last = block.last_op
        assert last is not None
        for result, value in zip(results, last.operands, strict=True):
            if value in self._givers:
                self._givers[result] = self._givers[value]
            elif value in self._held:
                self._held[result] = self._held[value]

    def _operation(self, op: Operation, scope: str) -> None:
        where = source_line(op)
        inner = scope_of(where.name, scope, _modules(op))
        name = where.name or _hint(op)
        ends: list[SSAValue] = []
        for label, block in _bodies(op):
            below = scope_below(inner, name or _kind(op), label)
            self.block(block, below)
            last = block.last_op
            ends += last.operands if last is not None else []
        node = self._add(Node(len(self.nodes), _kind(op), name, inner))
        if isinstance(op, OnnxOp):
            node.file, node.line = where.file, where.line
        node.sources = origins(op, self._above) if self._above else []
        node.inputs = [self._operand(value) for value in (*_operands(op), *ends)]
        node.outputs = [Operand(name, self._type(value)) for name, value in _named_results(op)]
        node.attributes = _attributes(op)
        node.text = "" if isinstance(op, OnnxOp) else self._text(op)
        self.results |= {self._givers[value] for value in ends if value in self._givers}
        self.operations[node.id] = op
        for result in op.results:
            self._givers[result] = node.id

    def _operand(self, value: SSAValue) -> Operand:
        type_ = self._type(value)
        if value in self._givers:
            return Operand(value.name_hint or "", type_, self._givers[value])
        if value in self._held:
            return Operand(self._held[value], type_, held=True)
        return Operand(value.name_hint or "argument", type_)  # Of a body, in each iteration.

    def _type(self, value: SSAValue) -> str:
        """The type as messages spell it; cached, because there are few."""
        if value.type not in self._types:
            self._types[value.type] = describe(value.type)
        return self._types[value.type]

    def _text(self, op: Operation) -> str:
        self._printer.stream = written = StringIO()
        self._printer.print_op(op)
        return elided(written.getvalue())

    def _add(self, node: Node) -> Node:
        self.nodes.append(node)
        return node


def _bodies(op: Operation) -> Iterator[tuple[str, Block]]:
    """The blocks of the subgraphs of an operation, with their labels."""
    if isinstance(op, OnnxOp):
        for label, graphs in op.graphs().items():
            for graph in graphs:
                yield label, graph.block
    elif isinstance(op, Control):
        for number, block in enumerate(op.bodies()):
            yield f"body {number + 1}", block


def _modules(op: Operation) -> str | None:
    """The PyTorch modules of a node, if known; operations inherit the modules of their node."""
    if isinstance(op, OnnxOp):
        return modules_of(node_metadata(op).metadata)
    return modules_marked(op)


def _operands(op: Operation) -> Iterator[SSAValue]:
    if isinstance(op, OnnxOp):
        yield from (value for value in op.input_values() if value is not None)
    else:
        yield from op.operands


def _named_results(op: Operation) -> Iterator[tuple[str, SSAValue]]:
    if isinstance(op, OnnxOp):
        names = op.output_names
        for number, value in enumerate(op.output_values()):
            if value is not None:
                yield (names[number] if number < len(names) else ""), value
    else:
        yield from ((value.name_hint or "", value) for value in op.results)


def _attributes(op: Operation) -> dict[str, str]:
    """The attributes of an ONNX node; other operations show them in their text."""
    if not isinstance(op, OnnxOp):
        return {}
    texts = {name: str(value) for name, value in op.attribute_values().items()}
    held = op.graphs()
    return {
        name: text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
        for name, text in texts.items()
        if name not in held
    }


def _kind(op: Operation) -> str:
    if isinstance(op, OnnxOp):
        return kind_of(op.domain, op.op_type)
    if isinstance(op, UpdateOp):
        return f"update {op.variable.text}"
    return op.name.partition(".")[2]


def _hint(op: Operation) -> str:
    return next((value.name_hint for value in op.results if value.name_hint), "")


def _stored_name(op: Operation) -> str:
    match op:
        case Initializer():
            return weight_name(op)
        case VariableOp():
            return op.variable.text
    return op.results[0].name_hint or "constant"
