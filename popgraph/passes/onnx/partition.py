"""Partition of a model into segments that are compiled and nodes that the host computes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from popgraph.dialects.onnx.attributes import ValueInfoAttr
from popgraph.dialects.onnx.containers import Function, Model, model_of, value_name
from popgraph.dialects.onnx.custom import Custom
from popgraph.dialects.onnx.expansion import inline
from popgraph.dialects.onnx.initializer import Initializer
from popgraph.dialects.onnx.op import Graph, OnnxOp, Yield
from popgraph.dialects.onnx.types import (
    STRING,
    MapType,
    OptType,
    SeqType,
    SparseType,
    describe,
)
from popgraph.dialects.program import WeightStore
from popgraph.passes.onnx.infer_shapes import infer_shapes

DATA_DECIDE_SIZES = frozenset(
    {"NonZero", "Compress", "Unique", "NonMaxSuppression", "ImageDecoder"}
)
"""ONNX's operators whose results have as many elements as the data say."""

LOOKED_UP = frozenset({"TfIdfVectorizer"})
"""ONNX's operators on numbers or strings that look up what they find in a table of theirs."""


@dataclass(frozen=True)
class HostStep:
    """A node of the model that is computed in Python, on arrays, sequences and strings."""

    op: OnnxOp


@dataclass(frozen=True)
class Segment:
    """Nodes that are compiled together, as a model of their own."""

    module: ModuleOp
    inputs: dict[str, SSAValue]
    """The values of the whole model that it takes, by the names of its inputs."""
    outputs: dict[str, SSAValue]
    """And those that it gives."""

    def nodes(self) -> list[OnnxOp]:
        """The nodes in it, without literals."""
        graph = model_of(self.module).graph
        return [op for op in graph.nodes if not _is_literal(op)]


Step = HostStep | Segment


def host_node(op: OnnxOp) -> bool:
    """Whether no program of static sizes computes a node."""
    values = [value for inner in op.walk() for value in (*inner.operands, *inner.results)]
    arguments = [value for block in op.walk_blocks() for value in block.args]
    return any(_is_of_python(inner) for inner in op.walk()) or any(
        _is_container(value.type) for value in (*values, *arguments)
    )


def _is_of_python(op: Operation) -> bool:
    found = op.op_type if isinstance(op, OnnxOp) and op.domain == "" else ""
    return found in DATA_DECIDE_SIZES | LOOKED_UP


def why_hosted(op: OnnxOp) -> str:
    """Why the host computes a node."""
    for inner in op.walk():
        if _is_of_python(inner):
            assert isinstance(inner, OnnxOp)
            data = inner.op_type in DATA_DECIDE_SIZES
            why = "the data decide the size of its result" if data else "it looks up in a table"
            return why if inner is op else f"in one of its graphs is {inner.op_type}: {why}"
    values = [value for inner in op.walk() for value in (*inner.operands, *inner.results)]
    arguments = [value for block in op.walk_blocks() for value in block.args]
    held = (value for value in (*values, *arguments) if _is_container(value.type))
    return f"{value_name(found)!r} is {describe(found.type)}" if (found := next(held, None)) else ""


def _is_container(type_: Attribute) -> bool:
    """Whether a value is no dense tensor of numbers."""
    return (
        isinstance(type_, SeqType | OptType | MapType | SparseType)
        or getattr(type_, "element_type", None) == STRING
    )


def host_nodes(module: ModuleOp) -> list[OnnxOp]:
    """The nodes of a model that the host computes, those of functions that are called included."""
    model = model_of(module)
    functions = _host_functions(model)
    return [op for op in model.graph.nodes if host_node(op) or _key(op) in functions]


def _key(op: Operation) -> tuple[str, str, str] | None:
    return op.key if isinstance(op, Custom) else None


def _host_functions(model: Model) -> set[tuple[str, str, str]]:
    """The functions in which something, or a function that they call, is for the host."""
    functions, found = model.functions, set[tuple[str, str, str]]()
    while True:
        more = {
            key
            for key, function in functions.items()
            if key not in found and any(_is_host(op, found) for op in function.nodes)
        }
        if not more:
            return found
        found |= more


def _is_host(op: OnnxOp, functions: set[tuple[str, str, str]]) -> bool:
    return host_node(op) or any(_key(inner) in functions for inner in op.walk())


