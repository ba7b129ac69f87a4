"""Base classes of ONNX operators and graphs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseArrayBase,
    FileLineColLoc,
    FloatAttr,
    IntegerAttr,
    NameLoc,
    StringAttr,
)
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    attr_def,
    irdl_op_definition,
    opt_attr_def,
    opt_prop_def,
    prop_def,
    region_def,
    traits_def,
    var_operand_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import IsTerminator, NoTerminator, Pure
from xdsl.utils.exceptions import VerifyException

from popgraph.dialects.onnx.attributes import (
    FloatsAttr,
    ManyAttr,
    SparseTensorAttr,
    TensorAttr,
    ValueInfoAttr,
    array_of,
    parse_value_info,
    print_value_info,
)
from popgraph.dialects.onnx.initializer import Initializer
from popgraph.dialects.onnx.syntax import parse_attributes
from popgraph.dialects.onnx.types import NamesAttr
from popgraph.dialects.program import BlobAttr, BytesAttr, WeightStore
from popgraph.dialects.program.attributes import parse_quoted, quoted
from popgraph.dialects.program.interned import NOTHING

Value: TypeAlias = object
"""An attribute value: int, float, str, bytes, a list of these, array, IR type or `Graph`."""


def to_python(attribute: Attribute, store: WeightStore | None = None) -> Value:
    """
    The Python value of an attribute.

    Strings that are not UTF-8 stay bytes. A large tensor requires the store of its elements;
    without it the `BlobAttr` itself is returned. References in function bodies and types stay IR
    attributes.
    """
    match attribute:
        case IntegerAttr():
            return attribute.value.data
        case FloatAttr():
            return attribute.value.data
        case DenseArrayBase():
            return list(attribute.get_values())
        case FloatsAttr():
            return attribute.values
        case BytesAttr():
            return _text(attribute.data)
        case NamesAttr():
            return [_text(item) for item in attribute.data]
        case TensorAttr(elements=BlobAttr() as blob) if store is None:
            return blob
        case TensorAttr():
            return array_of(attribute.held, store)
        case SparseTensorAttr():
            return attribute.dense(store)
        case ManyAttr():
            return [to_python(item, store) for item in attribute.items]
        case _:
            return attribute


def _text(data: bytes) -> str | bytes:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


class OnnxOp(IRDLOperation, ABC):
    """
    A node of an ONNX graph, with a schema or of another domain.

    Its ONNX attributes are properties; absent attributes stay absent, without defaults. Everything
    else is in the attribute dictionary: `name`, `outputs` (the node's list of output names, "" for
    absent ones), `doc`, `metadata`, and `rest` (a serialized NodeProto of the remaining fields).
    """

    node_label = opt_attr_def(BytesAttr, attr_name="name")
    node_outputs = attr_def(NamesAttr, attr_name="outputs")

    @property
    @abstractmethod
    def op_type(self) -> str: ...

    @property
    @abstractmethod
    def domain(self) -> str: ...

    @property
    @abstractmethod
    def since_version(self) -> int:
        """The operator set version that introduced this version; 0 for custom operators."""

    @abstractmethod
    def input_values(self) -> list[SSAValue | None]:
        """Operands in schema order, None for absent ones, variadic ones flattened."""

    @abstractmethod
    def output_values(self) -> list[SSAValue | None]:
        """Results in schema order, None for absent ones, variadic ones flattened."""

    @abstractmethod
    def onnx_attributes(self) -> dict[str, Attribute]:
        """The attributes present in the model, as IR attributes, without graphs."""

    @abstractmethod
    def graphs(self) -> dict[str, list[Graph]]:
        """The graphs that are attributes; a list, for the rare kind GRAPHS."""

    def default_attributes(self) -> dict[str, Attribute]:
        """The values of absent attributes."""
        return {}

    def attribute_values(self, store: WeightStore | None = None) -> dict[str, Value]:
        """All attributes as Python values, including defaults; see `to_python`."""
        given = self.default_attributes() | self.onnx_attributes()
        values = {name: to_python(value, store) for name, value in given.items()}
        for name, graphs in self.graphs().items():
            values[name] = graphs[0] if len(graphs) == 1 else graphs
        return values

    @property
    def node_name(self) -> str:
        label = self.attributes.get("name")
        return label.text if isinstance(label, BytesAttr) else ""

    @property
    def output_names(self) -> tuple[str, ...]:
        """The node's list of output names; "" for outputs that are absent or unnamed."""
        return self.node_outputs.texts

    def where(self) -> str:
        """The node's name for messages."""
        label = self.node_name or next(iter(filter(None, self.output_names)), "")
        return f"node {label!r} ({self.domain + '::' if self.domain else ''}{self.op_type})"

    def locate(self, place: FileLineColLoc | None = None) -> None:
        """Sets the node's name and its line as its location, which all later levels can report."""
        label = self.node_name or next(iter(filter(None, self.output_names)), "")
        self.location = NameLoc(StringAttr(label), place or NOTHING)


