"""Functions that nodes call: model functions, and definitions of other domains' operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from xdsl.dialects.builtin import ArrayAttr
from xdsl.ir import Attribute, SSAValue

from popgraph.dialects.onnx.attributes import RefAttr
from popgraph.dialects.onnx.containers import Function
from popgraph.dialects.onnx.custom import Custom
from popgraph.dialects.onnx.op import OnnxOp
from popgraph.dialects.onnx.record import Definition, TypeRule, record_of
from popgraph.dialects.onnx.schema_op import SchemaOp
from popgraph.dialects.onnx.syntax import VARIADIC
from popgraph.dialects.onnx.types import NamesAttr
from popgraph.support import extensions
from popgraph.support.errors import ExtensionError, UnsupportedError

OPSET = 23
"""The ONNX opset of the definitions of operators of other domains."""


def type_rule(op: Custom) -> TypeRule | None:
    """The type rule of a node's operator; loads the plugin that provides it, if any."""
    if record_of(*op.key[:2]) is None and extensions.is_free(op.domain):
        with suppress(ExtensionError):  # Lowering raises it again.
            extensions.load(extensions.OPERATORS, op.domain)
    record = record_of(*op.key[:2])
    return None if record is None else record.types


def definition_of(domain: str, name: str) -> Definition | None:
    """The definition of an operator outside of ONNX, if it has one."""
    record = record_of(domain, name)
    return None if record is None else record.define


def function_of(
    call: Custom, functions: Mapping[tuple[str, str, str], Function], *, exact: bool = False
) -> Function | None:
    """
    The function that a node calls: one of its model, or the definition of its operator.

    None also if the definition refuses the node: `refusal` says why.
    """
    found = functions.get(call.key)
    define = definition_of(*call.key[:2])
    if found is not None or define is None:
        return found
    try:
        return define(call, exact)
    except UnsupportedError:
        return None


def refusal(call: Custom) -> UnsupportedError | None:
    """The reason for which the definition of an operator outside of ONNX refuses a node."""
    define = definition_of(*call.key[:2])
    if define is None:
        return None
    try:
        define(call, False)
    except UnsupportedError as error:
        return error
    return UnsupportedError(
        f"too little is known of the inputs of {call.op_type}",
        hint="export the model with the shapes of its values, or pass input shapes",
    )


def body_of_call(function: Function, call: OnnxOp) -> Function:
    """A copy of the function in which attribute references are replaced by the call's values."""
    body = function.clone()
    bind(body, function.defaults | call.default_attributes() | call.onnx_attributes())
    return body


def outputs_of_call(
    call: OnnxOp, function: Function, yielded: Sequence[SSAValue]
) -> list[SSAValue | None]:
    """
    The yielded value for each output of a call; None where the body does not compute it.

    The body from a schema computes only the outputs that the node has.
    """
    if not isinstance(call, SchemaOp) or call.OUTPUTS[-1].arity == VARIADIC:
        return list(yielded)
    found = dict(zip(function.output_names, yielded, strict=True))
    return [found.get(formal.name) for formal in call.SCHEMA.outputs]


def bind(body: Function, values: Mapping[str, Attribute]) -> None:
    """Replaces attribute references by values; references without a value are removed."""
    for op in body.walk():
        if isinstance(op, Custom):
            _bind_custom(op, values)
            continue
        for name, value in list(op.properties.items()):
            if isinstance(value, RefAttr):
                del op.properties[name]
                if value.attribute.text in values:
                    op.properties[name] = values[value.attribute.text]


def _bind_custom(op: Custom, values: Mapping[str, Attribute]) -> None:
    names, held = [], []
    for name, value in op.entries():
        if isinstance(value, RefAttr):
            if value.attribute.text not in values:
                continue
            value = values[value.attribute.text]
        names.append(name)
        held.append(value)
    op.properties["attribute_names"] = NamesAttr.of(names)
    op.properties["attribute_list"] = ArrayAttr(held)
