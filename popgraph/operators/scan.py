"""Scan: a loop over the rows of tensors, from either end, along any axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.ir import Block, Region, SSAValue

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand, dtype_of, shape_of
from popgraph.dialects.graphcore.control import yield_of
from popgraph.dialects.onnx import Graph
from popgraph.dialects.program import YieldOp
from popgraph.dialects.program.control_signatures import NUMBER, row_type
from popgraph.operators.bodies import check_outputs, close, discard, given_tensor
from popgraph.operators.movement import I64, sliced
from popgraph.operators.node import Node
from popgraph.operators.record import Lowered, lowers
from popgraph.operators.repetition import Iteration, LoopControl, Repetition
from popgraph.support.errors import TypeMismatchError


@lowers("Scan")
def scan(node: Node) -> Lowered:
    """
    A loop over the rows of the scanned inputs, which carries the states.

    Scanned axes are moved to the front. If all inputs are reversed, the loop runs backwards;
    otherwise single inputs and outputs are reversed by slices.
    """
    if node.version < 9:
        return _scan_of_batch(node)
    made = _Scan(node, node.graph("body"), node.inputs)
    axes = made.listed("scan_input_axes", made.count)
    front = [
        _to_front(value, node.axis(axis, len(shape_of(value))))
        for value, axis in zip(made.scanned, axes, strict=True)
    ]
    ways = made.listed("scan_input_directions", made.count)
    reverse = all(ways)
    rows = [_reversed(one, way != reverse) for one, way in zip(front, ways, strict=True)]
    finals, stacked = made.results(
        made.states, rows, LoopControl(made.trips(rows), reverse=reverse)
    )
    results = dict(zip(made.wanted, stacked, strict=True))
    for index, value in results.items():
        way = made.listed("scan_output_directions", made.row_count)[index]
        directed = _reversed(value, way != reverse)
        axis = made.listed("scan_output_axes", made.row_count)[index]
        results[index] = _from_front(directed, node.axis(axis, len(shape_of(value))))
    return [*finals, *(results.get(index) for index in range(made.row_count))]


@dataclass(frozen=True)
class _Scan:
    """A Scan and its body."""

    node: Node
    graph: Graph
    inputs: Sequence[SSAValue]

    def __post_init__(self) -> None:
        if not 0 < self.count <= len(self.inputs):
            raise TypeMismatchError(
                f"num_scan_inputs of Scan is {self.count}, which is not from 1 to its "
                f"{len(self.inputs)} inputs"
            )
        if len(self.graph.block.args) != len(self.inputs) or self.row_count < 0:
            raise TypeMismatchError(
                f"the body of a Scan with {len(self.inputs)} inputs, {len(self.states)} of them "
                f"states, must have {len(self.inputs)} inputs and at least {len(self.states)} "
                f"outputs, not {len(self.graph.block.args)} and {len(self.graph.yielded)}"
            )
        check_outputs(self.node, self.graph, len(self.graph.yielded))

    @property
    def count(self) -> int:
        """The number of scanned inputs."""
        return self.node.integer("num_scan_inputs")

    @property
    def states(self) -> Sequence[SSAValue]:
        return self.inputs[: -self.count]

    @property
    def scanned(self) -> Sequence[SSAValue]:
        return self.inputs[-self.count :]

    @property
    def row_count(self) -> int:
        return len(self.graph.yielded) - len(self.states)

    @property
    def wanted(self) -> list[int]:
        """The scan outputs that the node has, by index."""
        start = len(self.states)
        return [index for index in range(self.row_count) if self.node.wants(start + index)]

    def listed(self, name: str, count: int) -> Sequence[int]:
        """An attribute with one element for each of `count` tensors; zeros if it is absent."""
        found = self.node.integers(name) or (0,) * count
        if len(found) != count:
            raise TypeMismatchError(f"{name} of Scan has {len(found)} elements for {count} tensors")
        if "directions" in name and not set(found) <= {0, 1}:
            raise TypeMismatchError(f"{name} of Scan must be 0 or 1, not {list(found)}")
        return found

    def trips(self, rows: Sequence[SSAValue]) -> int:
        """The number of rows, which must be equal for all tensors."""
        sizes = {shape_of(value)[0] for value in rows}
        if len(sizes) != 1:
            raise TypeMismatchError(
                f"scanned tensors must have equal lengths, not {sorted(sizes)}",
                hint="give all scanned inputs one size along their scanned axes",
            )
        return sizes.pop()

    def results(
        self, states: Sequence[SSAValue], rows: Sequence[SSAValue], control: LoopControl
    ) -> tuple[Sequence[SSAValue], Sequence[SSAValue]]:
        start = len(states)
        names = [self.node.op.output_names[start + index] for index in self.wanted]
        inner = self.graph.input_names[:start]
        return Repetition(self.node, self.body, states, rows, inner, names).results(control)

    def body(
        self, number: SSAValue, carried: Sequence[SSAValue], rows: Sequence[SSAValue]
    ) -> Iteration:
        made = self.node.lowering.place(self.graph, [*carried, *rows])
        start = len(carried)
        return Iteration(
            None,
            [given_tensor(self.node, self.graph, made, index) for index in range(start)],
            [given_tensor(self.node, self.graph, made, start + index) for index in self.wanted],
        )


def _to_front(value: SSAValue, axis: int) -> SSAValue:
    rest = [other for other in range(len(shape_of(value))) if other != axis]
    return value if axis == 0 else gc.TransposeOp(value, perm=[axis, *rest]).result


def _from_front(value: SSAValue, axis: int) -> SSAValue:
    rest = list(range(1, len(shape_of(value))))
    perm = [*rest[:axis], 0, *rest[axis:]]
    return value if axis == 0 else gc.TransposeOp(value, perm=perm).result


def _reversed(value: SSAValue, is_reversed: bool) -> SSAValue:
    """The rows, in the opposite order if `is_reversed`."""
    size = shape_of(value)[0]
    if not is_reversed or size < 2:
        return value
    return SSAValue.get(sliced(value, {0: (size - 1, size, -1)}))


def _scan_of_batch(node: Node) -> Lowered:
    """
    Scan-8, which runs for each entry of a batch, each with a length of its own.

    Rows after the end of an entry are zero.
    """
    inputs = [node[index] for index in range(1, len(node))]
    made = _Scan(node, node.graph("body"), inputs)
    lengths = node.optional(0)
    sources = [*inputs, *([] if lengths is None else [gc.CastOp(lengths, to=I64).result])]
    batch = made.trips(sources)
    block = Block(arg_types=[NUMBER, *map(row_type, sources)])
    number, *rows = block.args
    with node.lowering.writing(block, number) as moved:
        length = None if lengths is None else rows.pop()
        finals, stacked = _scan_of_entry(made, rows, length)
        YieldOp([*finals, *stacked])
        if moved:
            raise node.unsupported(
                "updating weights in the body", "convert the model to opset 9 or later"
            )
    results = iter(_stacked(node, batch, block, sources))
    finals = [next(results) for _ in finals]
    wanted = dict(zip(made.wanted, results, strict=True))
    return [*finals, *(wanted.get(index) for index in range(made.row_count))]


def _stacked(
    node: Node, trips: int, block: Block, scanned: Sequence[SSAValue]
) -> Sequence[SSAValue]:
    """The stacked results of a body without states, over all rows of some tensors."""
    if trips:
        captured = close([block])
        return gc.LoopOp(trips, Region(block), scanned=scanned, captured=captured).stacked
    rows = yield_of(block).values
    nothing = [np.zeros((0, *shape_of(row)), dtype_of(row).numpy) for row in rows]
    discard(block)
    return [node.literal(array) for array in nothing]


def _scan_of_entry(
    made: _Scan, inputs: Sequence[SSAValue], length: SSAValue | None
) -> tuple[Sequence[SSAValue], Sequence[SSAValue]]:
    """The Scan of one entry of a batch; reversed inputs start at the entry's own end."""
    start = len(made.states)
    trips = made.trips(inputs[start:])
    rows = [
        _backwards(made.node, value, length) if way else value
        for value, way in zip(inputs[start:], made.listed("directions", made.count), strict=True)
    ]
    return made.results(inputs[:start], rows, LoopControl(trips, length))


def _backwards(node: Node, value: SSAValue, length: SSAValue | None) -> SSAValue:
    """The first `length` rows, reversed; rows after them are arbitrary."""
    if length is None:
        return _reversed(value, True)
    last = gc.SubOp(length, node.literal(np.array(1)))
    places: Operand = gc.SubOp(last, gc.IotaOp(shape=shape_of(value)[:1], axis=0, dtype=I64))
    places = gc.MaxOp(places, node.literal(np.array(0)))
    return gc.GatherOp(value, places, axis=0).result
