"""Operators without a known schema, and calls of model functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import ArrayAttr, DenseArrayBase, IntAttr, StringAttr, i64
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import (
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    traits_def,
    var_operand_def,
    var_region_def,
    var_result_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import NoTerminator
from xdsl.utils.exceptions import VerifyException

from popgraph.dialects.onnx import syntax
from popgraph.dialects.onnx.attributes import GraphsAttr
from popgraph.dialects.onnx.op import Graph, OnnxOp, graph_in, holds_graph, region_of
from popgraph.dialects.onnx.types import NamesAttr
from popgraph.dialects.program import BytesAttr
from popgraph.dialects.program.attributes import decoded, parse_quoted, quoted

OWN = "ai.popgraph"
"""The domain of operators that only passes insert; files never contain them."""

CHECK_INDICES = (OWN, "CheckIndices")
"""Domain and name of the identity on indices that passes on their bounds."""

FIT_GRID = (OWN, "FitGrid")
"""Domain and name of the operator that fits a scale and a zero point to the range of a tensor."""

CALL = ("ai.graphcore", "Call")
"""Domain and name of PopART's operator that runs the graph in its attribute `callee`."""

PACKED = ("ai.graphcore", "PackedDataBlock")
"""
Domain and name of PopART's operator that runs the graph in `callback` over packed sequences.
"""

ANY_LABEL = "any_label"
"""The attribute of PopART's Nll that gives labels outside the classes a meaning."""

GRADIENT = ("ai.onnx.preview.training", "Gradient")
"""
Domain and name of ONNX's operator for derivatives.

It names the values that it differentiates; with the graph attribute `function`, it is `Custom`.
"""


