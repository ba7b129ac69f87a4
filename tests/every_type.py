"""Models of one node for every operator, version and element type that ONNX's schemas admit."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, NodeProto, TypeProto, defs, helper, numpy_helper
from onnx.defs import OpSchema

from popgraph.conformance.cases import node_cases
from popgraph.support import dtypes
from popgraph.support.arrays import Array
from tests.every_type_examples import MADE, NEEDED, Example

DOMAINS = ("", "ai.onnx.ml")
MOST_ELEMENTS = 300
"""Cases with more elements are only used if there are no smaller ones."""
WIDE = {"f": ("double", "float"), "b": ("double", "float"), "i": ("int64", "int32", "int8")}
"""The wider types that judge results of narrow types, by kind."""
NARROW_BITS = 16
"""Floats of this width or less are judged in wider types; so are sub-byte integers."""
ONNX_NAMES = {
    row.name: helper.tensor_dtype_to_string(row.onnx).removeprefix("TensorProto.").lower()
    for row in dtypes.DTYPES
}
BY_ONNX_NAME = {ONNX_NAMES[name]: row for name, row in dtypes.BY_NAME.items()}


EXACT = {"BitCast", "Cast", "CastLike", "DequantizeLinear", "QuantizeLinear"}
"""Operators about types, whose results differ in a wider type."""
OWN_JUDGES = ("bool", "f32", "f64", "c64", "c128")
JUDGES = {
    "MeanVarianceNormalization": ("float",),
    "ReduceLogSum": ("double",),
    "ReduceLogSumExp": ("double",),
}
"""The only types in which onnx's reference computes these operators."""


class Unfit(Exception):
    """Reason why an example does not exist for a version or type."""


@dataclass(frozen=True, eq=False)
class Trial:
    """A model of one node, its inputs, and the model that judges its results."""

    domain: str
    operator: str
    version: int
    variable: str
    """The schema's name of the type variable."""
    type: str
    """The type in the notation of schemas, such as `tensor(float)`."""
    model: onnx.ModelProto
    given: Mapping[str, Any]
    judge: onnx.ModelProto
    judged: Mapping[str, Any]
    """The inputs of `judge`, the same model in a wider type where the type requires one."""

    @property
    def title(self) -> str:
        prefix = f"{self.domain}." if self.domain else ""
        return f"{prefix}{self.operator}-{self.version} {self.variable}={self.type}"


@cache
def schemas() -> tuple[OpSchema, ...]:
    """The schemas of every version that is not deprecated, by domain, name and version."""
    found = [one for one in defs.get_all_schemas_with_history() if one.domain in DOMAINS]
    return tuple(
        sorted(
            (one for one in found if not one.deprecated),
            key=lambda one: (one.domain, one.name, one.since_version),
        )
    )


@cache
def examples() -> Mapping[tuple[str, str], Sequence[Example]]:
    """Examples by operator: our own ones, then the cases of ONNX's suite, smallest first."""
    found: dict[tuple[str, str], list[Example]] = {}
    for case in node_cases():
        nodes = case.model.graph.node
        if len(nodes) == 1 and "_expanded" not in case.name:
            one = Example(nodes[0], [_plain(value) for value in case.data_sets[0][0]])
            found.setdefault((nodes[0].domain, nodes[0].op_type), []).append(one)
    for some in found.values():
        some.sort(key=lambda one: (not _is_finite(one), _size(one)))
    for key, made in MADE.items():
        found[key] = [*made, *found.get(key, [])]
    return found


def _plain(value: Any) -> Any:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def _is_finite(example: Example) -> bool:
    arrays = [np.asarray(one) for one in example.inputs if isinstance(one, np.ndarray)]
    return all(np.isfinite(one).all() for one in arrays if one.dtype.kind == "f")


def _size(example: Example) -> int:
    """The number of elements; examples with empty tensors count as the largest."""
    sizes = [np.size(one) for one in example.inputs if isinstance(one, np.ndarray)]
    return sum(sizes) if all(sizes) else MOST_ELEMENTS


def trials(schema: OpSchema, variable: str, type_: str) -> Iterator[Trial]:
    """
    Models of the first fitting examples in which a type variable has a type.

    The second model of each example converts all values of the variable's old type.
    """
    found = 0
    for example in examples().get((schema.domain, schema.name), []):
        for widely in (False, True):
            try:
                yield trial(schema, example, variable, type_, widely)
            except Unfit:
                continue
            found += 1
        if found >= 2 * MOST_EXAMPLES:
            return


