"""
Loops over segments of rows, as PyTorch exports EmbeddingBag, lowered to one reduction.

    for k in 0..count: y[k] = ReduceMean(Gather(w, x[starts[k]:ends[k]]), axis 0)
    ->  y = reduce_segments(Gather(w, x), starts, ends) / (ends - starts)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from xdsl.builder import ImplicitBuilder
from xdsl.ir import Block, Operation, Region, SSAValue

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand, dtype_of, shape_of
from popgraph.dialects.onnx import Graph, Initializer, OnnxOp
from popgraph.dialects.onnx.attributes import ValueInfoAttr
from popgraph.dialects.onnx.containers import value_name
from popgraph.dialects.onnx.custom import Custom
from popgraph.dialects.onnx.op import Yield
from popgraph.dialects.onnx.schema_op import SchemaOp
from popgraph.dialects.onnx.types import dims
from popgraph.operators.arithmetic import cast
from popgraph.operators.lookups import i64_scalar
from popgraph.operators.movement import reshaped, sliced
from popgraph.operators.node import Node
from popgraph.support import dtypes
from popgraph.support.arrays import Array
from popgraph.support.shapes import prod

COMBINES = {"ReduceSum": "add", "ReduceMean": "add", "ReduceMax": "max"}
BY_ROWS = frozenset({"Identity", "Cast", "Neg", "Abs", "Exp", "Relu", "Sqrt", "Tanh", "Sigmoid"})
"""Unary operators that are independent for each row."""
OF_TWO = frozenset({"Add", "Sub", "Mul", "Div"})
I64 = dtypes.BY_NAME["i64"]


def segments(node: Node, graph: Graph, count: int) -> list[SSAValue] | None:
    """The scan outputs of a Loop whose iterations each reduce a segment; None for other loops."""
    _, condition, *states = graph.block.args
    goes, *rows = graph.yielded
    goes = _plain(goes)
    if states or not rows or (goes is not condition and _known(node, goes) is not True):
        return None
    found = [_Segments.of(node, graph, value) for value in rows]
    if any(one is None for one in found):
        return None
    return [one.lowered(count) for one in found if one is not None]


@dataclass
class _Segments:
    """A reduction in a loop body, and the nodes between its segment and it."""

    node: Node
    graph: Graph
    reduction: SchemaOp
    starts: SSAValue | None = None
    ends: SSAValue | None = None
    """The vectors of segment bounds, defined outside the loop."""
    block: Block = field(default_factory=Block)
    """Copies of the nodes, which compute all rows."""
    values: dict[SSAValue, SSAValue] = field(default_factory=dict)

    @staticmethod
    def of(node: Node, graph: Graph, value: SSAValue) -> _Segments | None:
        op = value.owner
        if not isinstance(op, SchemaOp) or op.op_type not in COMBINES or op.domain:
            return None
        given = op.attribute_values(node.lowering.weights)
        axes = given["axes"] if "axes" in given else _elements(node, op, 1)
        if axes is None or np.asarray(axes).reshape(-1).tolist() != [0] or given.get("keepdims", 1):
            return None
        found = _Segments(node, graph, op)
        return found if found._take(op.operands[0]) and found.starts is not None else None

    # Matching

    def _take(self, value: SSAValue) -> bool:
        """Whether a value is a segment of a value for all rows, whose computation is copied."""
        if value in self.values:
            return True
        op = value.owner
        if isinstance(op, Custom) and op.is_check:
            return self._copy(op, op.operands[:1])
        if not isinstance(op, SchemaOp) or op.domain or not self._is_inside(value):
            return False
        match op.op_type:
            case "Slice":
                return self._slice(op)
            case "Gather":
                first, axis = op.operands[0], op.attribute_values().get("axis", 0)
                return axis == 0 and self._is_outside(first) and self._copy(op, op.operands[1:])
            case "Unsqueeze":
                axes = _elements(self.node, op, 1)
                later = axes is not None and bool((axes > 0).all())
                return later and self._copy(op, op.operands[:1])
            case name if name in BY_ROWS:
                return self._copy(op, op.operands)
            case name if name in OF_TWO:
                ranks = {len(dims(one.type) or ()) for one in op.operands}
                return len(ranks) == 1 and ranks != {0} and self._copy(op, op.operands)
        return False

    def _slice(self, op: SchemaOp) -> bool:
        data, *bounds = op.input_values()[:3]
        axes, steps = (_elements(self.node, op, index) for index in (3, 4))
        given = op.input_values()
        if axes is None or [*axes.reshape(-1)] != [0] or data is None or not self._is_outside(data):
            return False
        if len(given) > 4 and given[4] is not None and (steps is None or steps.item() != 1):
            return False
        for name, bound in zip(("starts", "ends"), bounds, strict=True):
            source = None if bound is None else self._of_iteration(bound)
            if source is None or getattr(self, name) not in (None, source):
                return False
            setattr(self, name, source)
        self.values[op.results[0]] = data
        return True

    def _of_iteration(self, value: SSAValue) -> SSAValue | None:
        """The outer vector `v` if a value is `v[iteration]`."""
        value = _plain(value)
        op = value.owner
        if not isinstance(op, SchemaOp) or op.op_type != "Gather":
            return None
        data, index = op.operands
        is_own = _plain(index) is self.graph.block.args[0]
        one_axis = len(dims(data.type) or ()) == 1
        return data if is_own and one_axis and self._is_outside(data) else None

    def _copy(self, op: OnnxOp, rows: Sequence[SSAValue]) -> bool:
        """Copies a node so that it computes all rows instead of a segment."""
        if not all(map(self._take, rows)):
            return False
        for operand in op.operands:
            owner = operand.owner
            if operand not in self.values and self._is_inside(operand):
                if not _is_literal(owner):
                    return False
                assert isinstance(owner, Operation)
                self._add(owner)
        self._add(op)
        return True

    def _add(self, op: Operation) -> None:
        with ImplicitBuilder(self.block):
            copy = op.clone(self.values)
        self.values.update(zip(op.results, copy.results, strict=True))

    def _is_inside(self, value: SSAValue) -> bool:
        owner = value.owner
        return (owner if isinstance(owner, Block) else owner.parent) is self.graph.block

    def _is_outside(self, value: SSAValue) -> bool:
        return not self._is_inside(value)

    # Lowering

    def lowered(self, count: int) -> SSAValue:
        node, last = self.node, self.reduction.operands[0]
        assert self.starts is not None and self.ends is not None
        wanted = [self.values[last], self.starts, self.ends]
        infos = [ValueInfoAttr.of(value_name(one), one.type) for one in wanted]
        with ImplicitBuilder(self.block):
            Yield(wanted)
        with ImplicitBuilder(Block()):
            graph = Graph("rows", [], infos, Region(self.block))
        rows, *bounds = node.lowering.place(graph, [])
        graph.detach()
        graph.erase()
        assert rows is not None and all(one is not None for one in bounds)
        length, *rest = shape_of(rows)
        starts, ends = (_inside(node, one, length, count) for one in bounds if one is not None)
        flat = SSAValue.get(reshaped(rows, (length, prod(rest))))
        combine = COMBINES[self.reduction.op_type]
        made: Operand = gc.ReduceSegmentsOp(flat, starts, ends, combine=combine)
        if self.reduction.op_type == "ReduceMean":
            sizes = gc.MaxOp(gc.SubOp(ends, starts), i64_scalar(node, 0))
            made = gc.DivOp(made, gc.ReshapeOp(cast(sizes, dtype_of(made)), shape=(count, 1)))
        return SSAValue.get(reshaped(SSAValue.get(made), (count, *rest)))


def _inside(node: Node, bounds: SSAValue, length: int, count: int) -> Operand:
    """Bounds of slices clamped to [0, length]; negative ones count from the end."""
    each = cast(sliced(bounds, {0: (0, count, 1)}), I64)
    negative = gc.CompareOp(each, i64_scalar(node, 0), predicate="lt")
    place = gc.WhereOp(negative, gc.AddOp(each, i64_scalar(node, length)), each)
    return gc.MinOp(gc.MaxOp(place, i64_scalar(node, 0)), i64_scalar(node, length))


def _plain(value: SSAValue) -> SSAValue:
    """Looks through checks, casts and reshapes of one element."""
    while isinstance(op := value.owner, OnnxOp):
        is_check = isinstance(op, Custom) and op.is_check
        if not is_check and op.op_type not in ("Identity", "Unsqueeze", "Squeeze", "Cast"):
            break
        value = op.operands[0]
    return value


def _is_literal(op: object) -> bool:
    return isinstance(op, Initializer) or (isinstance(op, OnnxOp) and op.op_type == "Constant")


def _elements(node: Node, op: OnnxOp, index: int) -> Array | None:
    """The elements of an input, if it is a literal."""
    given = op.input_values()
    value = given[index] if index < len(given) else None
    return None if value is None else _array(node, value)


def _array(node: Node, value: SSAValue) -> Array | None:
    owner = value.owner
    if isinstance(owner, Initializer):
        return owner.array(node.lowering.weights)
    if isinstance(owner, OnnxOp) and owner.op_type == "Constant":
        found = owner.attribute_values(node.lowering.weights).get("value")
        return found if isinstance(found, np.ndarray) else None
    return None


def _known(node: Node, value: SSAValue) -> object:
    array = _array(node, value)
    return None if array is None or array.size != 1 else array.item()