def partition(module: ModuleOp, store: WeightStore) -> list[Step]:
    """
    What runs in order: as few segments as there can be, and the nodes between them.

    Functions in which something is for the host are inlined first.
    """
    _inline_functions(module, store)
    graph = model_of(module).graph
    levels, hosted = _levels(graph), set(host_nodes(module))
    nodes = [op for op in graph.nodes if not _is_literal(op)]
    steps: list[Step] = []
    for level in range(max(levels.values(), default=0) + 1):
        here = [op for op in nodes if levels[op] == level]
        steps += [HostStep(op) for op in here if op in hosted]
        compiled = [op for op in here if op not in hosted]
        if compiled:
            steps.append(_segment(model_of(module), compiled))
    return steps


def _inline_functions(module: ModuleOp, store: WeightStore) -> None:
    model = model_of(module)
    functions = _host_functions(model)
    while calls := [op for op in model.graph.nodes if _key(op) in functions]:
        inference = infer_shapes(module, store)
        for call in calls:
            assert isinstance(call, Custom)
            inline(call, model.functions[call.key], inference)


def _is_literal(op: Operation) -> bool:
    """Whether an operation is a value that every step can have for itself: no caller changes it."""
    if isinstance(op, Initializer):
        return op.input is None
    return isinstance(op, OnnxOp) and (op.domain, op.op_type) == ("", "Constant")


def _levels(graph: Graph) -> dict[Operation, int]:
    """How many nodes of the host each node has to wait for, itself included."""
    module = graph.parent_op()
    assert isinstance(module, Model)
    hosted = {op for op in graph.nodes if host_node(op)}
    levels: dict[Operation, int] = {}
    for op in graph.nodes:
        before = [
            levels[owner]
            for value in read_by(op)
            if isinstance(owner := value.owner, Operation) and owner in levels
        ]
        levels[op] = max(before, default=0) + (op in hosted)
    return levels


def read_by(op: Operation) -> Iterator[SSAValue]:
    """The values that an operation, or a graph inside it, takes from outside."""
    inside = set(op.walk())
    for inner in op.walk():
        for value in inner.operands:
            owner = value.owner
            maker = owner if isinstance(owner, Operation) else owner.parent_op()
            if maker not in inside:
                yield value


def _segment(model: Model, nodes: Sequence[OnnxOp]) -> Segment:
    """A model of these nodes, with the literals that they read."""
    own = set(nodes)
    made_here = dict.fromkeys(value for op in nodes for value in op.results)
    read = list(dict.fromkeys(value for op in nodes for value in read_by(op)))
    literals = [value for value in read if _is_literal_value(value)]
    inputs = [value for value in read if value not in made_here and value not in literals]
    outputs = [value for value in made_here if _leaves(value, own)]
    block = Block(arg_types=[value.type for value in inputs])
    values: dict[SSAValue, SSAValue] = dict(zip(inputs, block.args, strict=True))
    for op in (*dict.fromkeys(value.owner for value in literals), *nodes):
        assert isinstance(op, Operation)
        block.add_op(op.clone(values))
    block.add_op(Yield([values[value] for value in outputs]))
    graph = Graph("segment", _infos(inputs), _infos(outputs), Region(block))
    made = Model(
        model.ir_version.value.data,
        list(model.opsets),
        [function.clone() for function in model.functions.values()],
        graph,
    )
    named = [{value_name(value): value for value in group} for group in (inputs, outputs)]
    return Segment(ModuleOp([made]), *named)


def _is_literal_value(value: SSAValue) -> bool:
    return isinstance(value.owner, Operation) and _is_literal(value.owner)


def _leaves(value: SSAValue, nodes: set[OnnxOp]) -> bool:
    """Whether something but these nodes reads a value."""
    return any(_node_of(use.operation) not in nodes for use in value.uses)


def _node_of(op: Operation) -> Operation:
    """The node of the main graph that an operation is, or is in."""
    while not isinstance(holder := op.parent_op(), Graph | Function) or not isinstance(
        holder.parent_op(), Model
    ):
        assert holder is not None, "nodes stand in the graph of a model"
        op = holder
    return op


def _infos(values: Iterable[SSAValue]) -> list[ValueInfoAttr]:
    return [ValueInfoAttr.of(value_name(value), value.type) for value in values]