def pairs(schema: OpSchema) -> Iterator[tuple[str, str]]:
    """Pairs of a type variable and one of its types; one empty pair if there are no variables."""
    found = [(name, type_) for name, types in variables(schema).items() for type_ in types]
    yield from found or [("", "")]


MOST_EXAMPLES = 6


def variables(schema: OpSchema) -> dict[str, list[str]]:
    """The types that each type variable admits, in the notation of schemas."""
    return {
        one.type_param_str: sorted(one.allowed_type_strs, key=_order)
        for one in schema.type_constraints
    }


def _order(type_: str) -> tuple[int, str]:
    known = [f"tensor({name})" for name in BY_ONNX_NAME]
    return (known.index(type_) if type_ in known else len(known), type_)


def trial(
    schema: OpSchema, example: Example, variable: str, type_: str, widely: bool = False
) -> Trial:
    """The example for a version with a type for a variable; raises `Unfit` if impossible."""
    fitted = fit(schema, example)
    choice = Choice(variable, type_, widely)
    model, given = written(schema, fitted, choice, lambda value: value)
    judge, judged = model, given
    for wide in wider(schema, variable, type_):
        wide_choice = Choice(variable, wide, widely)
        judge, judged = written(schema, fitted, wide_choice, lambda v: retyped(v, type_))
        break
    return Trial(
        schema.domain, schema.name, schema.since_version, variable, type_, model, given, judge,
        judged,
    )  # fmt: skip


def wider(schema: OpSchema, variable: str, type_: str) -> Iterator[str]:
    """The admitted types in which results are exact enough to judge."""
    row = BY_ONNX_NAME.get(element(type_))
    if schema.name in JUDGES:
        yield from (type_.replace(element(type_), name) for name in JUDGES[schema.name])
        return
    if schema.name in EXACT or row is None or row.name in OWN_JUDGES:
        return
    if row.bits >= (NARROW_BITS + 1 if row.is_float else 8):
        return
    allowed = variables(schema)[variable]
    for name in WIDE["f" if row.is_float else "i"]:
        wide = type_.replace(element(type_), name)
        if wide in allowed:
            yield wide


def element(type_: str) -> str:
    """`float` of `seq(tensor(float))`."""
    return type_.rpartition("(")[2].rstrip(")")


# Examples for a version


@dataclass(frozen=True)
class Fitted:
    """An example whose inputs are in the order of a version."""

    node: NodeProto
    values: Sequence[Any]
    """Values by input of the version, None for an absent one."""
    result: str


ATTRIBUTES = {"pads": ("pads", "paddings"), "constant_value": ("value",), "K": ("k",)}
"""Names of inputs in versions where they were attributes, if they differ."""


def fit(schema: OpSchema, example: Example) -> Fitted:
    """The example with the inputs and attributes of a version."""
    newest = [one for one in schemas() if (one.domain, one.name) == (schema.domain, schema.name)][
        -1
    ]
    node = NodeProto(op_type=schema.name, domain=schema.domain)
    formals = [one.name for one in schema.inputs]
    values: dict[int, Any] = {}
    given = iter(example.inputs)
    for at, name in enumerate(example.node.input):
        value = next(given) if name else None
        if value is None:
            continue
        formal = newest.inputs[min(at, len(newest.inputs) - 1)] if newest.inputs else None
        formal_name = formal.name if formal else ""
        attribute = _attribute(schema, formal_name) if formal_name not in formals else ""
        if formal_name in formals and at < len(newest.inputs):
            values[formals.index(formal_name)] = value
        elif attribute:
            node.attribute.append(_made(attribute, schema.attributes[attribute].type, value))
        elif at < schema.max_input:
            values[at] = value
        elif formal is None or formal.option != OpSchema.FormalParameterOption.Optional:
            raise Unfit(f"there is no input {formal_name!r} in version {schema.since_version}")
    for one in example.node.attribute:
        known = schema.attributes.get(one.name)
        if known is not None and known.type.value == one.type:
            node.attribute.append(one)
    _complete(schema, node, values)
    outputs = list(example.node.output)[: schema.max_output]
    node.output.extend(outputs)
    given = [values.get(at) for at in range(max(values, default=-1) + 1)]
    return Fitted(node, given, example.result)


