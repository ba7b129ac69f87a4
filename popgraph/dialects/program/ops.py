"""Operations of the `pg` dialect: graph, constants, variables, updates, prepare, return."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from xdsl.dialects.builtin import (
    ArrayAttr,
    ModuleOp,
    StringAttr,
    SymbolNameConstraint,
    SymbolRefAttr,
    TensorType,
)
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    base,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import IsTerminator, NoTerminator, Pure, SymbolOpInterface
from xdsl.utils.exceptions import VerifyException

from popgraph.dialects.program.attributes import BlobAttr, BytesAttr, DataAttr
from popgraph.dialects.program.checks import IndexChecksAttr, checks_attribute, checks_of
from popgraph.dialects.program.sizes import check_places, sizes_of
from popgraph.dialects.program.weights import WeightStore
from popgraph.support.arrays import Array
from popgraph.support.index_checks import IndexCheck

Literal: TypeAlias = DataAttr | BlobAttr


def names_attribute(names: Sequence[str]) -> ArrayAttr[BytesAttr]:
    return ArrayAttr([BytesAttr.of(name) for name in names])


@irdl_op_definition
class YieldOp(IRDLOperation):
    """Ends a body with its results."""

    name = "pg.yield"
    values = var_operand_def()
    traits = traits_def(IsTerminator(), Pure())
    assembly_format = "($values^ `:` type($values))? attr-dict"

    def __init__(self, values: Sequence[SSAValue]) -> None:
        super().__init__(operands=[values])


@irdl_op_definition
class ReturnOp(IRDLOperation):
    """
    Ends a graph: its outputs and their names.

    Outputs that `checks` names are for the runtime: they report whether indices were in range.
    """

    name = "pg.return"
    values = var_operand_def(base(TensorType))
    names = prop_def(ArrayAttr[BytesAttr])
    checks = opt_prop_def(IndexChecksAttr)
    traits = traits_def(IsTerminator())
    assembly_format = "$names (`,` $values^ `:` type($values))? (`checks` $checks^)? attr-dict"

    def __init__(
        self, values: Sequence[SSAValue], names: Sequence[str], checks: Iterable[IndexCheck] = ()
    ) -> None:
        held = checks_attribute(checks)
        super().__init__(
            operands=[values],
            properties={
                "names": names_attribute(names),
                **({"checks": held} if held.data else {}),
            },
        )

    @property
    def output_names(self) -> tuple[str, ...]:
        return tuple(name.text for name in self.names)

    def verify_(self) -> None:
        if len(self.names) != len(self.values):
            raise VerifyException(f"{len(self.names)} names, but {len(self.values)} outputs")
        if len(set(self.output_names)) != len(self.names):
            raise VerifyException("duplicate output name")
        if not {check.output for check in checks_of(self.checks)} <= set(self.output_names):
            raise VerifyException("an index check must name an output")

    @property
    def index_checks(self) -> tuple[IndexCheck, ...]:
        return checks_of(self.checks)


@irdl_op_definition
class GraphOp(IRDLOperation):
    """
    One computation: block arguments are the inputs, `pg.return` holds the outputs.

    A step reads the values that variables had at its start and updates them together at its end.
    So the order of operations has no meaning beyond the data flow.
    """

    name = "pg.graph"
    sym_name = prop_def(SymbolNameConstraint())
    input_names = prop_def(ArrayAttr[BytesAttr])
    body = region_def("single_block")
    traits = traits_def(SymbolOpInterface(), NoTerminator())
    assembly_format = "$sym_name `inputs` $input_names $body attr-dict"

    def __init__(
        self, name: str, input_names: Sequence[str], input_types: Sequence[Attribute]
    ) -> None:
        super().__init__(
            properties={"sym_name": StringAttr(name), "input_names": names_attribute(input_names)},
            regions=[Region(Block(arg_types=input_types))],
        )

    @property
    def block(self) -> Block:
        return self.body.block

    @property
    def inputs(self) -> dict[str, SSAValue]:
        names = (name.text for name in self.input_names)
        return dict(zip(names, self.block.args, strict=True))

    @property
    def return_op(self) -> ReturnOp:
        last = self.block.last_op
        assert isinstance(last, ReturnOp), "a graph ends with pg.return"
        return last

    @property
    def outputs(self) -> dict[str, SSAValue]:
        return dict(zip(self.return_op.output_names, self.return_op.values, strict=True))

    def variables(self) -> Iterator[VariableOp]:
        return (op for op in self.block.ops if isinstance(op, VariableOp))

    def updates(self) -> Iterator[UpdateOp]:
        return (op for op in self.block.ops if isinstance(op, UpdateOp))

    def verify_(self) -> None:
        names = [name.text for name in self.input_names]
        if len(names) != len(self.block.args):
            raise VerifyException(f"{len(names)} names, but {len(self.block.args)} inputs")
        if len(set(names)) != len(names):
            raise VerifyException("duplicate input name")
        if not isinstance(self.block.last_op, ReturnOp):
            raise VerifyException("a graph ends with pg.return")
        for kind in (VariableOp, UpdateOp):
            held = [op.variable.text for op in self.block.ops if isinstance(op, kind)]
            if len(set(held)) != len(held):
                raise VerifyException(f"a variable has more than one {kind.name}")
        self._check_sizes()

    def _check_sizes(self) -> None:
        """Checks that module sizes are axes of this graph, unless another graph calls it."""
        module = self.parent_op()
        if isinstance(module, ModuleOp) and sizes_of(module) and not self._is_run_in(module):
            check_places(sizes_of(module), self.inputs, self.outputs)

    def _is_run_in(self, module: ModuleOp) -> bool:
        name = self.sym_name.data
        return any(
            isinstance(attribute, SymbolRefAttr) and attribute.string_value() == name
            for graph in graphs_of(module)
            for op in graph.block.ops
            for attribute in op.properties.values()
        )


def graphs_of(module: ModuleOp) -> list[GraphOp]:
    """The graphs of a module, as a list, so that a caller may replace them while iterating."""
    return [op for op in module.body.block.ops if isinstance(op, GraphOp)]


class _FromLiteral(IRDLOperation):
    """Shared text form: the literal carries the result's type."""

    def literal_type(self) -> Attribute:
        return self.literal.type  # type: ignore[attr-defined,no-any-return]

    def verify_(self) -> None:
        if self.results[0].type != self.literal_type():
            raise VerifyException(
                f"the result must have type {self.literal_type()}, not {self.results[0].type}"
            )


