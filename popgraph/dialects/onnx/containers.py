"""Models and functions: the operations that contain ONNX nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, ModuleOp, i64
from xdsl.ir import Attribute, Block, BlockArgument, OpResult, Region, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    region_def,
    traits_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import NoTerminator
from xdsl.utils.exceptions import VerifyException

from popgraph.dialects.onnx.attributes import (
    MetadataAttr,
    OpsetAttr,
    ValueInfoAttr,
)
from popgraph.dialects.onnx.initializer import Initializer
from popgraph.dialects.onnx.op import Body, Graph, OnnxOp
from popgraph.dialects.onnx.types import NamesAttr
from popgraph.dialects.program import BytesAttr
from popgraph.support.errors import ModelError


class _Described(IRDLOperation):
    """Text form ` {producer = ...} {...}`: properties, then the body."""

    body = region_def("single_block")

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_attr_dict(self.properties)
        printer.print_string(" ")
        printer.print_region(self.body)
        printer.print_op_attributes(self.attributes, print_keyword=True)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        properties = parser.parse_optional_attr_dict()
        body = parser.parse_region()
        extra = parser.parse_optional_attr_dict_with_keyword()
        attributes = dict(extra.data) if extra else {}
        return cls.build(properties=properties, regions=[body], attributes=attributes)


@irdl_op_definition
class Function(_Described, Body):
    """
    A function of the model: a node `domain::function_name` calls it.

    Its values have no types; each call infers them. `attribute_names` are attributes that a call
    may pass; `default_names` and `default_values` list those with a default.
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
        """Domain, name and overload, as a call names it."""
        overload = "" if self.overload is None else self.overload.text
        return self.domain.text, self.function_name.text, overload

    @property
    def input_names(self) -> tuple[str, ...]:
        return self.inputs.texts

    @property
    def output_names(self) -> tuple[str, ...]:
        return self.outputs.texts

    @property
    def defaults(self) -> dict[str, Attribute]:
        if self.default_names is None or self.default_values is None:
            return {}
        return dict(zip(self.default_names.texts, self.default_values, strict=True))

    @property
    def opset_versions(self) -> dict[str, int]:
        return {opset.domain.text: opset.version.data for opset in self.opsets}


@irdl_op_definition
class Model(_Described):
    """A model: its functions, then its graph; properties describe the whole."""

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
        """Imported versions by domain, "" for ai.onnx; the oldest models import none."""
        return opset_versions(self.opsets) or {"": 1}

    def verify_(self) -> None:
        if not isinstance(self.body.block.last_op, Graph):
            raise VerifyException("a model must end with its graph")


def opset_versions(opsets: ArrayAttr[OpsetAttr]) -> dict[str, int]:
    """Versions by domain; `ai.onnx` is an alias of the standard domain ""."""
    return {standard_domain(one.domain.text): one.version.data for one in opsets}


def standard_domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def model_of(module: ModuleOp) -> Model:
    """The model of a module of the onnx level."""
    for op in module.body.block.ops:
        if isinstance(op, Model):
            return op
    raise ModelError("the module holds no onnx.Model", hint="pass a module of the onnx level")


def input_types(module: ModuleOp) -> dict[str, Attribute]:
    """The types of a model's inputs; inputs with an initializer are excluded."""
    graph = model_of(module).graph
    types = (argument.type for argument in graph.block.args)
    return dict(zip(graph.input_names, types, strict=True))


def value_name(value: SSAValue) -> str:
    """The ONNX name of a graph input, an initializer or a node's output."""
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
    raise AssertionError(f"{value.op.name} has no name for its result")
