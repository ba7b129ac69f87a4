"""Proves a graph of kernel launches: each launch reads only elements that were written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

import numpy as np
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from popgraph.dialects.element_types import element_bytes
from popgraph.dialects.locations import source
from popgraph.dialects.program import GraphOp, PrepareOp, YieldOp
from popgraph.dialects.program.calls import CallCondOp, CallLoopOp
from popgraph.dialects.tile import AssembleOp, LaunchOp, ViewOp
from popgraph.dialects.tile.affine import row_major
from popgraph.dialects.tile.attributes import halo_of, memory_span, physical_shape
from popgraph.passes.validation.contents import pieces_of, size_of, type_of
from popgraph.passes.validation.kernel_accesses import Accesses, Violation, accesses_of
from popgraph.passes.validation.runs import NOTHING, Runs, merged, united
from popgraph.passes.validation.sites import Setting
from popgraph.support.errors import ValidationError
from popgraph.support.sizes import Size, SizedAxis

_HINT = (
    "this is a mistake of PopGraph, please report it; Options(disabled=...) leaves out optional "
    "passes, and POPGRAPH_CHECK=1 shows which one changes the results"
)


def fail(mistake: str, op: Operation, where: str = "") -> NoReturn:
    """Raises the error of a broken promise at an operation."""
    place = source(op.location) or op.name
    raise ValidationError(mistake, f"{place}{', ' if where else ''}{where}", _HINT)


def name_of(value: SSAValue) -> str:
    """The name of a value for messages."""
    if value.name_hint:
        return f"%{value.name_hint}"
    owner = value.owner
    place = source(owner.location) if isinstance(owner, Operation) else ""
    return f"the result of {place}" if place else "a value"


def element_of(value: SSAValue, element: int) -> str:
    """The index of an element of a value's memory: `element [0, 3]`, or its place in a halo."""
    type_ = type_of(value)
    halo = halo_of(type_)
    if halo is None:
        return f"element {element} of the packed memory"
    shape = physical_shape(type_)
    number = element + memory_span(type_)[0]
    index = [
        number // stride % max(size, 1) - low
        for stride, size, low in zip(row_major(shape), shape, halo.low, strict=True)
    ]
    inside = all(0 <= at < size for at, size in zip(index, type_.get_shape(), strict=True))
    return f"element {index}" + ("" if inside else " (in the halo)")


class Kernels:
    """The facts about the kernels of a module, each proven once per setting."""

    def __init__(self, module: ModuleOp) -> None:
        self.functions = {
            op.sym_name.data: op
            for op in module.ops
            if isinstance(op, func.FuncOp) and op.body.blocks
        }
        self.proven: dict[tuple[str, Setting], Accesses] = {}

    def accesses(
        self, name: str, setting: Setting, arguments: Sequence[SSAValue], op: Operation
    ) -> Accesses:
        """The accesses of a kernel; ValidationError, which names a value, if it is wrong."""
        key = name, setting
        if key not in self.proven:
            try:
                self.proven[key] = accesses_of(self.functions[name], setting)
            except Violation as wrong:
                if wrong.argument < 0:
                    what = f"element {wrong.element} of a local array is {wrong.mistake}"
                else:
                    value = arguments[wrong.argument]
                    what = f"{_element(value, wrong.element)} is {wrong.mistake}"
                raise fail(what, op, f"kernel {name}, {_shown(wrong.op)}") from None
        return self.proven[key]


def _element(value: SSAValue, element: int) -> str:
    if not hasattr(value.type, "get_shape") or value.type.name != "tensor":
        return f"element {element} of {name_of(value)}"
    return f"{element_of(value, element)} of {name_of(value)}"


def _shown(op: Operation) -> str:
    return str(op).partition("\n")[0]


