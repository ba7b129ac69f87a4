"""Operators with an ONNX schema: operands, attributes, syntax and verifier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from onnx.defs import OpSchema
from xdsl.ir import Attribute, Region, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    AttrSizedRegionSegments,
    AttrSizedResultSegments,
    AttrSizedSegments,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from popgraph.dialects.onnx import syntax
from popgraph.dialects.onnx.attributes import (
    RefAttr,
)
from popgraph.dialects.onnx.constraints import KINDS
from popgraph.dialects.onnx.op import (
    Graph,
    OnnxOp,
    graph_in,
    holds_graph,
    parse_graph,
    region_around,
    region_of,
)
from popgraph.dialects.onnx.types import NamesAttr
from popgraph.dialects.program.interned import segment_sizes

SEGMENTS: tuple[type[AttrSizedSegments], ...] = (
    AttrSizedOperandSegments,
    AttrSizedResultSegments,
    AttrSizedRegionSegments,
)
"""Properties with the numbers of operands, results and regions in each slot."""


class SchemaOp(OnnxOp):
    """An operator with a schema; subclasses are generated from the schemas."""

    SCHEMA: ClassVar[OpSchema]
    INPUTS: ClassVar[tuple[syntax.Slot, ...]]
    OUTPUTS: ClassVar[tuple[syntax.Slot, ...]]
    GRAPHS: ClassVar[Mapping[str, bool]]
    """{GRAPH attribute: whether it may be absent}."""
    KINDS: ClassVar[Mapping[str, str]]
    """{other attribute: its kind}."""
    REQUIRED: ClassVar[tuple[str, ...]]
    """The attributes that every node has."""
    DEFAULTS: ClassVar[Mapping[str, Attribute]]
    SEGMENTS: ClassVar[tuple[bool, bool, bool]]
    """Whether the operator has each property of `SEGMENTS`."""
    PLAIN: ClassVar[tuple[bool, bool]]
    """Whether all inputs are present, and all outputs: then operands and results are the same."""

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
        return list(self.operands) if self.PLAIN[0] else syntax.spread(self, self.INPUTS)

    def output_values(self) -> list[SSAValue | None]:
        return list(self.results) if self.PLAIN[1] else syntax.spread(self, self.OUTPUTS)

    def onnx_attributes(self) -> dict[str, Attribute]:
        return {name: value for name, value in self.properties.items() if name in self.KINDS}

    def default_attributes(self) -> dict[str, Attribute]:
        return dict(self.DEFAULTS)

    @classmethod
    def accepts(cls, name: str, value: Attribute) -> bool:
        """Whether an attribute of the schema may have this value."""
        return isinstance(value, (KINDS[cls.KINDS[name]], RefAttr))

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
        The operation for a node's lists of inputs and outputs (None and "" for absent ones).

        `types` has an entry per output; `extra` goes into the attribute dictionary.
        """
        present = syntax.present_outputs(cls.OUTPUTS, outputs)
        given = [type_ if here else None for type_, here in zip(types, present, strict=True)]
        operands, operand_sizes = syntax.gather(cls.INPUTS, inputs)
        results, result_sizes = syntax.gather(cls.OUTPUTS, given)
        region_sizes = [int(name in graphs) for name in cls.GRAPHS]
        properties = dict(attributes)
        sizes = (operand_sizes, result_sizes, region_sizes)
        for needed, segments, counts in zip(cls.SEGMENTS, SEGMENTS, sizes, strict=True):
            if needed:
                properties[segments.attribute_name] = segment_sizes(*counts)
        # IRDL's constructor would take 10 us more, to group the same values again.
        return cls.create(
            operands=operands,
            result_types=results,
            properties=properties,
            attributes={"outputs": NamesAttr.of(outputs), **extra},
            regions=[region_of(graphs[name]) for name in cls.GRAPHS if name in graphs],
        )

    def verify_(self) -> None:
        if not all(map(holds_graph, self.regions)):
            raise VerifyException("a graph attribute must be a region with one onnx.Graph")
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
        for name, optional in cls.GRAPHS.items():
            if parser.parse_optional_keyword(name):
                parser.parse_punctuation("=")
                graphs[name] = parse_graph(parser)
            elif not optional:
                parser.raise_error(f"expected the graph {name}")
        names, types, extra = syntax.parse_results(parser)
        present = syntax.present_outputs(cls.OUTPUTS, names.texts)
        made = cls.make(
            inputs,
            properties,
            graphs,
            names.texts,
            syntax.type_per_output(parser, types, present),
            extra,
        )
        made.locate()
        return made