def graph_in(region: Region) -> Graph:
    """The graph in a region that is the value of an attribute."""
    graph = region.block.first_op
    assert graph is not None and graph.name == "onnx.Graph", "an attribute's region holds a graph"
    return graph  # type: ignore[return-value]


def holds_graph(region: Region) -> bool:
    """Whether a region is a single block with only a graph, as `region_of` builds it."""
    block = region.first_block
    return (
        block is not None
        and block is region.last_block
        and block.first_op is block.last_op
        and isinstance(block.first_op, Graph)
    )


def parse_graph(parser: Parser) -> Graph:
    """Parses the graph that is the value of an attribute."""
    region = parser.parse_region()
    if not holds_graph(region):
        parser.raise_error("expected a region with one onnx.Graph")
    graph = graph_in(region)
    graph.detach()
    return graph


def region_of(graph: Graph) -> Region:
    return Region(Block([graph]))


def region_around(graph: Operation) -> Region:
    region = graph.parent_region()
    assert region is not None
    return region


@irdl_op_definition
class Yield(IRDLOperation):
    """Ends a graph or a function with the values of its outputs."""

    name = "onnx.Yield"
    values = var_operand_def()
    traits = traits_def(IsTerminator(), Pure())
    assembly_format = "($values^ `:` type($values))? attr-dict"

    def __init__(self, values: Sequence[SSAValue]) -> None:
        super().__init__(operands=[values])


class Body(IRDLOperation):
    """Graphs and functions: one block that ends with `onnx.Yield`."""

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
        """The nodes, in order."""
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
            raise VerifyException(
                f"{self.name} has {len(self.input_names)} names for {len(self.block.args)} inputs"
            )
        if len(self.output_names) != len(self.yielded):
            raise VerifyException(
                f"{self.name} has {len(self.output_names)} names for {len(self.yielded)} outputs"
            )


@irdl_op_definition
class Graph(Body):
    """
    A graph: block arguments are its inputs, `onnx.Yield` ends it.

    `inputs`, `outputs` and `value_infos` are declarations of the model; the types of the values may
    be more exact. The main graph is in `onnx.Model`. A graph that is an attribute of a node is in
    that node's region and uses outer values directly.
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

    @property
    def all_initializers(self) -> Iterator[Initializer]:
        """The initializers of the graph and of graphs inside its nodes."""
        return (op for op in self.walk() if isinstance(op, Initializer))

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
        parse_attributes(parser, graph)
        return graph


def _print_infos(printer: Printer, infos: ArrayAttr[ValueInfoAttr]) -> None:
    with printer.in_parens():
        printer.print_list(infos, lambda info: print_value_info(printer, info))


def _parse_infos(parser: Parser) -> list[ValueInfoAttr]:
    return parser.parse_comma_separated_list(
        parser.Delimiter.PAREN, lambda: parse_value_info(parser)
    )