def _attribute(schema: OpSchema, name: str) -> str:
    names = ATTRIBUTES.get(name, (name,))
    return next((one for one in names if one in schema.attributes), "")


def _made(name: str, type_: Any, value: Any) -> AttributeProto:
    """Converts the value of an input to an attribute."""
    is_list = type_ in (OpSchema.AttrType.INTS, OpSchema.AttrType.FLOATS)
    array = np.asarray(value)
    if type_ in (OpSchema.AttrType.FLOAT, OpSchema.AttrType.FLOATS):
        array = array.astype(np.float64)
    plain = array.reshape(-1).tolist()
    return helper.make_attribute(name, plain if is_list else plain[0], attr_type=type_.value)


def _complete(schema: OpSchema, node: NodeProto, values: Mapping[int, Any]) -> None:
    """Adds attributes that only this version requires."""
    present = {one.name for one in node.attribute}
    for name, one in schema.attributes.items():
        if one.required and name not in present:
            made = NEEDED.get((schema.name, name), NEEDED.get(("", name)))
            if made is None:
                raise Unfit(f"attribute {name!r} is needed in version {schema.since_version}")
            value = made(values) if callable(made) else made
            node.attribute.append(helper.make_attribute(name, value, attr_type=one.type.value))


# Of a type


@dataclass(frozen=True)
class Choice:
    """The type that a type variable gets."""

    variable: str
    type: str
    widely: bool
    """Whether all values of the variable's old type are converted."""


def written(
    schema: OpSchema, fitted: Fitted, choice: Choice, before: Callable[[Any], Any]
) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """The model with the chosen type, and its inputs; `before` rounds values to a narrow type."""
    node = NodeProto()
    node.CopyFrom(fitted.node)
    given: dict[str, Any] = {}
    infos: list[Any] = []
    formals = [schema.inputs[min(at, len(schema.inputs) - 1)] for at in range(len(fitted.values))]
    own = [
        value
        for value, formal in zip(fitted.values, formals, strict=True)
        if value is not None and choice.variable and formal.type_str == choice.variable
    ]
    old = text_of(own[0]) if own else fitted.result
    for at, (value, formal) in enumerate(zip(fitted.values, formals, strict=True)):
        node.input.append("" if value is None else f"x{at}")
        if value is not None:
            array, type_ = _chosen(schema, formal, value, choice, before, old)
            given[f"x{at}"] = array
            infos.append(helper.make_value_info(f"x{at}", type_of(array, type_)))
    if choice.variable and not own:
        _set_results(schema, node, choice, before, fitted.result)
    elif choice.widely and old:
        retype_attributes(node, element(old), element(choice.type), before)
    outputs = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
    graph = helper.make_graph([node], "g", infos, outputs)
    return helper.make_model(graph, opset_imports=_versions(schema), ir_version=13), given


def _chosen(
    schema: OpSchema,
    formal: Any,
    value: Any,
    choice: Choice,
    before: Callable[[Any], Any],
    old: str | None,
) -> tuple[Any, str | None]:
    """The input converted to its type, and this type."""
    if choice.variable and formal.type_str == choice.variable:
        return retyped(before(value), choice.type), choice.type
    text = text_of(value)
    if choice.widely and old and text and element(text) == element(old):
        wanted = text.replace(element(old), element(choice.type))
        if wanted in formal.types:
            return _inner(before, value, choice), wanted
    type_ = _kept(value, formal.types if formal.type_str in variables(schema) else ())
    return (value, None) if type_ is None else (retyped(value, type_), type_)


def _inner(before: Callable[[Any], Any], value: Any, choice: Choice) -> Any:
    """Converts an input, or the elements of a sequence, to the element type of a choice."""
    if isinstance(value, list):
        return [_inner(before, one, choice) for one in value]
    text = f"tensor({element(choice.type)})"
    try:
        return retyped(before(value), text)
    except Unfit:
        return retyped(value, text)


