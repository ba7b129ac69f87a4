"""The operations that become kernels, and the functions of kernels in a module."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

from xdsl.dialects import func, vector
from xdsl.dialects.builtin import (
    FunctionType,
    IndexType,
    MemRefType,
    ModuleOp,
    StringAttr,
    VectorType,
)
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from popgraph.dialects import element_types, tile
from popgraph.dialects.program import PrepareOp
from popgraph.dialects.tile import MESSAGES
from popgraph.dialects.tile.loops.known import set_portable
from popgraph.dialects.unchecked import create_unchecked
from popgraph.passes.structured.analysis.inplace_concat import Joins
from popgraph.support.tuning import Target

NAMED_OPERATIONS = 3
"""The number of operations in the name of a kernel."""

NAMED = (vector.FMAOp, tile.ExpNonpositiveOp, *MESSAGES)
"""The operations that the name of a kernel may contain, beside arithmetic and functions."""

STRUCTURED = {
    *(tile.MapOp, tile.ReduceOp, tile.PackOp),
    *(tile.FusedOp, tile.ScatterOp, tile.TopKOp, tile.AssembleOp),
    *(tile.PositionsOp, tile.CompressOp, tile.SuppressOp, tile.OrderOp, tile.SegmentsOp),
    *(tile.TransformTilesOp, tile.StartExchangeOp, tile.FinishExchangeOp),
}
"""The operations that have emitters (`emitters.py`)."""


def kernels_of(module: Operation) -> list[Operation]:
    """The operations that become kernels, in order."""
    # A concatenation in place needs no kernel: plan-memory puts its pieces into the result.
    joins = Joins()
    return [
        op
        for op in module.walk()
        if type(op) in STRUCTURED
        and outermost(op) is op
        and not (isinstance(op, tile.AssembleOp) and op in joins)
    ]


def outermost(op: Operation) -> Operation:
    """The fused operation around an operation, whose kernel computes it; or the operation."""
    around = op.parent_op()
    return around if isinstance(around, tile.FusedOp) else op


def runs_once(op: Operation) -> bool:
    """Whether an operation runs when the program is loaded, not in each call."""
    return isinstance(op.parent_op(), PrepareOp)


class Functions:
    """The new functions of a module, with unused names."""

    def __init__(self, module: ModuleOp, target: Target) -> None:
        self._portable = target.portable
        self._block = module.body.block
        self._taken = {op.sym_name.data for op in module.ops if isinstance(op, func.FuncOp)}
        self._made: list[func.FuncOp] = []

    def add(self, title: str, body: Block, op: Operation) -> func.FuncOp:
        """Adds a function with the body of an operation's kernel."""
        body.add_op(create_unchecked(func.ReturnOp))
        types = [argument.type for argument in body.args]
        return self._add(title, types, Region(body), op)

    def declare(self, title: str, types: Sequence[Attribute], op: Operation) -> func.FuncOp:
        """Adds a function without a body: its kernel is known."""
        return self._add(title, types, Region(), op)

    def _add(
        self, title: str, types: Sequence[Attribute], body: Region, op: Operation
    ) -> func.FuncOp:
        name = _unused(title, self._taken)
        function = create_unchecked(
            func.FuncOp,
            regions=(body,),
            sym_name=StringAttr(name),
            function_type=FunctionType.from_lists(types, []),
            sym_visibility=StringAttr("private"),
        )
        function.location = op.location
        if self._portable:
            set_portable(function)
        self._made.append(function)
        return function

    def insert(self) -> None:
        """Inserts the new functions before everything else."""
        first = self._block.first_op
        if first is None:
            self._block.add_ops(self._made)
        else:
            self._block.insert_ops_before(self._made, first)


def describe(body: Block) -> str:
    """A title like `mulf_addf_8x4_f32`: the first operations and the last result's memory."""
    words: dict[str, None] = {}
    for op in _operations(body):
        word = _word(type(op))
        if word and word not in words and (not op.results or _is_data(op.results[0])):
            words[word] = None
            if len(words) == NAMED_OPERATIONS:
                break
    last = body.args[-1].type
    assert isinstance(last, MemRefType)
    shape = "x".join(map(str, last.get_shape())) or "scalar"
    stated = list(words) or ["move"]
    return "_".join([*stated, shape, element_types.from_ir(last.element_type).name])


def _operations(block: Block) -> Iterator[Operation]:
    """All operations in program order; `walk` resumes a generator per enclosing loop for each."""
    waiting = [block.first_op]
    while waiting:
        op = waiting.pop()
        while op is not None:
            yield op
            first = [inner.first_op for region in op.regions for inner in region.blocks]
            op = op.next_op
            if first:
                waiting += [op, *reversed(first)]
                op = None


@cache
def _word(kind: type[Operation]) -> str:
    """The word for operations of a class in a kernel's name; empty if there is none."""
    dialect, _, word = kind.name.partition(".")
    computes = dialect in ("arith", "math") and word != "constant"
    return word if computes or issubclass(kind, NAMED) else ""


def _is_data(value: SSAValue) -> bool:
    type_ = value.type.element_type if isinstance(value.type, VectorType) else value.type
    return not isinstance(type_, IndexType)


def _unused(wanted: str, taken: set[str]) -> str:
    number = 0
    while f"{wanted}_{number}" in taken:
        number += 1
    taken.add(f"{wanted}_{number}")
    return f"{wanted}_{number}"
