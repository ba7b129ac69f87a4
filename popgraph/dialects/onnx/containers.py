"""What holds ONNX nodes? A model, its graph, its functions, and the graphs inside nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, ModuleOp, i64
from xdsl.ir import Attribute, Block, BlockArgument, Operation, OpResult, Region, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    base,
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import IsTerminator, NoTerminator, Pure
from xdsl.utils.exceptions import VerifyException

from popgraph.dialects.onnx.attributes import (
    MetadataAttr,
    OpsetAttr,
    SparseTensorAttr,
    TensorAttr,
    ValueInfoAttr,
    array_of,
    parse_value_info,
    print_value_info,
)
from popgraph.dialects.onnx.op import OnnxOp
from popgraph.dialects.onnx.types import NamesAttr
from popgraph.dialects.program import BytesAttr, WeightStore
from popgraph.dialects.program.attributes import parse_quoted, quoted
from popgraph.support.arrays import Array
from popgraph.support.errors import ModelError


@irdl_op_definition
class Yield(IRDLOperation):
    """Ends a graph or a function with the values of its outputs."""

    name = "onnx.Yield"
    values = var_operand_def()
    traits = traits_def(IsTerminator(), Pure())
    assembly_format = "($values^ `:` type($values))? attr-dict"

    def __init__(self, values: Sequence[SSAValue]) -> None:
        super().__init__(operands=[values])


class _Body(IRDLOperation):
    """Shared by graphs and functions: one block that ends with `onnx.Yield`."""

    body = region_def("single_block")

    @property
    def block(self) -> Block:
        return self.body.block

    @property
    def terminator(self) -> Yield:
        last = self.block.last_op
        assert isinstance(last, Yield), "a body ends with onnx.Yield"
        return last

    @property
    def yielded(self) -> Sequence[SSAValue]:
        """The values of the outputs."""
        return self.terminator.values

    @property
    def nodes(self) -> Iterator[OnnxOp]:
        """The nodes in their order."""
        return (op for op in self.block.ops if isinstance(op, OnnxOp))

    @property
    def input_names(self) -> tuple[str, ...]:
        raise AssertionError("graphs and functions know their input names")

    @property
    def output_names(self) -> tuple[str, ...]:
        raise AssertionError("graphs and functions know their output names")

    def verify_(self) -> None:
        if not isinstance(self.block.last_op, Yield):
            raise VerifyException(f"{self.name} must end with onnx.Yield")
        if len(self.input_names) != len(self.block.args):
            raise VerifyException(f"{self.name}: as many names as inputs")
        if len(self.output_names) != len(self.yielded):
            raise VerifyException(f"{self.name}: as many names as outputs")


@irdl_op_definition
class Graph(_Body):
    """
    A graph: block arguments are its inputs, `onnx.Yield` ends it.

    `inputs`, `outputs` and `value_infos` are what the model declares; the types of the values
    themselves may be more exact. The main graph stands in `onnx.Model`; a graph that is an
    attribute of a node stands in that node's region and uses outer values directly.
    """

    name = "onnx.Graph"
    graph_name = prop_def(BytesAttr)
    inputs = prop_def(ArrayAttr[ValueInfoAttr])
    outputs = prop_def(ArrayAttr[ValueInfoAttr])
    value_infos = opt_prop_def(ArrayAttr[ValueInfoAttr])
    rest = opt_prop_def(BytesAttr)
    traits = traits_def(NoTerminator())

    def __init__(
        self,
        name: str,
        inputs: Sequence[ValueInfoAttr],
        outputs: Sequence[ValueInfoAttr],
        body: Region,
        value_infos: Sequence[ValueInfoAttr] = (),
        rest: bytes = b"",
    ) -> None:
        super().__init__(
            properties={
                "graph_name": BytesAttr.of(name),
                "inputs": ArrayAttr(inputs),
                "outputs": ArrayAttr(outputs),
                "value_infos": ArrayAttr(value_infos) if value_infos else None,
                "rest": BytesAttr(rest) if rest else None,
            },
            regions=[body],
        )

    @property
    def input_names(self) -> tuple[str, ...]:
        return tuple(info.text for info in self.inputs)

    @property
    def output_names(self) -> tuple[str, ...]:
        return tuple(info.text for info in self.outputs)

    @property
    def initializers(self) -> Iterator[Initializer]:
        return (op for op in self.block.ops if isinstance(op, Initializer))

    def print(self, printer: Printer) -> None:
        printer.print_string(f" {quoted(self.graph_name.data)} inputs ")
        _print_infos(printer, self.inputs)
        printer.print_string(" outputs ")
        _print_infos(printer, self.outputs)
        printer.print_string(" ")
        printer.print_region(self.body, print_empty_block=False)
        if self.value_infos is not None:
            printer.print_string(" value_infos ")
            _print_infos(printer, self.value_infos)
        if self.rest is not None:
            printer.print_string(f" rest {quoted(self.rest.data)}")
        printer.print_op_attributes(self.attributes, print_keyword=True)

    @classmethod
    def parse(cls, parser: Parser) -> Graph:
        name = parse_quoted(parser)
        parser.parse_keyword("inputs")
        inputs = _parse_infos(parser)
        parser.parse_keyword("outputs")
        outputs = _parse_infos(parser)
        body = parser.parse_region()
        infos = _parse_infos(parser) if parser.parse_optional_keyword("value_infos") else []
        rest = parse_quoted(parser) if parser.parse_optional_keyword("rest") else b""
        graph = cls("", inputs, outputs, body, infos, rest)
        graph.properties["graph_name"] = BytesAttr(name)
        _parse_attributes(parser, graph)
        return graph


def _print_infos(printer: Printer, infos: ArrayAttr[ValueInfoAttr]) -> None:
    with printer.in_parens():
        printer.print_list(infos, lambda info: print_value_info(printer, info))


def _parse_infos(parser: Parser) -> list[ValueInfoAttr]:
    return parser.parse_comma_separated_list(
        parser.Delimiter.PAREN, lambda: parse_value_info(parser)
    )


def _parse_attributes(parser: Parser, op: Operation) -> None:
    attributes = parser.parse_optional_attr_dict_with_keyword()
    if attributes is not None:
        op.attributes |= attributes.data


def _print_described(printer: Printer, op: Function | Model) -> None:
    """` {producer = ...} {...}`: what is said about the whole, then the body."""
    printer.print_string(" ")
    printer.print_attr_dict(op.properties)
    printer.print_string(" ")
    printer.print_region(op.body)
    printer.print_op_attributes(op.attributes, print_keyword=True)


def _parse_described(parser: Parser) -> tuple[dict[str, Attribute], Region, dict[str, Attribute]]:
    properties = parser.parse_optional_attr_dict()
    body = parser.parse_region()
    extra = parser.parse_optional_attr_dict_with_keyword()
    return properties, body, dict(extra.data) if extra else {}


@irdl_op_definition
class Initializer(IRDLOperation):
    """
    A tensor that the model brings along: `%w = onnx.Initializer "w" #onnx.tensor<...>`.

    Older models list their initializers among the graph's inputs too, so that a caller could give
    another value: then `input` is that declaration and `place` its place in the list of inputs.
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
        """Where it stands in the model's list of inputs; 0 when it does not."""
        return 0 if self.place is None else self.place.value.data

    def array(self, store: WeightStore) -> Array:
        """The elements; zeros filled in where the tensor is sparse."""
        if isinstance(self.value, SparseTensorAttr):
            return self.value.dense(store)
        assert isinstance(self.value, TensorAttr)
        return array_of(self.value.held, store)

    def verify_(self) -> None:
        if self.result.type != self.value.type:
            raise VerifyException(f"the result's type must be {self.value.type}")

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
        _parse_attributes(parser, made)
        return made


