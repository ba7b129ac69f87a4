"""The operators of `builder.aiOnnx`: one method per operator, generated from schemas."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from inspect import Parameter, Signature
from typing import Any, Protocol, TypeAlias

import numpy as np

from popgraph.builder.opset.arguments import bound, incompatible_arguments
from popgraph.builder.opset.element_types import named_row
from popgraph.builder.opset.enums import PopartEnum
from popgraph.dialects.onnx import all_schemas, is_removed
from popgraph.popart.exceptions import as_popart_errors, popart_exception
from popgraph.support.names import closest

FIRST_OPSET = 6
"""PopART's oldest opset; operators of earlier ones have the same form."""
LAST_OPSET = max(schema.since_version for schema in all_schemas() if not schema.domain)

POPART_OPSETS = {f"AiOnnxOpset{version}": version for version in range(FIRST_OPSET, 12)}
"""PopART's operator sets by class name."""

_PREFIXED = {"And", "If", "Not", "Or", "Xor"}
"""Operators that are Python keywords, and Xor by analogy."""


_KEEPING = "LogSumExp Max Mean Min Prod Sum"
OVER_NO_AXES: dict[str, tuple[str, int]] = {
    **{f"Reduce{name}": ("Identity", 1) for name in _KEEPING.split()},
    **dict.fromkeys(("ReduceL1", "ReduceL2"), ("Abs", 1)),
    "ReduceLogSum": ("Log", 1),
    "ReduceSumSquare": ("Mul", 2),
}
"""
Reductions with `axes=[]`, which ONNX cannot express: an operator and the number of times that its
operand repeats.
"""


Method: TypeAlias = Callable[..., Any]
Schema: TypeAlias = Any
"""ONNX's schema of one version of an operator."""


class NodeSink(Protocol):
    """The part of a builder that operator sets need."""

    def add_node(
        self,
        op_type: str,
        domain: str,
        args: Sequence[str],
        attributes: Mapping[str, object],
        outputs: int,
        debugContext: object,
    ) -> list[str]: ...


class Opset:
    """The operators of one version of a domain, as methods that add a node and return its ids."""

    VERSION = 0

    def __init__(self, builder: NodeSink) -> None:
        self._builder = builder

    @property
    def version(self) -> int:
        return self.VERSION

    def __str__(self) -> str:
        return type(self).__name__


class AiOnnxMl(Opset):
    """The operators of ai.onnx.ml; PopART's builder has none."""

    VERSION = 1


class OnnxOpset(Opset):
    """The operators of ai.onnx; errors about missing ones name the versions that have them."""

    def __getattr__(self, name: str) -> Any:
        schemas = [] if name.startswith("_") else _forms(name)
        close = closest(name, [word for word in dir(self) if not word.startswith("_")])
        if schemas:
            first = schemas[0].since_version
            told = f"; it came with opset {first}, which {_chosen(first)}"
        else:
            told = f"; did you mean {close!r}?" if close else ""
        raise AttributeError(f"{str(self)!r} object has no attribute {name!r}{told}")


def _chosen(version: int) -> str:
    """A hint for choosing the operator version."""
    return f"Builder(opsets={{'ai.onnx': {version}}}) chooses"


@cache
def _forms(method: str) -> list[Schema]:
    """The versions of a method's operator, in order."""
    found = [one for one in all_schemas() if not one.domain and method_name(one.name) == method]
    return sorted((one for one in found if not is_removed(one)), key=lambda one: one.since_version)


def _other_form(name: str, schema: Schema, args: Sequence[Any], named: Mapping[str, Any]) -> str:
    """The closest version of an operator with these arguments, as a line of an error."""
    forms = _forms(name)
    near = sorted(forms, key=lambda one: abs(one.since_version - schema.since_version))
    for form in near:
        try:
            bound(signature_of(form), args, named)
        except TypeError:
            continue
        after = [one.since_version for one in forms if one.since_version > form.since_version]
        last = min(after) - 1 if after else LAST_OPSET
        first = max(form.since_version, FIRST_OPSET)
        if last >= first:
            version = last if form.since_version < schema.since_version else first
            return (
                f"\n{form.name} takes such arguments in opsets {first} to {last}, of which "
                f"{_chosen(version)} one"
            )
    return ""


def method_name(op_type: str) -> str:
    name = op_type.lower()
    return f"logical_{name}" if op_type in _PREFIXED else name


def _returns_list(schema: Schema) -> bool:
    return len(schema.outputs) > 1 or _counts_outputs(schema)


def _counts_outputs(schema: Schema) -> bool:
    """Whether a call must specify the number of outputs."""
    return bool(schema.min_output != schema.max_output)


def _default(schema: Schema, attribute: Any) -> object:
    """The default of an attribute in the signature; None and [] omit it."""
    value = attribute.default_value
    kind = attribute.type.name
    if kind in ("INTS", "FLOATS", "STRINGS"):
        # A missing list of axes means all axes; an empty list means none.
        return None if schema.name.startswith("Reduce") else []
    if value.name:
        return {"INT": value.i, "FLOAT": float(str(np.float32(value.f)))}.get(
            kind, value.s.decode()
        )
    return "" if kind == "STRING" else None


