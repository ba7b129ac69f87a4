"""Control flow: a branch and a loop, operations whose bodies are blocks of operations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import numpy as np
from xdsl.dialects.builtin import FunctionType, IntegerAttr, TensorType, UnitAttr, i1, i64
from xdsl.ir import Attribute, Block, BlockArgument, Operation, Region, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    AttrSizedResultSegments,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import IsolatedFromAbove, Pure
from xdsl.utils.exceptions import VerifyException

from popgraph.dialects import element_types
from popgraph.dialects.graphcore.base import (
    Array,
    GraphcoreOp,
    Operand,
    Tensor,
    integer,
    shape_of,
    tensor_of,
)
from popgraph.dialects.program.attributes import DataAttr
from popgraph.dialects.program.interned import tensor_type
from popgraph.dialects.program.ops import ConstantOp, YieldOp

RunBlock: TypeAlias = Callable[[Block, Sequence[Array]], Sequence[Array]]
"""From a body and the arrays of its arguments to the arrays that it yields."""

UNBOUNDED = 2**63 - 1
"""The trips of a loop that only its condition, or a limit known at run time, ends."""

TRUTH = tensor_type(i1, ())
"""The type of conditions."""

NUMBER = tensor_type(i64, ())
"""The type of the number of a turn, and of limits."""


def yield_of(block: Block) -> YieldOp:
    """The end of a body."""
    last = block.last_op
    assert isinstance(last, YieldOp), "a body ends with pg.yield"
    return last


def run_pure(block: Block, arrays: Sequence[Array]) -> Sequence[Array]:
    """Runs a body whose constants stand in its text."""
    values = dict(zip(block.args, arrays, strict=True))
    for op in block.ops:
        if isinstance(op, YieldOp):
            continue
        if isinstance(op, ConstantOp):
            assert isinstance(op.literal, DataAttr), "large constants need their store"
            results: Sequence[Array] = [op.literal.array()]
        else:
            assert isinstance(op, GraphcoreOp), f"{op.name} has no meaning in a body"
            results = op.evaluate(*(values[operand] for operand in op.operands))
        values.update(zip(op.results, results, strict=True))
    return [values[value] for value in yield_of(block).values]


class Control(GraphcoreOp):
    """
    Kind: what runs bodies. A body sees nothing but its arguments and its own constants.

    Its gradient is made by `autodiff`, which alone can differentiate a block.
    """

    traits = traits_def(Pure(), IsolatedFromAbove())

    @classmethod
    def is_differentiable(cls) -> bool:
        return True

    def bodies(self) -> Iterator[Block]:
        """The blocks that it runs."""
        return (region.block for region in self.regions)

    def evaluate(self, *arrays: Array) -> tuple[Array, ...]:
        return self.execute(run_pure, *arrays)

    def execute(self, run: RunBlock, *arrays: Array) -> tuple[Array, ...]:
        """The meaning, given how a body is run."""
        raise AssertionError(f"{self.name} has no meaning")

    def check_body(self, block: Block, arguments: Sequence[Attribute]) -> None:
        """VerifyException unless a body takes these types, and ends as bodies do."""
        if not isinstance(block.last_op, YieldOp):
            raise VerifyException(f"a body of {self.title} ends with pg.yield")
        given = [argument.type for argument in block.args]
        if given != list(arguments):
            raise VerifyException(
                f"the body of {self.title} takes {_listed(given)}, not {_listed(arguments)}"
            )

    def check_yield(self, block: Block, wanted: Sequence[Attribute]) -> None:
        """VerifyException unless a body yields these types."""
        given = [value.type for value in yield_of(block).values]
        if given != list(wanted):
            raise VerifyException(
                f"the body of {self.title} yields {_listed(given)}, not {_listed(wanted)}"
            )


def _listed(types: Sequence[Attribute]) -> str:
    return f"({', '.join(map(str, types))})"


@irdl_op_definition
class CondOp(Control):
    """What one of two bodies yields, `then_body` if the predicate holds. ONNX If."""

    name = "graphcore.cond"
    predicate = operand_def(TensorType)
    captured = var_operand_def(TensorType)
    then_body = region_def("single_block")
    else_body = region_def("single_block")
    outputs = var_result_def(TensorType)

    def __init__(
        self, predicate: Operand, captured: Sequence[Operand], then: Region, otherwise: Region
    ) -> None:
        types = [value.type for value in yield_of(then.block).values]
        Operation.__init__(
            self,
            operands=[SSAValue.get(predicate), *map(SSAValue.get, captured)],
            result_types=types,
            regions=[then, otherwise],
        )

    def infer(self) -> tuple[Tensor, ...]:
        return tuple(tensor_of(value) for value in yield_of(self.then_body.block).values)

    def execute(self, run: RunBlock, *arrays: Array) -> tuple[Array, ...]:
        predicate, *captured = arrays
        body = self.then_body if predicate else self.else_body
        return tuple(run(body.block, captured))

    def verify_(self) -> None:
        if self.predicate.type != TRUTH:
            raise VerifyException(f"the predicate of cond is {TRUTH}, not {self.predicate.type}")
        for block in self.bodies():
            self.check_body(block, [value.type for value in self.captured])
        self.check_yield(self.else_body.block, self.infer())
        super().verify_()

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_operand(self.predicate)
        _print_group(printer, "captured", self.captured)
        _print_end(printer, self)
        printer.print_string(" else ")
        printer.print_region(self.else_body)

    @classmethod
    def parse(cls, parser: Parser) -> CondOp:
        predicate = parser.parse_unresolved_operand()
        groups = [[predicate], _parse_group(parser, "captured")]
        operands, results, attributes = _parse_types(parser, groups)
        then = parser.parse_region()
        parser.parse_keyword("else")
        made = cls.create(
            operands=operands, result_types=results, regions=[then, parser.parse_region()]
        )
        made.attributes |= attributes
        return made


@irdl_op_definition
class LoopOp(Control):
    """
    Runs its body for the turns 0 to `trips`, or, if `reverse`, in the opposite order.

    The body takes the number of the turn, the carried values, row `turn` of each of `scanned`, and
    `captured` as they are. It yields the carried values of the next turn and rows of the stacked
    results. With `limit` there are no more turns than that; with `go`, whose next value the body
    yields first, none from the turn on before which it is false: rows of these turns are zero.
    ONNX Loop and Scan.
    """

    name = "graphcore.loop"
    trips = prop_def(IntegerAttr)
    reverse = opt_prop_def(UnitAttr)
    go = opt_operand_def(TensorType)
    limit = opt_operand_def(TensorType)
    carried = var_operand_def(TensorType)
    scanned = var_operand_def(TensorType)
    captured = var_operand_def(TensorType)
    body = region_def("single_block")
    finals = var_result_def(TensorType)
    stacked = var_result_def(TensorType)
    irdl_options = (
        AttrSizedOperandSegments(as_property=True),
        AttrSizedResultSegments(as_property=True),
    )

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
        kept = len(carried)
        first = int(go is not None)
        rows = yield_of(body.block).values[first + kept :]
        super(GraphcoreOp, self).__init__(
            operands=[go, limit, carried, scanned, captured],
            properties={
                "trips": IntegerAttr(trips, i64),
                "reverse": UnitAttr() if reverse else None,
            },
            result_types=[
                [SSAValue.get(value).type for value in carried],
                [stacked_type(trips, value) for value in rows],
            ],
            regions=[body],
        )

    @property
    def turns(self) -> int:
        """The number of turns; the largest that there may be, if the loop can end before."""
        return integer(self.trips)

    @property
    def block(self) -> Block:
        return self.body.block

    @property
    def ends_early(self) -> bool:
        """Whether something at run time decides how many turns there are."""
        return self.go is not None or self.limit is not None

    @property
    def index(self) -> BlockArgument:
        """The number of the turn."""
        return self.block.args[0]

    def _arguments(self, group: int) -> Sequence[BlockArgument]:
        sizes = [1, len(self.carried), len(self.scanned), len(self.captured)]
        start = sum(sizes[:group])
        return self.block.args[start : start + sizes[group]]

    @property
    def carried_arguments(self) -> Sequence[BlockArgument]:
        return self._arguments(1)

    @property
    def scanned_arguments(self) -> Sequence[BlockArgument]:
        return self._arguments(2)

    @property
    def captured_arguments(self) -> Sequence[BlockArgument]:
        return self._arguments(3)

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

    def infer(self) -> tuple[Tensor, ...]:
        rows = [stacked_type(self.turns, value) for value in self.yielded_rows]
        return (*map(tensor_of, self.carried), *rows)

    def execute(self, run: RunBlock, *arrays: Array) -> tuple[Array, ...]:
        given = iter(arrays)
        go = self.go is None or bool(next(given))
        turns = self.turns if self.limit is None else min(self.turns, int(next(given)))
        carried = [next(given) for _ in self.carried]
        scanned = [next(given) for _ in self.scanned]
        captured = list(given)
        stacked = [
            np.zeros(tensor_of(value).get_shape(), row_type)
            for value, row_type in zip(self.stacked, self._row_dtypes(), strict=True)
        ]
        turn = 0
        while go and turn < turns:
            at = self.turns - 1 - turn if self.reverse else turn
            rows = [array[at] for array in scanned]
            results = list(run(self.block, [np.array(at), *carried, *rows, *captured]))
            go = self.go is None or bool(results.pop(0))
            carried, rows = results[: len(carried)], results[len(carried) :]
            for array, row in zip(stacked, rows, strict=True):
                array[at] = row
            turn += 1
        return (*carried, *stacked)

    def _row_dtypes(self) -> Iterator[np.dtype[np.generic]]:
        from_ir = element_types.from_ir
        return (from_ir(tensor_of(value).element_type).numpy for value in self.stacked)

    def verify_(self) -> None:
        trips = self.turns
        if trips < 0:
            raise VerifyException(f"a loop has at least 0 trips, not {trips}")
        for value, type_ in ((self.go, TRUTH), (self.limit, NUMBER)):
            if value is not None and value.type != type_:
                raise VerifyException(f"a loop is steered by {type_}, not {value.type}")
        if trips == UNBOUNDED and (self.scanned or self.stacked or not self.ends_early):
            raise VerifyException("a loop without rows alone may have any number of turns")
        if self.reverse and self.ends_early:
            raise VerifyException("a loop that something ends early begins with turn 0")
        for value in self.scanned:
            if shape_of(value)[:1] != (trips,):
                raise VerifyException(f"{value.type} has no row for each of {trips} turns")
        carried = [value.type for value in self.carried]
        captured = [value.type for value in self.captured]
        rows = [row_type(value) for value in self.scanned]
        self.check_body(self.block, [NUMBER, *carried, *rows, *captured])
        stacked = [row_type(value) for value in self.stacked]
        self.check_yield(self.block, [*([TRUTH] if self.go else []), *carried, *stacked])
        super().verify_()

    def print(self, printer: Printer) -> None:
        printer.print_string(f" trips {self.turns}" if self.turns != UNBOUNDED else "")
        printer.print_string(" reverse" if self.reverse else "")
        for word, value in (("while", self.go), ("limit", self.limit)):
            if value is not None:
                printer.print_string(f" {word} ")
                printer.print_operand(value)
        for word in _GROUPS:
            _print_group(printer, word, getattr(self, word))
        _print_end(printer, self)

    @classmethod
    def parse(cls, parser: Parser) -> LoopOp:
        trips = parser.parse_integer() if parser.parse_optional_keyword("trips") else UNBOUNDED
        reverse = parser.parse_optional_keyword("reverse") is not None
        single = [
            [parser.parse_unresolved_operand()] if parser.parse_optional_keyword(word) else []
            for word in ("while", "limit")
        ]
        groups = [*single, *(_parse_group(parser, word) for word in _GROUPS)]
        operands, results, attributes = _parse_types(parser, groups)
        body = parser.parse_region()
        given = iter(operands)
        go, limit, carried, scanned, captured = ([next(given) for _ in group] for group in groups)
        if not body.blocks or not isinstance(body.block.last_op, YieldOp):
            parser.raise_error("the body of a loop is a block that ends with pg.yield")
        made = cls(
            trips,
            body,
            carried=carried,
            scanned=scanned,
            captured=captured,
            go=go[0] if go else None,
            limit=limit[0] if limit else None,
            reverse=reverse,
        )
        if list(made.result_types) != results:
            parser.raise_error(f"the loop gives {_listed(made.result_types)}")
        made.attributes |= attributes
        return made


_GROUPS = ("carried", "scanned", "captured")

CONTROL: tuple[type[Control], ...] = (CondOp, LoopOp)
"""The operations with bodies."""


def stacked_type(trips: int, row: SSAValue) -> Tensor:
    """The type of the rows of all turns."""
    type_ = tensor_of(row)
    return tensor_type(type_.element_type, (trips, *type_.get_shape()))


def row_type(stacked: SSAValue) -> Tensor:
    """The type of one row."""
    type_ = tensor_of(stacked)
    return tensor_type(type_.element_type, type_.get_shape()[1:])


def _print_group(printer: Printer, word: str, values: Sequence[SSAValue]) -> None:
    if values:
        printer.print_string(f" {word} (")
        printer.print_list(values, printer.print_operand)
        printer.print_string(")")


def _print_end(printer: Printer, op: Operation) -> None:
    """Attributes, types and the first body."""
    printer.print_op_attributes(op.attributes, print_keyword=True)
    printer.print_string(" : ")
    printer.print_operation_type(op)
    printer.print_string(" ")
    printer.print_region(op.regions[0])


def _parse_group(parser: Parser, word: str) -> list[object]:
    if parser.parse_optional_keyword(word) is None:
        return []
    return parser.parse_comma_separated_list(
        parser.Delimiter.PAREN, parser.parse_unresolved_operand
    )


def _parse_types(
    parser: Parser, groups: Sequence[Sequence[object]]
) -> tuple[list[SSAValue], list[Attribute], dict[str, Attribute]]:
    """The operands of all groups, resolved, the result types, and discardable attributes."""
    place = parser.pos
    attributes = parser.parse_optional_attr_dict_with_keyword()
    parser.parse_punctuation(":")
    type_: FunctionType = parser.parse_function_type()
    flat = [operand for group in groups for operand in group]
    operands = parser.resolve_operands(flat, type_.inputs.data, place)  # type: ignore[arg-type]
    return list(operands), list(type_.outputs.data), dict(attributes.data) if attributes else {}