@irdl_op_definition
class Function(_Body):
    """
    A function that the model defines: nodes of `domain::function_name` mean its body.

    Its values have no types of their own; they take those of each call. `attribute_names` are
    the attributes that a call may give; `default_names` and `default_values` those with a default.
    """

    name = "onnx.Function"
    domain = prop_def(BytesAttr)
    function_name = prop_def(BytesAttr)
    overload = opt_prop_def(BytesAttr)
    inputs = prop_def(NamesAttr)
    outputs = prop_def(NamesAttr)
    attribute_names = opt_prop_def(NamesAttr)
    default_names = opt_prop_def(NamesAttr)
    default_values = opt_prop_def(ArrayAttr)
    opsets = prop_def(ArrayAttr[OpsetAttr])
    value_infos = opt_prop_def(ArrayAttr[ValueInfoAttr])
    rest = opt_prop_def(BytesAttr)
    traits = traits_def(NoTerminator())

    @property
    def key(self) -> tuple[str, str, str]:
        """Domain, name and overload: what a call names."""
        overload = "" if self.overload is None else self.overload.text
        return self.domain.text, self.function_name.text, overload

    @property
    def input_names(self) -> tuple[str, ...]:
        return self.inputs.texts

    @property
    def output_names(self) -> tuple[str, ...]:
        return self.outputs.texts

    def print(self, printer: Printer) -> None:
        _print_described(printer, self)

    @classmethod
    def parse(cls, parser: Parser) -> Function:
        properties, body, extra = _parse_described(parser)
        return cls.build(properties=properties, regions=[body], attributes=extra)

    @property
    def defaults(self) -> dict[str, Attribute]:
        if self.default_names is None or self.default_values is None:
            return {}
        return dict(zip(self.default_names.texts, self.default_values, strict=True))

    @property
    def opset_versions(self) -> dict[str, int]:
        return {opset.domain.text: opset.version.data for opset in self.opsets}


