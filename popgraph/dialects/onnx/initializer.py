"""Initializers: constant tensors of a graph."""

from __future__ import annotations

from xdsl.dialects.builtin import IntegerAttr, i64
from xdsl.irdl import (
    IRDLOperation,
    base,
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from popgraph.dialects.onnx.attributes import (
    SparseTensorAttr,
    TensorAttr,
    ValueInfoAttr,
    array_of,
    parse_value_info,
    print_value_info,
)
from popgraph.dialects.onnx.syntax import parse_attributes
from popgraph.dialects.program import BytesAttr, WeightStore
from popgraph.dialects.program.attributes import parse_quoted, quoted
from popgraph.support.arrays import Array


@irdl_op_definition
class Initializer(IRDLOperation):
    """
    A constant tensor of the model: `%w = onnx.Initializer "w" #onnx.tensor<...>`.

    Older models also list initializers among the graph's inputs, so that callers may override them:
    `input` is then this declaration, and `place` its index in the list of inputs.
    """

    name = "onnx.Initializer"
    value_name = prop_def(BytesAttr)
    value = prop_def(base(TensorAttr) | base(SparseTensorAttr))
    input = opt_prop_def(ValueInfoAttr)
    place = opt_prop_def(IntegerAttr)
    result = result_def()
    traits = traits_def(Pure())

    def __init__(
        self,
        name: str,
        value: TensorAttr | SparseTensorAttr,
        input: ValueInfoAttr | None = None,
        place: int = 0,
    ) -> None:
        super().__init__(
            properties={
                "value_name": BytesAttr.of(name),
                "value": value,
                "input": input,
                "place": None if input is None else IntegerAttr(place, i64),
            },
            result_types=[value.type],
        )

    @property
    def place_in_inputs(self) -> int:
        """The index in the model's list of inputs; 0 if it is not listed."""
        return 0 if self.place is None else self.place.value.data

    def array(self, store: WeightStore) -> Array:
        """The elements; a sparse tensor becomes dense."""
        if isinstance(self.value, SparseTensorAttr):
            return self.value.dense(store)
        assert isinstance(self.value, TensorAttr)
        return array_of(self.value.held, store)

    def verify_(self) -> None:
        if self.result.type != self.value.type:
            raise VerifyException(
                f"the result must have type {self.value.type}, not {self.result.type}"
            )

    def print(self, printer: Printer) -> None:
        printer.print_string(f" {quoted(self.value_name.data)} ")
        printer.print_attribute(self.value)
        if self.input is not None and self.place is not None:
            printer.print_string(f" input {self.place.value.data} ")
            print_value_info(printer, self.input)
        printer.print_op_attributes(self.attributes, print_keyword=True)

    @classmethod
    def parse(cls, parser: Parser) -> Initializer:
        name = parse_quoted(parser)
        value = parser.parse_attribute()
        if not isinstance(value, TensorAttr | SparseTensorAttr):
            parser.raise_error("expected #onnx.tensor or #onnx.sparse_tensor")
        made = cls("", value)
        made.properties["value_name"] = BytesAttr(name)
        if parser.parse_optional_keyword("input"):
            made.properties["place"] = IntegerAttr(parser.parse_integer(), i64)
            made.properties["input"] = parse_value_info(parser)
        parse_attributes(parser, made)
        return made