def retype_attributes(node: NodeProto, old: str, new: str, before: Callable[[Any], Any]) -> None:
    """Converts tensors in attributes, and in graphs inside the node, to another element type."""
    row, then = BY_ONNX_NAME.get(old), BY_ONNX_NAME.get(new)
    number = onnx.TensorProto.STRING if then is None else then.onnx
    if row is None:
        return
    for one in node.attribute:
        if one.type == AttributeProto.TENSOR and one.t.data_type == row.onnx:
            array = retyped(_narrowed(before, numpy_helper.to_array(one.t)), f"tensor({new})")
            one.t.CopyFrom(numpy_helper.from_array(array))
        elif one.type == AttributeProto.GRAPH:
            for info in [*one.g.input, *one.g.output, *one.g.value_info]:
                _retype_info(info.type, row.onnx, number)
            for inner in one.g.node:
                retype_attributes(inner, old, new, before)


def _narrowed(before: Callable[[Any], Any], array: Any) -> Any:
    """The array after `before`, or unchanged if that raises `Unfit`."""
    try:
        return before(array)
    except Unfit:
        return array


def _retype_info(type_: TypeProto, old: int, new: int) -> None:
    match type_.WhichOneof("value"):
        case "tensor_type":
            if type_.tensor_type.elem_type == old:
                type_.tensor_type.elem_type = new
        case "sequence_type":
            _retype_info(type_.sequence_type.elem_type, old, new)
        case "optional_type":
            _retype_info(type_.optional_type.elem_type, old, new)


def _versions(schema: OpSchema) -> list[Any]:
    own = helper.make_opsetid(schema.domain, schema.since_version)
    return [own] if not schema.domain else [own, helper.make_opsetid("", 21)]


def _kept(value: Any, types: Sequence[str]) -> str | None:
    """None if the type of a value is admitted, else an admitted type."""
    if not types:
        return None
    own = text_of(value)
    if own in types or own is None:
        return None
    preferred = ("tensor(float)", "tensor(int64)", "seq(tensor(float))")
    return next((one for one in preferred if one in types), sorted(types)[0])


CHOICES = ("to", "dtype", "output_dtype", "output_datatype")
"""Attributes that state the type of results."""


def _set_results(
    schema: OpSchema, node: NodeProto, choice: Choice, before: Callable[[Any], Any], result: str
) -> None:
    """Sets the attributes that state the type of results, if no input has the type variable."""
    if all(one.type_str != choice.variable for one in schema.outputs):
        raise Unfit(f"nothing that is given is of {choice.variable}")
    name, new = next((one for one in CHOICES if one in schema.attributes), ""), element(choice.type)
    if name:
        _replace(node, schema.attributes[name].type, name, new)
    elif result.replace(element(result), new) != choice.type:
        raise Unfit(f"nothing says that {choice.variable} is {choice.type}")
    elif any(one.type in (AttributeProto.TENSOR, AttributeProto.GRAPH) for one in node.attribute):
        retype_attributes(node, element(result), new, before)
    elif len(variables(schema)[choice.variable]) > 1:
        raise Unfit(f"nothing says that {choice.variable} is {choice.type}")


def _replace(node: NodeProto, type_: Any, name: str, new: str) -> None:
    """Replaces an attribute that states a type, by number or by name."""
    row = BY_ONNX_NAME.get(new)
    number = onnx.TensorProto.STRING if row is None else row.onnx
    kept = [one for one in node.attribute if one.name != name]
    del node.attribute[:]
    node.attribute.extend(kept)
    value: Any = new.upper() if type_ == OpSchema.AttrType.STRING else number
    node.attribute.append(helper.make_attribute(name, value))


def text_of(value: Any) -> str | None:
    """The type of a value in the notation of schemas; None if it is undetermined."""
    if isinstance(value, list):
        inner = text_of(value[0]) if value else None
        return f"seq({inner})" if inner else None
    if not isinstance(value, np.ndarray | np.generic):
        return None
    if value.dtype.kind in "OUS":
        return "tensor(string)"
    return f"tensor({ONNX_NAMES[dtypes.from_numpy(value.dtype).name]})"


def type_of(value: Any, type_: str | None) -> TypeProto:
    """The TypeProto of an input; `type_` is its type in the notation of schemas."""
    text = type_ or text_of(value) or ""
    if text.startswith("optional("):
        return helper.make_optional_type_proto(type_of(value, text[9:-1]))
    if text.startswith("seq("):
        inner = text[4:-1]
        if inner.startswith("map("):
            return helper.make_sequence_type_proto(_map_type(inner))
        return helper.make_sequence_type_proto(_tensor_type(inner, None))
    if text.startswith("map("):
        return _map_type(text)
    return _tensor_type(text, np.shape(value))