@irdl_op_definition
class ConstantOp(_FromLiteral):
    """A tensor known when the program is compiled."""

    name = "pg.constant"
    literal = prop_def(base(DataAttr) | base(BlobAttr))
    result = result_def(TensorType)
    traits = traits_def(Pure())

    def __init__(self, literal: Literal) -> None:
        Operation.__init__(self, properties={"literal": literal}, result_types=[literal.type])

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_attribute(self.literal)
        printer.print_op_attributes(self.attributes)

    @classmethod
    def parse(cls, parser: Parser) -> ConstantOp:
        literal = parser.parse_attribute()
        if not isinstance(literal, DataAttr | BlobAttr):
            parser.raise_error("expected #pg.data or #pg.blob")
        op = cls(literal)
        op.attributes |= parser.parse_optional_attr_dict()
        return op


@irdl_op_definition
class VariableOp(_FromLiteral):
    """The value of a named variable at the start of the step; `literal` is its initial value."""

    name = "pg.variable"
    variable = prop_def(BytesAttr)
    literal = prop_def(base(DataAttr) | base(BlobAttr))
    result = result_def(TensorType)
    traits = traits_def(Pure())

    def __init__(self, variable: str, literal: Literal) -> None:
        super().__init__(
            properties={"variable": BytesAttr.of(variable), "literal": literal},
            result_types=[literal.type],
        )

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_attribute(self.variable)
        printer.print_string(" = ")
        printer.print_attribute(self.literal)
        printer.print_op_attributes(self.attributes)

    @classmethod
    def parse(cls, parser: Parser) -> VariableOp:
        variable = parser.parse_attribute()
        parser.parse_punctuation("=")
        literal = parser.parse_attribute()
        if not isinstance(variable, BytesAttr) or not isinstance(literal, DataAttr | BlobAttr):
            parser.raise_error("expected #pg.bytes = #pg.data or #pg.blob")
        op = cls(variable.text, literal)
        op.attributes |= parser.parse_optional_attr_dict()
        return op


@irdl_op_definition
class UpdateOp(IRDLOperation):
    """Sets the value of a variable for the next step."""

    name = "pg.update"
    variable = prop_def(BytesAttr)
    value = operand_def(TensorType)
    assembly_format = "$variable `,` $value `:` type($value) attr-dict"

    def __init__(self, variable: str, value: SSAValue | Operation) -> None:
        super().__init__(operands=[value], properties={"variable": BytesAttr.of(variable)})


@irdl_op_definition
class PrepareOp(IRDLOperation):
    """
    Work that depends on constants only: runs once when the program is loaded, not in every step.

    The region uses outer constants directly. Its meaning is that of its body inlined.
    """

    name = "pg.prepare"
    body = region_def("single_block")
    outputs = var_result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format = "$body (`:` type($outputs)^)? attr-dict"

    def __init__(self, body: Region, result_types: Sequence[Attribute]) -> None:
        super().__init__(regions=[body], result_types=[result_types])


def constant_array(value: SSAValue, weights: WeightStore) -> Array | None:
    """The elements of a literal; None for a computed value."""
    if isinstance(value.owner, ConstantOp):
        return weights.array(value.owner.literal)
    return None
