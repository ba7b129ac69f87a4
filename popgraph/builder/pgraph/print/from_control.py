"""Prints If, Loop and Scan as `if` and `loop`, unless this would lose information."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.ir import Attribute, SSAValue

from popgraph.builder.pgraph.check.declared_types import check_dtype_of, may_be
from popgraph.builder.pgraph.lower.branches import ELSE, THEN
from popgraph.builder.pgraph.lower.loop_heads import NUMBER, TRUTH
from popgraph.builder.pgraph.lower.loops import LABEL
from popgraph.builder.pgraph.print.from_values import NOWHERE, name, type_text
from popgraph.builder.pgraph.print.print_annotations import graph_annotations, value_notes
from popgraph.builder.pgraph.syntax.tree import (
    AnyType,
    Block,
    Branches,
    Expression,
    Gives,
    Loop,
    Missing,
    Number,
    Scanned,
    State,
    Target,
    Turns,
)
from popgraph.dialects.onnx import Graph, SchemaOp, tensor_type
from popgraph.dialects.onnx.attributes import ValueInfoAttr
from popgraph.dialects.onnx.metadata import graph_metadata

Body = Callable[[Graph], tuple[Block, tuple[Target, ...]]]
"""The statements of a graph, and its results."""

Operand = Expression | Missing


def is_control(op: object) -> bool:
    """Whether a node can be printed as `if` or `loop` without loss."""
    if not isinstance(op, SchemaOp) or op.domain or op.op_type not in _EXPRESSES:
        return False
    graphs = [held[0] for held in op.graphs().values()]
    return all(map(_is_block, graphs)) and _EXPRESSES[op.op_type](op, graphs)


def _is_block(graph: Graph) -> bool:
    """Whether a graph has only a name, a doc string and declarations of inner values."""
    results = {label for node in graph.nodes for label in node.output_names}
    loose = [info for info in graph.value_infos or () if info.text not in results]
    return bool(graph.graph_name.data) and not graph_annotations(graph_metadata(graph), loose)[1]


def _expresses_if(op: SchemaOp, graphs: Sequence[Graph]) -> bool:
    then, other = graphs
    counts = {len(then.yielded), len(other.yielded)}
    pairs = zip(then.yielded, other.yielded, strict=False)
    typed = all(check_dtype_of(one.type, two.type) for one, two in pairs)
    return not then.inputs and not other.inputs and len(counts) == 1 and typed


def _expresses_loop(op: SchemaOp, graphs: Sequence[Graph]) -> bool:
    (body,) = graphs
    count, condition, *firsts = [*op.input_values(), None, None][: max(2, len(op.input_values()))]
    number, _, *states = [*body.inputs, None, None]
    if number is None or len(body.inputs) != len(firsts) + 2:
        return False
    return (
        _is(count, NUMBER, tensor_type("i64", [1]))
        and _is(condition, TRUTH, tensor_type("bool", [1]))
        and not value_notes(number)
        and len(op.output_names) <= len(body.yielded) - 1
        and _are_states(firsts, states, body.yielded[1:])
    )


def _expresses_scan(op: SchemaOp, graphs: Sequence[Graph]) -> bool:
    (body,) = graphs
    given = op.input_values()
    if op.since_version < 9 or set(op.onnx_attributes()) != {"num_scan_inputs"}:
        return False
    kept = len(given) - scanned_inputs(op)
    rows = body.inputs.data[kept:] if kept >= 0 else ()
    return (
        0 <= kept < len(given) == len(body.inputs)
        and None not in given
        and not any(map(value_notes, rows))
        and len(op.output_names) <= len(body.yielded)
        and _are_states(given[:kept], list(body.inputs)[:kept], body.yielded)
    )


_EXPRESSES: dict[str, Callable[[SchemaOp, Sequence[Graph]], bool]] = {
    "If": _expresses_if,
    "Loop": _expresses_loop,
    "Scan": _expresses_scan,
}


def scanned_inputs(op: SchemaOp) -> int:
    """The number of operands that a Scan iterates over."""
    count = op.attribute_values()["num_scan_inputs"]
    assert isinstance(count, int)
    return count


def _is(value: SSAValue | None, *types: Attribute) -> bool:
    return value is None or any(may_be(value.type, type_) for type_ in types)


def _are_states(
    firsts: Sequence[SSAValue | None],
    infos: Sequence[ValueInfoAttr | None],
    after: Sequence[SSAValue],
) -> bool:
    """Whether states have their declared types initially, and keep their element types."""
    if len(after) < len(firsts):
        return False
    for first, info, new in zip(firsts, infos, after, strict=False):
        if first is None or info is None or not may_be(first.type, info.type):
            return False
        if not check_dtype_of(new.type, first.type) or not check_dtype_of(new.type, info.type):
            return False
    return True


def control(op: SchemaOp, operands: Sequence[Operand], body: Body) -> Branches | Loop:
    """The expression of a node for which `is_control` holds."""
    graphs = [held[0] for held in op.graphs().values()]
    operands = [*operands, *[Missing(NOWHERE)] * (2 - len(operands))]
    match op.op_type:
        case "If":
            return _branches(operands[0], op, body)
        case "Loop":
            return _loop(operands, graphs[0], body)
        case _:
            return _scan(operands, scanned_inputs(op), graphs[0], body)


def _branches(condition: Operand, op: SchemaOp, body: Body) -> Branches:
    assert not isinstance(condition, Missing)
    graphs = op.graphs()
    then, given = _block(graphs["then_branch"][0], THEN, body)
    otherwise, other = _block(graphs["else_branch"][0], ELSE, body)
    return Branches(NOWHERE, condition, given, then, other, otherwise)


def _loop(operands: Sequence[Operand], graph: Graph, body: Body) -> Loop:
    block, gives = _block(graph, LABEL, body)
    number, going, *others = graph.inputs
    last = None if isinstance(operands[0], Missing) else operands[0]
    iteration_range = Turns(NOWHERE, Number(NOWHERE, 0), last)
    states = [_state(going, operands[1], TRUTH), *map(_state, others, operands[2:])]
    scanned = (_scanned(number, iteration_range, NUMBER),)
    return Loop(NOWHERE, scanned, name(going.text), tuple(states), gives, block)


def _scan(operands: Sequence[Operand], scanned: int, graph: Graph, body: Body) -> Loop:
    block, gives = _block(graph, LABEL, body)
    kept = len(graph.inputs) - scanned
    states = tuple(map(_state, list(graph.inputs)[:kept], operands))
    rows = tuple(map(_scanned, list(graph.inputs)[kept:], operands[kept:]))
    return Loop(NOWHERE, rows, None, states, gives, block)


def _block(graph: Graph, label: str, body: Body) -> tuple[Block, Gives]:
    block, results = body(graph)
    said = graph.graph_name.text
    return block, Gives(NOWHERE, None if said == label else name(said), results)


def _scanned(
    info: ValueInfoAttr, range_: Turns | Operand, usual: Attribute | None = None
) -> Scanned:
    assert not isinstance(range_, Missing)
    return Scanned(NOWHERE, name(info.text), _type(info, usual), range_)


def _state(info: ValueInfoAttr, value: Operand, usual: Attribute | None = None) -> State:
    return State(NOWHERE, name(info.text), _type(info, usual), value, value_notes(info))


def _type(info: ValueInfoAttr, usual: Attribute | None) -> AnyType | None:
    """
    The declared type, or None if it is the default.

    The type of an operand is not always known to the text.
    """
    return None if info.type == usual else type_text(info.type)