def signature_of(schema: Schema) -> Signature:
    """
    PopART's order: args, num_outputs, required attributes, the others, each in alphabetical order.

    `auto_pad`, which PopART lacks, is an extension and keyword-only.
    """
    parameters = []
    if schema.inputs:
        parameters.append(_parameter("args", list[str]))
    if _counts_outputs(schema):
        parameters.append(_parameter("num_outputs", int))
    attributes = [one for one in sorted(schema.attributes.items()) if one[0] != "num_outputs"]
    if schema.name == "Constant":
        sparse = "sparse_value" in schema.attributes
        flag = [_parameter("is_value_sparse", bool, False)] if sparse else []
        return Signature([_parameter("value", Any), *flag, _debug_context()], return_annotation=str)
    parameters += [
        _parameter(name, _annotation(name, one)) for name, one in attributes if one.required
    ]
    optional = [(name, one) for name, one in attributes if not one.required]
    parameters += [
        _parameter(name, _annotation(name, one, optional=True), _default(schema, one))
        for name, one in optional
        if name != "auto_pad"
    ]
    parameters.append(_debug_context())
    parameters += [
        Parameter(name, Parameter.KEYWORD_ONLY, default=_default(schema, one), annotation=str)
        for name, one in optional
        if name == "auto_pad"
    ]
    returned = list[str] if _returns_list(schema) else str
    return Signature(parameters, return_annotation=returned)


def _annotation(name: str, attribute: Any, *, optional: bool = False) -> object:
    """The annotation of an attribute; element types may be names or numbers."""
    kind = None if name in _TYPES else _ANNOTATIONS.get(attribute.type.name)
    return Any if kind is None else kind | None if optional else kind


_TYPES = ("to", "dtype")
_ANNOTATIONS: dict[str, Any] = {
    "INT": int,
    "INTS": list[int],
    "FLOAT": float,
    "FLOATS": list[float],
    "STRING": str,
    "STRINGS": list[str],
}


def _parameter(name: str, annotation: object, default: object = Parameter.empty) -> Parameter:
    kind = Parameter.POSITIONAL_OR_KEYWORD
    return Parameter(name, kind, default=default, annotation=annotation)


def _debug_context() -> Parameter:
    return _parameter("debugContext", str, "")


def _documentation(schema: Schema) -> str:
    text = re.sub(r"\s*\n\s*\n.*", "", (schema.doc or "").strip(), flags=re.S)
    lines = [f"{schema.name}-{schema.since_version}. {' '.join(text.split())}", ""]
    for place, formal in enumerate(schema.inputs):
        lines.append(f"args[{place}]: {formal.name}. {' '.join(formal.description.split())}")
    for name, one in sorted(schema.attributes.items()):
        lines.append(f"{name}: {' '.join(one.description.split())}")
    return "\n".join(lines)


def _method(schema: Schema) -> Method:
    signature = signature_of(schema)
    name = method_name(schema.name)

    def method(self: Opset, *args: object, **named: object) -> list[str] | str:
        try:
            given: dict[str, Any] = bound(signature, args, named).arguments
        except TypeError as error:
            hint = _other_form(name, schema, args, named)
            raise incompatible_arguments(name, signature, args, named, hint) from error
        ids = given.pop("args", [])
        context = given.pop("debugContext", "")
        outputs = given.pop("num_outputs", max(schema.min_output, 1))
        if schema.name in OVER_NO_AXES and given.get("axes") in ([], ()):
            plain, times = OVER_NO_AXES[schema.name]
            return self._builder.add_node(plain, "", list(ids) * times, {}, 1, context)[0]
        attributes = _attributes(schema, given)
        if "num_outputs" in schema.attributes and len(ids) == 1:
            attributes["num_outputs"] = outputs  # Split-18 asks for it twice
        found = self._builder.add_node(
            schema.name, schema.domain, ids, attributes, outputs, context
        )
        return found if _returns_list(schema) else found[0]

    method.__name__ = name
    method.__qualname__ = f"AiOnnx.{name}"
    method.__doc__ = _documentation(schema)
    method.__signature__ = Signature(  # type: ignore[attr-defined]
        [Parameter("self", Parameter.POSITIONAL_OR_KEYWORD), *signature.parameters.values()],
        return_annotation=signature.return_annotation,
    )
    return method


def _attributes(schema: Schema, given: Mapping[str, object]) -> dict[str, object]:
    """The attributes to write, except values that mean "not given"."""
    result = {}
    for name, value in given.items():
        if name == "is_value_sparse":
            if value:
                raise popart_exception(
                    "Attributes of type `sparse_tensor' are currently not supported."
                )
            continue
        attribute = schema.attributes[name]
        empty = isinstance(value, list | tuple | str) and len(value) == 0
        absent = value is None or (empty and _default(schema, attribute) in ([], ""))
        if absent and not attribute.required:
            continue
        if name in _TYPES and not isinstance(value, int):
            with as_popart_errors():
                value = named_row(value).onnx
        result[name] = int(value) if isinstance(value, PopartEnum) else value
    return result


def _schemas_of(version: int) -> list[Schema]:
    """The operators that are new in a version; for the first version, all in their latest form."""
    newest: dict[str, Schema] = {}
    for schema in all_schemas():
        if schema.domain or is_removed(schema) or schema.since_version > version:
            continue
        if version > FIRST_OPSET and schema.since_version != version:
            continue
        held = newest.get(schema.name)
        if held is None or held.since_version < schema.since_version:
            newest[schema.name] = schema
    return list(newest.values())


@cache
def onnx_opset(version: int) -> type[Opset]:
    """The class `AiOnnx<version>`; each inherits from the previous one."""
    parent = OnnxOpset if version == FIRST_OPSET else onnx_opset(version - 1)
    methods: dict[str, object] = {
        method_name(schema.name): _method(schema) for schema in _schemas_of(version)
    }
    doc = f"The operators of version {version} of ai.onnx."
    namespace = {**methods, "VERSION": version, "__doc__": doc, "__module__": __name__}
    return type(f"AiOnnx{version}", (parent,), namespace)


def __getattr__(name: str) -> type[Opset]:
    """PopART's names of these classes."""
    if name not in POPART_OPSETS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return onnx_opset(POPART_OPSETS[name])