@irdl_op_definition
class Custom(OnnxOp):
    """
    An operator of another domain, or a call of a function of the model.

    `%y = onnx.Custom "com.example" "Gelu" (%x, -) {...} -> ["y"] : tensor<...>`. Its attributes
    are named in `attribute_names` and stored in `attribute_list`. Result types are set at
    construction: nothing infers them.
    """

    name = "onnx.Custom"
    custom_domain = prop_def(BytesAttr)
    custom_type = prop_def(BytesAttr)
    overload = opt_prop_def(BytesAttr)
    present = prop_def(DenseArrayBase)
    """1 for each entry of the node's input list that is a value, 0 for each absent one."""
    attribute_names = prop_def(NamesAttr)
    attribute_list = prop_def(ArrayAttr)
    arguments = var_operand_def()
    values = var_result_def()
    subgraphs = var_region_def("single_block")
    traits = traits_def(NoTerminator())

    @classmethod
    def make(
        cls,
        domain: str,
        op_type: str,
        inputs: Sequence[SSAValue | None],
        attributes: Mapping[str, Attribute | Graph | Sequence[Graph]],
        outputs: Sequence[str],
        types: Sequence[Attribute],
        extra: Mapping[str, Attribute],
        overload: str = "",
    ) -> Custom:
        """Like `SchemaOp.make`; an attribute may be a graph or a list of graphs."""
        held: list[Attribute] = []
        graphs: list[Graph] = []
        for value in attributes.values():
            if isinstance(value, Attribute):
                held.append(value)
            else:
                many = [value] if isinstance(value, Graph) else value
                kind = StringAttr("GRAPH" if isinstance(value, Graph) else "GRAPHS")
                held.append(GraphsAttr(kind, IntAttr(len(graphs)), IntAttr(len(many))))
                graphs.extend(many)
        return cls.build(
            operands=[[value for value in inputs if value is not None]],
            result_types=[[type_ for name, type_ in zip(outputs, types, strict=True) if name]],
            properties={
                "custom_domain": BytesAttr.of(domain),
                "custom_type": BytesAttr.of(op_type),
                "present": DenseArrayBase.from_list(i64, [int(v is not None) for v in inputs]),
                "attribute_names": NamesAttr.of(list(attributes)),
                "attribute_list": ArrayAttr(held),
                **({"overload": BytesAttr.of(overload)} if overload else {}),
            },
            attributes={"outputs": NamesAttr.of(outputs), **extra},
            regions=[[region_of(graph) for graph in graphs]],
        )

    @property
    def op_type(self) -> str:
        return self.custom_type.text

    @property
    def domain(self) -> str:
        return self.custom_domain.text

    @property
    def since_version(self) -> int:
        return 0

    @property
    def is_check(self) -> bool:
        """Whether this is the operator that `normalize` inserts before indices."""
        return (self.domain, self.op_type) == CHECK_INDICES

    @property
    def is_call(self) -> bool:
        """Whether this is PopART's call of a graph in its region."""
        return (self.domain, self.op_type) == CALL and len(self.graphs().get("callee", ())) == 1

    @property
    def is_packed(self) -> bool:
        """Whether this is PopART's operator that runs a graph over packed sequences."""
        return (self.domain, self.op_type) == PACKED and "callback" in self.graphs()

    @property
    def is_gradient(self) -> bool:
        """Whether this is ONNX's Gradient with the graph that it differentiates."""
        return (self.domain, self.op_type) == GRADIENT and "function" in self.graphs()

    @property
    def key(self) -> tuple[str, str, str]:
        """Domain, name and overload: the key of the function that this calls, if any."""
        return self.domain, self.op_type, "" if self.overload is None else self.overload.text

    def input_values(self) -> list[SSAValue | None]:
        operands = iter(self.arguments)
        return [next(operands) if here else None for here in self.present.get_values()]

    def output_values(self) -> list[SSAValue | None]:
        results = iter(self.values)
        return [next(results) if name else None for name in self.output_names]

    def entries(self) -> list[tuple[str, Attribute]]:
        """Attribute names and values; graphs as `GraphsAttr`."""
        return list(zip(self.attribute_names.texts, self.attribute_list, strict=True))

    def onnx_attributes(self) -> dict[str, Attribute]:
        return {n: value for n, value in self.entries() if not isinstance(value, GraphsAttr)}

    def graphs(self) -> dict[str, list[Graph]]:
        return {
            name: [
                graph_in(region)
                for region in self.regions[value.first.data : value.first.data + value.count.data]
            ]
            for name, value in self.entries()
            if isinstance(value, GraphsAttr)
        }

    def has_list_of_graphs(self, attribute: str) -> bool:
        """Whether an attribute is a list of graphs, even of length one."""
        held = dict(self.entries()).get(attribute)
        return isinstance(held, GraphsAttr) and held.kind.data == "GRAPHS"

    def verify_(self) -> None:
        if len(self.attribute_names.data) != len(self.attribute_list):
            raise VerifyException(
                f"{len(self.attribute_names.data)} attribute names, "
                f"but {len(self.attribute_list)} attributes"
            )
        if not all(map(holds_graph, self.regions)):
            raise VerifyException("a graph attribute must be a region with one onnx.Graph")
        if sum(self.present.get_values()) != len(self.arguments):
            raise VerifyException(f"`present` must mark exactly the {len(self.arguments)} operands")
        if sum(map(bool, self.output_names)) != len(self.values):
            raise VerifyException(f"output names must name exactly the {len(self.values)} results")

    def print(self, printer: Printer) -> None:
        printer.print_string(f" {quoted(self.custom_domain.data)} {quoted(self.custom_type.data)}")
        if self.overload is not None:
            printer.print_string(f" overload {quoted(self.overload.data)}")
        printer.print_string(" ")
        syntax.print_values(printer, self.input_values())
        if self.attribute_list.data:
            printer.print_string(" ")
            with printer.in_braces():
                printer.print_list(self.entries(), lambda entry: self._print_entry(printer, entry))
        if self.regions:
            printer.print_string(" ")
            with printer.in_parens():
                printer.print_list(self.regions, printer.print_region)
        syntax.print_results(printer, self)

    @staticmethod
    def _print_entry(printer: Printer, entry: tuple[str, Attribute]) -> None:
        printer.print_string(f"{quoted(entry[0].encode())} = ")
        printer.print_attribute(entry[1])

    @classmethod
    def parse(cls, parser: Parser) -> Custom:
        domain, op_type = decoded(parse_quoted(parser)), decoded(parse_quoted(parser))
        overload = ""
        if parser.parse_optional_keyword("overload"):
            overload = decoded(parse_quoted(parser))
        inputs = syntax.parse_values(parser)
        attributes: dict[str, Attribute] = {}
        if parser.parse_optional_punctuation("{"):
            parser.parse_comma_separated_list(
                parser.Delimiter.NONE, lambda: cls._parse_entry(parser, attributes)
            )
            parser.parse_punctuation("}")
        regions = (
            parser.parse_optional_comma_separated_list(parser.Delimiter.PAREN, parser.parse_region)
            or []
        )
        names, types, extra = syntax.parse_results(parser)
        made = cls.make(
            domain,
            op_type,
            inputs,
            attributes,
            names.texts,
            syntax.type_per_output(parser, types, [bool(name) for name in names.data]),
            extra,
            overload,
        )
        for region in regions:
            made.add_region(region)
        made.locate()
        return made

    @staticmethod
    def _parse_entry(parser: Parser, into: dict[str, Attribute]) -> None:
        name = decoded(parse_quoted(parser))
        parser.parse_punctuation("=")
        into[name] = parser.parse_attribute()
