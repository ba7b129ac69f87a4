"""What does every ONNX operator answer about itself?"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from onnx.defs import OpSchema
from xdsl.dialects.builtin import (
    DenseArrayBase,
    FloatAttr,
    IntegerAttr,
    NameLoc,
    NoneAttr,
    StringAttr,
)
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.irdl import IRDLOperation, attr_def, opt_attr_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from popgraph.dialects.onnx import syntax
from popgraph.dialects.onnx.attributes import (
    FloatsAttr,
    ManyAttr,
    RefAttr,
    SparseTensorAttr,
    TensorAttr,
    array_of,
)
from popgraph.dialects.onnx.constraints import KINDS
from popgraph.dialects.onnx.types import NamesAttr
from popgraph.dialects.program import BlobAttr, BytesAttr, WeightStore
from popgraph.dialects.program.shared import NOTHING

if TYPE_CHECKING:
    from popgraph.dialects.onnx.containers import Graph

Value: TypeAlias = object
"""Of an attribute: int, float, str, bytes, list of these, array, IR type or `Graph`."""


def to_python(attribute: Attribute, store: WeightStore | None = None) -> Value:
    """
    The Python value of an attribute.

    Strings that are not UTF-8 stay bytes. A large tensor whose elements are in a store needs that
    store; without it the `BlobAttr` itself is the answer. References of function bodies and types
    are what they are in the IR.
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
    A node of an ONNX graph: an operator of some schema, or one that only its domain knows.

    Its ONNX attributes are properties (only those that the model gives: defaults are not copied
    in); what else the model says about the node stands in the attribute dictionary: `name`,
    `outputs` (the node's list of output names, with "" for what is absent), `doc`, `metadata`,
    `rest` (a serialized NodeProto of all that is rarer still).
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
        """The operator set version that brought this meaning; 0 for custom operators."""

    @abstractmethod
    def input_values(self) -> list[SSAValue | None]:
        """Operands in schema order, None for what is absent; a variadic one is spread out."""

    @abstractmethod
    def output_values(self) -> list[SSAValue | None]:
        """Results in schema order, None for what is absent; a variadic one is spread out."""

    @abstractmethod
    def onnx_attributes(self) -> dict[str, Attribute]:
        """The attributes that the model gives, as IR attributes, without graphs."""

    @abstractmethod
    def graphs(self) -> dict[str, list[Graph]]:
        """The graphs that are attributes (a list, for the rare kind GRAPHS)."""

    def default_attributes(self) -> dict[str, Attribute]:
        """What absent attributes mean."""
        return {}

    def attribute_values(self, store: WeightStore | None = None) -> dict[str, Value]:
        """All attributes as Python values, defaults filled in; see `to_python`."""
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
        """The node's list of output names; "" for an output that is absent or has no name."""
        return self.node_outputs.texts

    def where(self) -> str:
        """The node as messages name it."""
        label = self.node_name or next(iter(filter(None, self.output_names)), "")
        return f"node {label!r} ({self.domain + '::' if self.domain else ''}{self.op_type})"

    def locate(self) -> None:
        """Makes the node's name its location, so that every later level can report it."""
        label = self.node_name or next(iter(filter(None, self.output_names)), "")
        self.location = NameLoc(StringAttr(label), NOTHING)


class SchemaOp(OnnxOp):
    """An operator that has a schema; subclasses are made from the schemas."""

    SCHEMA: ClassVar[OpSchema]
    INPUTS: ClassVar[tuple[syntax.Slot, ...]]
    OUTPUTS: ClassVar[tuple[syntax.Slot, ...]]
    GRAPHS: ClassVar[Mapping[str, bool]]
    """The GRAPH attributes, and whether each may be absent."""
    KINDS: ClassVar[Mapping[str, str]]
    """The kind of every other attribute."""
    DEFAULTS: ClassVar[Mapping[str, Attribute]]

    @property
    def op_type(self) -> str:
        return str(self.SCHEMA.name)

    @property
    def domain(self) -> str:
        return str(self.SCHEMA.domain)

    @property
    def since_version(self) -> int:
        return int(self.SCHEMA.since_version)

    def input_values(self) -> list[SSAValue | None]:
        return syntax.spread(self, self.INPUTS)

    def output_values(self) -> list[SSAValue | None]:
        return syntax.spread(self, self.OUTPUTS)

    def onnx_attributes(self) -> dict[str, Attribute]:
        return {name: value for name, value in self.properties.items() if name in self.KINDS}

    def default_attributes(self) -> dict[str, Attribute]:
        return dict(self.DEFAULTS)

    @classmethod
    def accepts(cls, name: str, value: Attribute) -> bool:
        """Whether an attribute of the schema may have this value."""
        return isinstance(value, KINDS[cls.KINDS[name]] | RefAttr)

    def graphs(self) -> dict[str, list[Graph]]:
        found: dict[str, list[Graph]] = {}
        for name in self.GRAPHS:
            region: Region | None = getattr(self, f"{name}_graph")
            if region is not None:
                found[name] = [graph_in(region)]
        return found

    @classmethod
    def make(
        cls,
        inputs: Sequence[SSAValue | None],
        attributes: Mapping[str, Attribute],
        graphs: Mapping[str, Graph],
        outputs: Sequence[str],
        types: Sequence[Attribute],
        extra: Mapping[str, Attribute],
    ) -> SchemaOp:
        """
        The operation for a node's lists of inputs and outputs (None and "" where absent).

        `types` has an entry per output; `extra` goes to the attribute dictionary.
        """
        present = syntax.present_outputs(cls.OUTPUTS, outputs)
        return cls.build(
            operands=syntax.gather(cls.INPUTS, inputs),
            result_types=syntax.gather(
                cls.OUTPUTS,
                [type_ if here else None for type_, here in zip(types, present, strict=True)],
            ),
            properties=dict(attributes),
            attributes={"outputs": NamesAttr.of(outputs), **extra},
            regions=[[region_of(graphs[name])] if name in graphs else [] for name in cls.GRAPHS]
            if any(cls.GRAPHS.values())
            else [region_of(graphs[name]) for name in cls.GRAPHS],
        )

    def verify_(self) -> None:
        slots = syntax.present_outputs(self.OUTPUTS, self.output_names)
        if sum(slots) != len(self.results):
            raise VerifyException(
                f"{len(self.results)} results, but the output names {self.output_names}"
            )

    def print(self, printer: Printer) -> None:
        syntax.print_operands(printer, self, self.INPUTS)
        syntax.print_properties(printer, self.onnx_attributes())
        for name, graphs in self.graphs().items():
            printer.print_string(f" {name} = ")
            printer.print_region(region_around(graphs[0]))
        syntax.print_results(printer, self)

    @classmethod
    def parse(cls, parser: Parser) -> SchemaOp:
        inputs = syntax.parse_operands(parser, cls.INPUTS)
        properties = syntax.parse_properties(parser, cls.KINDS)
        graphs: dict[str, Graph] = {}
        for name in cls.GRAPHS:
            if parser.parse_optional_keyword(name):
                parser.parse_punctuation("=")
                graph = graph_in(parser.parse_region())
                graph.detach()
                graphs[name] = graph
        names, types, extra = syntax.parse_results(parser)
        present = iter(types)
        made = cls.make(
            inputs,
            properties,
            graphs,
            names.texts,
            [
                next(present) if here else NoneAttr()
                for here in syntax.present_outputs(cls.OUTPUTS, names.texts)
            ],
            extra,
        )
        made.locate()
        return made


def graph_in(region: Region) -> Graph:
    """The graph that a region holds as the value of an attribute."""
    graph = region.block.first_op
    assert graph is not None and graph.name == "onnx.Graph", "an attribute's region is a graph"
    return graph  # type: ignore[return-value]


def region_of(graph: Graph) -> Region:
    return Region(Block([graph]))


def region_around(graph: Operation) -> Region:
    region = graph.parent_region()
    assert region is not None
    return region
