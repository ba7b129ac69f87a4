"""Facts about operators from their schemas alone: bodies and element types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from onnx import FunctionProto, GraphProto, NodeProto, TypeProto, defs, helper
from onnx.defs import OpSchema

from popgraph.dialects.element_types import from_ir, is_number
from popgraph.dialects.onnx.typeproto import from_text

Schema: TypeAlias = OpSchema

NOT_COMPILED = frozenset({"string", "c64", "c128", "map", "sparse_tensor"})
"""Types that only the host computes, for any operator."""


def latest(schema: Schema) -> Schema:
    """The latest version of the same operator."""
    return defs.get_schema(schema.name, schema.domain)


BODY_OF_LATER = {("", "HardSigmoid", 1): 6}
"""Versions without a body whose meaning equals that of a later version with one."""


def body_schema(schema: Schema) -> Schema:
    """The version of an operator whose body defines this one."""
    key = (schema.domain, schema.name, schema.since_version)
    if key not in BODY_OF_LATER:
        return schema
    return defs.get_schema(schema.name, BODY_OF_LATER[key], schema.domain)


def bodies(schema: Schema) -> Iterator[list[Schema]]:
    """The operators in the body of a schema: with all optional parameters, then with none."""
    for whole in (True, False):
        body = _body(body_schema(schema), whole)
        if body is not None:
            versions = {one.domain: one.version for one in body.opset_import}
            yield [_schema(node, versions) for node in body.node]


def _schema(node: NodeProto, versions: Mapping[str, int]) -> Schema:
    """The schema of a node; bodies of preview operators lack imports of used domains."""
    if node.domain not in versions:
        return defs.get_schema(node.op_type, node.domain)
    return defs.get_schema(node.op_type, versions[node.domain], node.domain)


def _body(schema: Schema, whole: bool) -> FunctionProto | None:
    if schema.has_function:
        data = schema.get_function_with_opset_version(schema.function_opset_versions[-1])
    elif schema.has_context_dependent_function:
        inputs = [one for one in schema.inputs if whole or _is_needed(one)]
        outputs = [one for one in schema.outputs if whole or _is_needed(one)]
        names = [[one.name for one in formals] for formals in (inputs, outputs)]
        node = helper.make_node(schema.name, *names, domain=schema.domain)
        node.attribute.extend(
            one.default_value for one in schema.attributes.values() if one.default_value.name
        )
        examples = {OpSchema.AttrType.INT: 1, OpSchema.AttrType.GRAPH: _graph(len(inputs))}
        node.attribute.extend(
            helper.make_attribute(name, examples[one.type])
            for name, one in schema.attributes.items()
            if one.required and one.type in examples
        )
        data = schema.get_context_dependent_function_with_opset_version(
            schema.context_dependent_function_opset_versions[-1],
            node.SerializeToString(),
            [_example(one.types).SerializeToString() for one in inputs],
        )
    else:
        return None
    return FunctionProto.FromString(data) if data else None


def _graph(count: int) -> GraphProto:
    """A graph with this number of inputs that returns the first."""
    names = [f"x{number}" for number in range(count)]
    inputs = [helper.make_tensor_value_info(name, helper.TensorProto.FLOAT, [2]) for name in names]
    output = helper.make_tensor_value_info("y", helper.TensorProto.FLOAT, [2])
    return helper.make_graph(
        [helper.make_node("Identity", names[:1], ["y"])], "g", inputs, [output]
    )


def _is_needed(formal: OpSchema.FormalParameter) -> bool:
    return bool(formal.option == OpSchema.FormalParameterOption.Single)


def _example(types: set[str]) -> TypeProto:
    """A type with three dimensions that an input accepts."""
    if all(one.startswith("seq(") for one in types):
        return helper.make_sequence_type_proto(_example({one[len("seq(") : -1] for one in types}))
    chosen = "tensor(float)" if "tensor(float)" in types else min(types)
    element = chosen.removeprefix("tensor(").removesuffix(")").upper()
    return helper.make_tensor_type_proto(getattr(helper.TensorProto, element, 1), [2, 2, 2])


BETWEEN_WORDS_AND_NUMBERS = {("ai.onnx.ml", "CategoryMapper")}
"""Operators with one side of strings, either of the two by schema."""


def is_of_containers(schema: Schema) -> bool:
    """Whether every form of an operator uses a map or strings."""
    if (schema.domain, schema.name) in BETWEEN_WORDS_AND_NUMBERS:
        return True
    formals = [*schema.inputs, *schema.outputs]
    return any(all(map(_is_of_python, formal.types)) for formal in formals)


def _is_of_python(text: str) -> bool:
    """Whether only the host computes a type, or a sequence of it."""
    return _name(text.removeprefix("seq(")) in NOT_COMPILED


def types_of(schema: Schema) -> tuple[str, ...]:
    """The element types of an operator's first input, or of its first output without one."""
    formal = next(iter([*schema.inputs, *schema.outputs]), None)
    return () if formal is None else tuple(sorted({_name(text) for text in formal.types}))


def _name(text: str) -> str:
    """`f32` for `tensor(float)`, `seq` for `seq(tensor(float))`."""
    if not text.startswith("tensor("):
        return text.partition("(")[0]
    element = getattr(from_text(text), "element_type", None)
    if element is None or not is_number(element):
        return "string"
    return str(from_ir(element).name)