@dataclass
class GraphProof:
    """The proof for one graph, for given values of its sizes."""

    graph: GraphOp
    kernels: Kernels
    sizes: Sequence[Size]
    numbers: Mapping[int, int]
    """The value of each size, by its number."""
    called: bool = False
    """Whether it is the body of a branch or a loop."""
    whole: GraphProof | None = None
    """The proof for sizes at their bounds."""
    shared: dict[LaunchOp, frozenset[tuple[int, int]]] = field(default_factory=dict)
    """Operands and results of launches that a plan gives the same memory, noted by its proof."""
    is_monotonic: bool = True
    """Whether no launch accesses elements that it does not access at the bounds of sizes."""
    _written: dict[SSAValue, Runs] = field(default_factory=dict)

    def setting(self, op: LaunchOp) -> Setting:
        """The setting of a launch: the chunks, and arguments that hold sizes."""
        sizes = self.graph.block.args[len(self.graph.block.args) - len(self.sizes) :]
        known: dict[SSAValue, int] = {value: self.numbers[at] for at, value in enumerate(sizes)}
        held = {
            at: known[root]
            for at, operand in enumerate(op.operands)
            if (root := _root(operand)) in known
        }
        shared = self.shared.get(op, frozenset())
        return Setting(op.chunks.value.data, frozenset(held.items()), shared)

    def prove(self) -> None:
        """Raises ValidationError unless every read element was written."""
        for name, value in self.graph.inputs.items():
            axes = [size.inputs for size in self.sizes]
            self._written[value] = self._leading(name, value, axes)
        for op in steps_of(self.graph):
            match op:
                case LaunchOp():
                    self._launch(op)
                case ViewOp():
                    self._view(op)
                case AssembleOp():
                    self._join(op)
                case CallCondOp() | CallLoopOp():
                    for operand in op.operands if self._is_whole else ():
                        self._require(operand, self._all(operand), op)
                case PrepareOp():
                    last = op.body.block.last_op
                    assert isinstance(last, YieldOp)
                    for result, value in zip(op.outputs, last.values, strict=True):
                        if value in self._written:
                            self._written[result] = self._written[value]
        for name, value in self.graph.outputs.items() if self._is_seen else ():
            needed = self._leading(name, value, [size.outputs for size in self.sizes])
            self._require(value, needed, self.graph.return_op, "never written")
        for update in self.graph.updates() if self._is_seen else ():
            self._require(update.value, self._all(update.value), update, "never written")

    def _launch(self, op: LaunchOp) -> None:
        values = [*op.operands, *op.results]
        name = op.callee.string_value()
        found = self.kernels.accesses(name, self.setting(op), values, op)
        if self.whole is not None and self.setting(op).numbers:
            bound = self.kernels.accesses(name, self.whole.setting(op), values, op)
            self.is_monotonic &= found.is_within(bound)
        inputs = len(op.operands)
        for number, elements in found.reads.items():
            if number >= inputs:
                self._fail_unwritten(values[number], elements, op)
            if not self._require(values[number], elements, op):
                found.assumed.add("ends")
        for number, elements in found.may_write.items():
            if number < inputs:
                what = f"{element_of(values[number], elements.first)} of {name_of(values[number])}"
                fail(f"{what}, an operand, is written", op, f"kernel {name}")
        for number, value in enumerate(op.results, inputs):
            self._written[value] = found.writes.get(number, NOTHING)
            possible = found.may_write.get(number, NOTHING)
            if possible - self._written[value]:
                found.assumed.add("writes")
                self._written[value] = possible

    def _view(self, op: ViewOp) -> None:
        if size_of(op.source) != size_of(op.output):
            fail(
                f"a view of {size_of(op.source)} bytes has {size_of(op.output)} bytes: "
                f"{name_of(op.output)}",
                op,
            )
        if op.source in self._written:
            old, new = (element_bytes(value.type) for value in (op.source, op.output))
            bytes_ = self._written[op.source].scaled(old)
            starts, ends = -(-bytes_.starts // new), bytes_.ends // new
            kept = starts < ends
            self._written[op.output] = Runs(starts[kept], ends[kept])

    def _join(self, op: AssembleOp) -> None:
        found = NOTHING
        width = element_bytes(op.output.type)
        for piece, start in pieces_of(op):
            if start is None:
                fail(f"{name_of(piece)} does not lie in {name_of(op.output)}", op)
            own = self.written(piece).shifted(start // width)
            if outside := own - self._all(op.output):
                element = element_of(piece, outside.first - start // width)
                fail(f"{element} of {name_of(piece)} is outside {name_of(op.output)}", op)
            if twice := found & own:
                what = f"{element_of(op.output, twice.first)} of {name_of(op.output)}"
                fail(f"{what} is written twice, by two pieces", op)
            found = united([found, own])
        self._written[op.output] = found

    def written(self, value: SSAValue) -> Runs:
        """The written elements of a value, once the graph is proven."""
        return self._written.get(value, self._all(value))

    def _all(self, value: SSAValue) -> Runs:
        return Runs.of(0, size_of(value) // element_bytes(value.type))

    @property
    def _is_whole(self) -> bool:
        """Whether all sizes are at their bounds, so that every value is whole."""
        return all(size.bound == self.numbers[at] for at, size in enumerate(self.sizes))

    @property
    def _is_seen(self) -> bool:
        """Whether it is known how many elements of outputs the caller sees."""
        return self._is_whole or not self.called

    def _leading(self, name: str, value: SSAValue, axes: Sequence[Sequence[SizedAxis]]) -> Runs:
        """The elements of an input or output that the caller sees; `axes` are those of sizes."""
        whole = type_of(value).get_shape()
        shape = list(whole)
        for at, held in enumerate(axes):
            for one in held:
                if one.tensor == name:
                    shape[one.axis] = one.factor * self.numbers[at]
        if shape == list(whole):
            return self._all(value)
        found = Runs.of(0, 1)
        for extent, stride in reversed(list(zip(shape, row_major(whole), strict=True))):
            found = found.repeated(stride, extent)
        return found

    def _require(
        self,
        value: SSAValue,
        elements: Runs,
        op: Operation,
        mistake: str = "read before anything is written",
    ) -> bool:
        """
        Whether all elements of a value were written.

        Reads past the end of a size are not an error: kernels compute blocks of rows, and results
        of rows past the end are not written. ValidationError for other elements.
        """
        missing = elements - self.written(value)
        if not missing:
            return True
        if not self._is_whole and isinstance(op, LaunchOp):
            missing = self._before_end(value, missing)
        if missing:
            self._fail_unwritten(value, missing, op, mistake)
        return False

    def _before_end(self, value: SSAValue, elements: Runs) -> Runs:
        """The elements that are not past the end of a size along an axis that has one."""
        type_ = type_of(value)
        halo = halo_of(type_)
        if halo is None:
            return elements
        shape, listed = physical_shape(type_), elements.elements()
        past = np.zeros(len(listed), np.bool_)
        axes = zip(row_major(shape), shape, halo.low, type_.get_shape(), strict=True)
        for stride, size, low, extent in axes:
            index = (listed + memory_span(type_)[0]) // stride % size - low
            for at, one in enumerate(self.sizes):
                if extent % one.bound == 0:
                    past |= index >= extent // one.bound * self.numbers[at]
        return merged(listed[~past], listed[~past] + 1)

    def _fail_unwritten(
        self,
        value: SSAValue,
        missing: Runs,
        op: Operation,
        mistake: str = "read before anything is written",
    ) -> NoReturn:
        more = f", and {missing.count - 1} more" if missing.count > 1 else ""
        kernel = f"kernel {op.callee.string_value()}" if isinstance(op, LaunchOp) else ""
        verb = "are" if more else "is"
        if not kernel:  # An output: the operation that computes it is to blame.
            maker = _root(value).owner
            op = maker if isinstance(maker, Operation) else op
        fail(
            f"{element_of(value, missing.first)}{more} of {name_of(value)} {verb} {mistake}",
            op,
            kernel,
        )


def steps_of(graph: GraphOp) -> Iterator[Operation]:
    """The operations of a graph in order; those of a `pg.prepare` come before it."""
    for op in graph.block.ops:
        if isinstance(op, PrepareOp):
            yield from op.body.block.ops
        yield op


def _root(value: SSAValue) -> SSAValue:
    while isinstance(value.owner, ViewOp):
        value = value.owner.source
    return value
