"""Control flow: a branch and a loop, whose bodies are blocks of operations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeAlias

from xdsl.dialects.builtin import DenseArrayBase, IntegerType, i32
from xdsl.ir import (
    Attribute,
    Block,
    BlockArgument,
    Operation,
    OpResult,
    Region,
    SSAValue,
    SSAValues,
)
from xdsl.irdl import (
    AttrSizedOperandSegments,
    AttrSizedResultSegments,
    irdl_op_definition,
    region_def,
    traits_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import IsolatedFromAbove, Pure
from xdsl.utils.exceptions import VerifyException

from popgraph.dialects.graphcore.base import Array, GraphcoreOp, Operand, Tensor, tensor_of
from popgraph.dialects.graphcore.lookup import CheckIndicesOp
from popgraph.dialects.program.control_signatures import (
    UNBOUNDED,
    Body,
    Branching,
    Looping,
    listed,
    loop_properties,
    loop_results,
    stacked_type,
)
from popgraph.dialects.program.control_text import (
    parse_branch,
    parse_loop,
    print_branch,
    print_loop,
)
from popgraph.dialects.program.ops import ConstantOp, UpdateOp, VariableOp, YieldOp
from popgraph.dialects.program.weights import WeightStore

__all__ = ["CONTROL", "UNBOUNDED", "CondOp", "Control", "LoopOp", "yield_of"]

RunBlock: TypeAlias = Callable[[Block, Sequence[Array]], Sequence[Array]]
"""Runs a body: maps its block and the arrays of its arguments to the arrays that it yields."""


def yield_of(block: Block) -> YieldOp:
    """The terminator of a body."""
    last = block.last_op
    assert isinstance(last, YieldOp), "a body ends with pg.yield"
    return last


def values_of(
    block: Block, arrays: Sequence[Array], weights: WeightStore | None = None
) -> dict[SSAValue, Array]:
    """
    Evaluates a block: all of its values for these arguments.

    `weights` holds constants that are not in the IR text. Variables have their initial values, and
    updates are ignored. Raises the error of an index check that fails.
    """
    store = weights or WeightStore()
    values: dict[SSAValue, Array] = dict(zip(block.args, arrays, strict=True))
    for op in block.ops:
        operands = [values[operand] for operand in op.operands]
        results: Sequence[Array]
        match op:
            case YieldOp() | UpdateOp():
                continue
            case ConstantOp() | VariableOp():
                results = [store.array(op.literal)]
            case Control():
                results = op.execute(partial(_run_body, store), *operands)
            case _:
                assert isinstance(op, GraphcoreOp), f"{op.name} has no meaning in a body"
                if isinstance(op, CheckIndicesOp) and (error := op.error(*operands)):
                    raise error
                results = op.evaluate(*operands)
        values.update(zip(op.results, results, strict=True))
    return values


def _run_body(weights: WeightStore, block: Block, arrays: Sequence[Array]) -> Sequence[Array]:
    values = values_of(block, arrays, weights)
    return [values[value] for value in yield_of(block).values]


class Control(GraphcoreOp):
    """
    Kind: runs bodies, which see only their arguments and their own constants.

    The `autodiff` pass builds its gradient, since that requires differentiating blocks.
    """

    traits = traits_def(Pure(), IsolatedFromAbove())

    @classmethod
    def is_differentiable(cls) -> bool:
        return True

    def bodies(self) -> Iterator[Block]:
        """The blocks that the operation runs."""
        return (region.block for region in self.regions)

    def evaluate(self, *arrays: Array) -> tuple[Array, ...]:
        return self.execute(partial(_run_body, WeightStore()), *arrays)

    def execute(self, run: RunBlock, *arrays: Array) -> tuple[Array, ...]:
        """The meaning, given a function that runs a block."""
        raise AssertionError(f"{self.name} has no meaning")

    def check_bodies(self, arguments: Sequence[object], yielded: Sequence[object]) -> None:
        """Raises VerifyException unless the bodies take and yield these types."""
        for block in self.bodies():
            if not isinstance(block.last_op, YieldOp):
                raise VerifyException(f"a body of {self.title} must end with pg.yield")
            taken = [argument.type for argument in block.args]
            given = [value.type for value in yield_of(block).values]
            for word, types, wanted in (("takes", taken, arguments), ("yields", given, yielded)):
                if types != wanted:
                    raise VerifyException(
                        f"a body of {self.title} {word} {listed(types)}, not {listed(wanted)}"  # type: ignore[arg-type]
                    )


@irdl_op_definition
class CondOp(Branching, Control):
    """Runs the first body if the predicate is true, else the second. ONNX If."""

    name = "graphcore.cond"
    then_body = region_def("single_block")
    else_body = region_def("single_block")

    def __init__(
        self, predicate: Operand, captured: Sequence[Operand], then: Region, otherwise: Region
    ) -> None:
        types = [value.type for value in yield_of(then.block).values]
        super(GraphcoreOp, self).__init__(
            operands=[predicate, captured], result_types=[types], regions=[then, otherwise]
        )

    def infer(self) -> tuple[Tensor, ...]:
        return tuple(tensor_of(value) for value in yield_of(self.then_body.block).values)

    def execute(self, run: RunBlock, *arrays: Array) -> tuple[Array, ...]:
        then, otherwise = (_running(run, block) for block in self.bodies())
        return self.branch(then, otherwise, *arrays)

    def verify_(self) -> None:
        self.check_predicate()
        self.check_bodies(self.argument_types, self.yielded_types)
        super().verify_()

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        print_branch(printer, self)
        printer.print_string(" ")
        printer.print_region(self.then_body)
        printer.print_string(" else ")
        printer.print_region(self.else_body)

    @classmethod
    def parse(cls, parser: Parser) -> CondOp:
        (predicate, *captured), types, attributes = parse_branch(parser)
        then = _parse_body(parser)
        parser.parse_keyword("else")
        made = cls(predicate, captured, then, _parse_body(parser))
        _check_parsed(parser, made, types)
        made.attributes |= attributes
        return made


@irdl_op_definition
class LoopOp(Looping, Control):
    """Runs a body repeatedly; `Looping` defines the iterations. ONNX Loop and Scan."""

    name = "graphcore.loop"
    body = region_def("single_block")

    def __init__(
        self,
        trips: int,
        body: Region,
        *,
        carried: Sequence[Operand] = (),
        scanned: Sequence[Operand] = (),
        captured: Sequence[Operand] = (),
        go: Operand | None = None,
        limit: Operand | None = None,
        reverse: bool = False,
    ) -> None:
        first = (go is not None) + len(carried)
        rows = [value.type for value in yield_of(body.block).values[first:]]
        super(GraphcoreOp, self).__init__(
            operands=[go, limit, carried, scanned, captured],
            properties=loop_properties(trips, reverse),
            result_types=loop_results(carried, trips, rows),
            regions=[body],
        )

    @property
    def block(self) -> Block:
        return self.body.block

    @property
    def index(self) -> BlockArgument:
        """The iteration number."""
        return self.block.args[0]

    @property
    def carried_arguments(self) -> Sequence[BlockArgument]:
        return self._arguments(0)

    @property
    def scanned_arguments(self) -> Sequence[BlockArgument]:
        return self._arguments(1)

    @property
    def captured_arguments(self) -> Sequence[BlockArgument]:
        return self._arguments(2)

    def _arguments(self, group: int) -> Sequence[BlockArgument]:
        sizes = [len(self.carried), len(self.scanned), len(self.captured)]
        start = 1 + sum(sizes[:group])
        return self.block.args[start : start + sizes[group]]

    @property
    def yielded_go(self) -> SSAValue | None:
        return None if self.go is None else yield_of(self.block).values[0]

    @property
    def yielded_carried(self) -> Sequence[SSAValue]:
        first = int(self.go is not None)
        return yield_of(self.block).values[first : first + len(self.carried)]

    @property
    def yielded_rows(self) -> Sequence[SSAValue]:
        return yield_of(self.block).values[int(self.go is not None) + len(self.carried) :]

    def stack(self, value: SSAValue) -> SSAValue:
        """The stacked rows of a value of the body: an existing result, or a new one."""
        for known, stacked in zip(self.yielded_rows, self.stacked, strict=True):
            if known is value:
                return stacked
        end = yield_of(self.block)
        end.operands = [*end.operands, value]
        sizes = [len(self.finals), len(self.stacked) + 1]
        return self._add_result(len(self.results), stacked_type(self.turns, value.type), sizes)

    def carry(self, first: SSAValue, following: SSAValue) -> SSAValue:
        """Adds a carried value, `following` after each iteration; returns its final value."""
        kept, end = len(self.carried), yield_of(self.block)
        place = int(self.go is not None) + kept
        end.operands = [*end.operands[:place], following, *end.operands[place:]]
        self.block.insert_arg(first.type, 1 + kept)
        go, limit, carried, scanned, captured = self.split(self.operands)
        groups = [go, limit, [*carried, first], scanned, captured]
        self.operands = [value for group in groups for value in group]
        self.properties[AttrSizedOperandSegments.attribute_name] = _sizes(map(len, groups))
        return self._add_result(kept, first.type, [kept + 1, len(self.stacked)])

    def _add_result(self, place: int, type_: Attribute, sizes: Sequence[int]) -> SSAValue:
        """Adds a result; the existing results stay the same SSA values."""
        made: OpResult = OpResult(type_, self, place)
        # xDSL cannot add results, and autodiff holds the values of this operation.
        self.results = SSAValues([*self.results[:place], made, *self.results[place:]])
        for at, result in enumerate(self.results):
            result.index = at
        self.properties[AttrSizedResultSegments.attribute_name] = _sizes(sizes)
        return made

    def infer(self) -> tuple[Tensor, ...]:
        rows = [stacked_type(self.turns, value.type) for value in self.yielded_rows]
        return (*map(tensor_of, self.carried), *rows)

    def execute(self, run: RunBlock, *arrays: Array) -> tuple[Array, ...]:
        return self.repeat(_running(run, self.block), *arrays)

    def verify_(self) -> None:
        self.check_loop()
        self.check_bodies(self.argument_types, self.yielded_types)
        super().verify_()

    def print(self, printer: Printer) -> None:
        print_loop(printer, self)
        printer.print_string(" ")
        printer.print_region(self.body)

    @classmethod
    def parse(cls, parser: Parser) -> LoopOp:
        arguments, types, attributes = parse_loop(parser)
        made = cls(body=_parse_body(parser), **arguments)
        _check_parsed(parser, made, types)
        made.attributes |= attributes
        return made


CONTROL: tuple[type[Control], ...] = (CondOp, LoopOp)
"""Operations with bodies."""


def _sizes(counts: Iterable[int]) -> DenseArrayBase[IntegerType]:
    """The number of operands or results in each group."""
    return DenseArrayBase.from_list(i32, list(counts))


def _running(run: RunBlock, block: Block) -> Body:
    return lambda arrays: run(block, arrays)


def _parse_body(parser: Parser) -> Region:
    body = parser.parse_region()
    if len(body.blocks) != 1 or not isinstance(body.block.last_op, YieldOp):
        parser.raise_error("a body must be a single block that ends with pg.yield")
    return body


def _check_parsed(parser: Parser, op: Operation, types: Sequence[object]) -> None:
    given = list(op.result_types)
    if given != list(types):
        parser.raise_error(f"the results of {op.name} have types {listed(given)}")