@irdl_op_definition
class Model(IRDLOperation):
    """A model: its functions, then its graph, and what is said about the whole."""

    name = "onnx.Model"
    ir_version = prop_def(IntegerAttr)
    opsets = prop_def(ArrayAttr[OpsetAttr])
    producer = opt_prop_def(BytesAttr)
    producer_version = opt_prop_def(BytesAttr)
    model_domain = opt_prop_def(BytesAttr)
    model_version = opt_prop_def(IntegerAttr)
    doc = opt_prop_def(BytesAttr)
    metadata = opt_prop_def(MetadataAttr)
    rest = opt_prop_def(BytesAttr)
    body = region_def("single_block")
    traits = traits_def(NoTerminator())

    def __init__(
        self,
        ir_version: int,
        opsets: Sequence[OpsetAttr],
        functions: Sequence[Function],
        graph: Graph,
        about: Mapping[str, Attribute] | None = None,
    ) -> None:
        super().__init__(
            properties={
                "ir_version": IntegerAttr(ir_version, i64),
                "opsets": ArrayAttr(opsets),
                **(about or {}),
            },
            regions=[Region(Block([*functions, graph]))],
        )

    def print(self, printer: Printer) -> None:
        _print_described(printer, self)

    @classmethod
    def parse(cls, parser: Parser) -> Model:
        properties, body, extra = _parse_described(parser)
        return cls.build(properties=properties, regions=[body], attributes=extra)

    @property
    def graph(self) -> Graph:
        last = self.body.block.last_op
        assert isinstance(last, Graph), "a model ends with its graph"
        return last

    @property
    def functions(self) -> dict[tuple[str, str, str], Function]:
        return {op.key: op for op in self.body.block.ops if isinstance(op, Function)}

    @property
    def opset_versions(self) -> dict[str, int]:
        """The imported operator sets; the standard one is "". The oldest models import none."""
        return opset_versions(self.opsets) or {"": 1}

    def verify_(self) -> None:
        if not isinstance(self.body.block.last_op, Graph):
            raise VerifyException("a model ends with its graph")


def opset_versions(opsets: ArrayAttr[OpsetAttr]) -> dict[str, int]:
    """Versions by domain; `ai.onnx` is another name of the standard domain ""."""
    return {standard_domain(one.domain.text): one.version.data for one in opsets}


def standard_domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def model_of(module: ModuleOp) -> Model:
    """The model that a module of this level holds."""
    for op in module.body.block.ops:
        if isinstance(op, Model):
            return op
    raise ModelError("the module holds no onnx.Model", hint="give a module of the onnx level")


def input_types(module: ModuleOp) -> dict[str, Attribute]:
    """The types of a model's inputs (one that an initializer fills is none here)."""
    graph = model_of(module).graph
    types = (argument.type for argument in graph.block.args)
    return dict(zip(graph.input_names, types, strict=True))


def value_name(value: SSAValue) -> str:
    """The ONNX name of a value: of a graph's input, an initializer or a node's output."""
    if isinstance(value, BlockArgument):
        body = value.block.parent_op()
        assert isinstance(body, Graph | Function), "arguments belong to graphs and functions"
        return body.input_names[value.index]
    assert isinstance(value, OpResult)
    if isinstance(value.op, Initializer):
        return value.op.value_name.text
    assert isinstance(value.op, OnnxOp), f"{value.op.name} has no ONNX name"
    for name, found in zip(value.op.output_names, value.op.output_values(), strict=False):
        if found is value:
            return name
    raise AssertionError(f"{value.op.name} gives its result no name")