def _tensor_type(text: str, shape: Sequence[int] | None) -> TypeProto:
    name = element(text)
    if not name:
        raise Unfit("a value of no known type")
    number = 8 if name == "string" else BY_ONNX_NAME[name].onnx
    return helper.make_tensor_type_proto(number, shape)


def _map_type(text: str) -> TypeProto:
    key, held = (part.strip() for part in text[4:-1].split(","))
    numbers = [8 if name == "string" else BY_ONNX_NAME[name].onnx for name in (key, element(held))]
    return helper.make_map_type_proto(numbers[0], helper.make_tensor_type_proto(numbers[1], None))


def retyped(value: Any, type_: str) -> Any:
    """The value converted to another type; raises `Unfit` if it is of another kind."""
    if type_.startswith("optional("):
        return value if value is None else retyped(value, type_[9:-1])
    if type_.startswith("seq("):
        if not isinstance(value, list):
            raise Unfit("no sequence")
        return [retyped(one, type_[4:-1]) for one in value]
    if type_.startswith("map("):
        if not isinstance(value, dict):
            raise Unfit("no map")
        key, held = (part.strip() for part in type_[4:-1].split(","))
        makes = (_scalar(key), _scalar(element(held)))
        return {makes[0](one): makes[1](other) for one, other in value.items()}
    if isinstance(value, list | dict):
        raise Unfit("no tensor")
    return of_element(np.asarray(value), element(type_))


def _scalar(name: str) -> Callable[[Any], Any]:
    if name == "string":
        return str
    return int if "int" in name else float


def of_element(array: Array, name: str) -> Array:
    """The array in another element type, with integers or floats that the type can represent."""
    if name == "string":
        texts = array if array.dtype.kind in "OUS" else _numbers(array).astype(str)
        return np.asarray(texts, object)
    row = BY_ONNX_NAME[name]
    if array.dtype.kind in "OUS":
        array = _of_strings(array)
    if array.dtype == row.numpy:
        return array
    if row.name in ("c64", "c128"):
        return np.asarray(array.astype(np.float64) * (1 + 0.5j)).astype(row.numpy)
    if row.name == "f8e8m0":
        return np.exp2(np.clip(_numbers(array), -4, 4)).astype(np.float32).astype(row.numpy)
    if row.is_float:
        most = {"f16": 6e4, "f64": np.inf}.get(row.name, 3e38 if row.bits > 8 else 6.0)
        wide = array.real.astype(np.float64)
        return np.asarray(np.clip(wide, -most, most).astype(row.numpy))
    if row.name == "bool":
        return np.asarray(_numbers(array) > 0)
    return _whole(array, row)


def _whole(array: Array, row: dtypes.DType) -> Array:
    low = 0 if row.name.startswith("u") else -(2 ** min(row.bits - 1, 31))
    high = 2 ** min(row.bits - (not row.name.startswith("u")), 31) - 1
    numbers = np.clip(np.abs(_numbers(array)) if low == 0 else _numbers(array), low, high)
    return np.asarray(numbers.astype(np.int64).astype(row.numpy))


def _numbers(array: Array) -> Array:
    """Integers for an array: the elements, or four times the elements if they have fractions."""
    if array.dtype.kind in "OUS":
        array = _of_strings(array)
    wide = np.asarray(array.real if array.dtype.kind == "c" else array).astype(np.float64)
    wide = np.nan_to_num(wide, nan=1, posinf=7, neginf=-7)
    is_whole = bool(np.all(wide == np.round(wide)))
    return np.clip(np.round(wide if is_whole else wide * 4), -(2.0**31), 2.0**31 - 1)


def _of_strings(array: Array) -> Array:
    """Numbers for strings: the parsed numbers, or the lengths of the strings."""

    def number(text: Any) -> float:
        try:
            found = float(text)
        except ValueError:
            return float(len(text))
        return found if math.isfinite(found) else 1.0

    flat = [number(text) for text in array.reshape(-1)]
    return np.array(flat, np.float64).reshape(array.shape)
