"""Generates one operator class per (domain, operator, version) from ONNX's schemas."""

from __future__ import annotations

import re
from functools import cache
from typing import Any, ClassVar

from onnx import defs
from onnx.defs import OpSchema
from xdsl.irdl import (
    AttrSizedOperandSegments,
    AttrSizedRegionSegments,
    AttrSizedResultSegments,
    IRDLOption,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    opt_region_def,
    opt_result_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.traits import NoTerminator, Pure

from popgraph.dialects.onnx import typeproto
from popgraph.dialects.onnx.attributeproto import read_attribute
from popgraph.dialects.onnx.constraints import OfKind, TypeVariable
from popgraph.dialects.onnx.containers import standard_domain
from popgraph.dialects.onnx.other_names import computed_by
from popgraph.dialects.onnx.schema_op import SEGMENTS, SchemaOp
from popgraph.dialects.onnx.syntax import OPTIONAL, SINGLE, VARIADIC, Slot
from popgraph.support.errors import ModelError, UnsupportedError
from popgraph.support.locks import Lock
from popgraph.support.names import closest

PREFIXES = {
    "": "onnx",
    "ai.onnx.ml": "onnx_ml",
    "ai.onnx.preview": "onnx_preview",
    "ai.onnx.preview.training": "onnx_training",
}
"""{domain: dialect} of the standard domains."""

_ARITIES = {
    OpSchema.FormalParameterOption.Single: SINGLE,
    OpSchema.FormalParameterOption.Optional: OPTIONAL,
    OpSchema.FormalParameterOption.Variadic: VARIADIC,
}
_OPERANDS: dict[str, Any] = {
    SINGLE: operand_def,
    OPTIONAL: opt_operand_def,
    VARIADIC: var_operand_def,
}
_RESULTS: dict[str, Any] = {
    SINGLE: result_def,
    OPTIONAL: opt_result_def,
    VARIADIC: var_result_def,
}
_FACTS = (
    "SCHEMA", "INPUTS", "OUTPUTS", "GRAPHS", "KINDS", "REQUIRED", "DEFAULTS", "SEGMENTS", "PLAIN",
)  # fmt: skip
"""Class variables of an operator."""

_UNPREDICTABLE = frozenset({"Dropout"})
"""Operators that are random in some modes, though their schemas do not say so."""

_LEFT_OUT = frozenset({("Resize", 11, "roi"), ("Resize", 11, "scales")})
"""
Operands that the schema requires, but that PopART's programs and exporters omit.

An absent operand then means an empty tensor.
"""


@cache
def _type_variable(name: str | None, types: frozenset[str]) -> TypeVariable:
    return TypeVariable(name, frozenset(map(typeproto.from_text, types)))


def _constraint(schema: OpSchema, parameter: Any) -> TypeVariable:
    """
    The types that a schema and inference accept for a parameter.

    Inference also accepts types of later versions, int32 shapes, f16 scales, and statistics of
    another precision: see `_readings` in `schema_inference.py`.
    """
    is_variable = parameter.is_homogeneous and not parameter.type_str.endswith(")")
    is_variable = is_variable and schema.name != "BatchNormalization"
    types = frozenset(parameter.types) | _types_of_latest(schema, parameter.name)
    # Shapes in int32: PopART's programs have them.
    if types == {"tensor(int64)"}:
        types |= {"tensor(int32)"}
    if schema.name == "Resize" and parameter.name == "scales":
        types |= {"tensor(float16)"}
    return _type_variable(parameter.type_str if is_variable else None, types)


def _types_of_latest(schema: OpSchema, name: str) -> frozenset[str]:
    """The types that the latest version of an operator accepts for a parameter."""
    latest = defs.get_schema(schema.name, schema.domain)
    if latest.deprecated:
        return frozenset()
    formals = (*latest.inputs, *latest.outputs)
    return frozenset(one for formal in formals if formal.name == name for one in formal.types)


class _ClassMaker:
    """Builds the class of one schema."""

    def __init__(self, schema: OpSchema, parent: type[SchemaOp]) -> None:
        self.schema = schema
        self.parent = parent
        self.fields: dict[str, Any] = {}

    def field(self, name: str, kind: str, definition: Any) -> str:
        """Adds a field, with a suffix if the name is taken."""
        name = re.sub(r"\W", "", name)
        if name in self.fields or hasattr(SchemaOp, name):
            name = f"{name}_{kind}"
        self.fields[name] = definition
        return name

    def slots(self, parameters: Any, kind: str, makers: dict[str, Any]) -> tuple[Slot, ...]:
        slots = []
        for parameter in parameters:
            arity = _ARITIES[parameter.option]
            if (self.schema.name, self.schema.since_version, parameter.name) in _LEFT_OUT:
                arity = OPTIONAL
            made = makers[arity](_constraint(self.schema, parameter))
            slots.append(Slot(self.field(parameter.name, kind, made), arity))
        return tuple(slots)

    def make(self) -> type[SchemaOp]:
        schema = self.schema
        inputs = self.slots(schema.inputs, "in", _OPERANDS)
        outputs = self.slots(schema.outputs, "out", _RESULTS)
        kinds, defaults, graphs = {}, {}, {}
        required = tuple(name for name, one in schema.attributes.items() if one.required)
        for name, attribute in schema.attributes.items():
            kind = attribute.type.name
            if kind == "GRAPH":
                graphs[name] = not attribute.required
                continue
            kinds[name] = kind
            self.field(name, "attr", opt_prop_def(OfKind(kind), prop_name=name))
            if attribute.default_value.name:
                defaults[name] = read_attribute(attribute.default_value)
        may_lack = any(graphs.values())
        for name in graphs:
            define = opt_region_def if may_lack else region_def
            self.fields[f"{name}_graph"] = define("single_block")
        options: list[IRDLOption] = []
        if sum(slot.arity != SINGLE for slot in inputs) > 1:
            options.append(AttrSizedOperandSegments(as_property=True))
        if sum(slot.arity != SINGLE for slot in outputs) > 1:
            options.append(AttrSizedResultSegments(as_property=True))
        if may_lack and len(graphs) > 1:
            options.append(AttrSizedRegionSegments(as_property=True))
        if graphs:
            self.fields["traits"] = traits_def(NoTerminator())
        elif self.is_pure():
            self.fields["traits"] = traits_def(Pure())
        namespace = {
            "name": f"{PREFIXES[schema.domain]}.{schema.name}.v{schema.since_version}",
            "irdl_options": tuple(options),
            "SCHEMA": schema,
            "INPUTS": inputs,
            "OUTPUTS": outputs,
            "GRAPHS": graphs,
            "KINDS": kinds,
            "REQUIRED": required,
            "DEFAULTS": defaults,
            "PLAIN": tuple(all(s.arity != OPTIONAL for s in slots) for slots in (inputs, outputs)),
            "SEGMENTS": tuple(any(isinstance(o, kind) for o in options) for kind in SEGMENTS),
            "__doc__": f"{schema.domain or 'ai.onnx'} {schema.name}-{schema.since_version}.",
            "__module__": __name__,
            "__annotations__": dict.fromkeys(_FACTS, ClassVar[Any]),
        }
        title = f"{schema.name}_{schema.since_version}"
        return irdl_op_definition(type(title, (self.parent,), {**namespace, **self.fields}))

    def is_pure(self) -> bool:
        """Whether the results depend only on the operands."""
        random = self.schema.node_determinism == OpSchema.NodeDeterminism.NonDeterministic
        return not random and self.schema.name not in _UNPREDICTABLE


@cache
def all_schemas() -> tuple[OpSchema, ...]:
    """ONNX's schemas of all operators in all versions; their 1,000 objects take 13 ms."""
    known = (one for one in defs.get_all_schemas_with_history() if one.domain in PREFIXES)
    return tuple(sorted(known, key=lambda one: (one.domain, one.name, one.since_version)))


@cache
def _versions() -> dict[tuple[str, str], tuple[int, ...]]:
    """The versions of each operator, oldest first."""
    found: dict[tuple[str, str], tuple[int, ...]] = {}
    for schema in all_schemas():
        key = (schema.domain, schema.name)
        found[key] = (*found.get(key, ()), schema.since_version)
    return found


def _is_known(domain: str, op_type: str) -> bool:
    """Whether any version of a standard domain has an operator."""
    return domain in PREFIXES and bool(defs.has(op_type, domain))


def is_removed(schema: OpSchema) -> bool:
    """
    Whether models of a version may no longer use an operator.

    GroupNormalization-18, the first version, was deprecated long after models used it: these must
    run.
    """
    if not schema.deprecated:
        return False
    first, *_ = _versions()[schema.domain, schema.name]
    return bool(schema.since_version > first)


_LAST_OPSETS: dict[str, int] = {
    domain: last for domain, (_, last) in defs.C.schema_version_map().items()
}
_PARENTS: dict[tuple[str, str], type[SchemaOp]] = {}
_MADE: dict[tuple[str, str, int], type[SchemaOp]] = {}
MAKING = Lock()
"""Serializes creation: an operator must not get two classes from two threads."""


def _parent(key: tuple[str, str]) -> type[SchemaOp]:
    """The base class of all versions, created on first use."""
    with MAKING:
        if key not in _PARENTS:
            about = {"__doc__": f"Every version of {key[1]}."}
            _PARENTS[key] = type(key[1], (SchemaOp,), about)
        return _PARENTS[key]


def class_of(schema: OpSchema) -> type[SchemaOp]:
    """The class of one version, created on first use: 659 classes take time."""
    key = (schema.domain, schema.name, schema.since_version)
    with MAKING:
        if key not in _MADE:
            _MADE[key] = _ClassMaker(schema, _parent(key[:2])).make()
        return _MADE[key]


@cache
def operators() -> tuple[type[SchemaOp], ...]:
    """All operator classes."""
    return tuple(map(class_of, all_schemas()))


def op_base(op_type: str, domain: str = "") -> type[SchemaOp]:
    """The base class of all versions of an operator, for patterns that match any of them."""
    key = (standard_domain(domain), op_type)
    if not _is_known(*key):
        raise _unknown(op_type, domain)
    return _parent(key)


@cache
def op_class(op_type: str, opset_version: int, domain: str = "") -> type[SchemaOp]:
    """The class of an operator in models that import this operator set version."""
    key = (standard_domain(domain), op_type)
    if not _is_known(*key):
        raise _unknown(op_type, domain)
    _check_opset(opset_version, domain)
    version = max(opset_version, 0)  # Others might not fit into ONNX's integers.
    if not defs.has(op_type, version, key[0]):
        first, *_ = _versions()[key]
        raise ModelError(
            f"operator {op_type} does not exist in opset {opset_version} "
            f"of domain {domain or 'ai.onnx'!s}",
            hint=f"import opset {first} or later",
        )
    schema = defs.get_schema(op_type, version, key[0])
    if is_removed(schema):
        raise ModelError(
            f"operator {op_type} was removed in opset {schema.since_version} "
            f"of domain {domain or 'ai.onnx'}",
            hint="import an earlier opset, or use what replaced it",
        )
    return class_of(schema)


def _check_opset(version: int, domain: str) -> None:
    """Raises ModelError for an operator set that is newer than the onnx package."""
    last = _LAST_OPSETS.get(standard_domain(domain))
    if last is not None and version > last:
        name = domain or "ai.onnx"
        raise ModelError(
            f"opset {version} of domain {name} is not known; the last is {last}",
            hint="correct the import, or install a newer onnx package",
        )


def _unknown(op_type: str, domain: str) -> ModelError | UnsupportedError:
    domain = standard_domain(domain)
    if domain not in PREFIXES:
        return UnsupportedError(
            f"operator {domain}::{op_type} has no schema",
            hint="use onnx.Custom for operators of other domains",
        )
    names = [name for where, name in _versions() if where == domain]
    close = closest(op_type, names)
    elsewhere = [where for where, name in _versions() if name == op_type]
    hint = f"the closest name is {close}" if close else "`popgraph ops` lists all"
    if meant := computed_by(op_type):
        hint = f"use {meant}"
    if elsewhere:
        hint = f"{op_type} is an operator of domain {elsewhere[0] or 'ai.onnx'}"
    return UnknownOperator.of(op_type, domain or "ai.onnx", hint)


class UnknownOperator(ModelError):
    """No version of an ONNX domain has this operator."""

    @classmethod
    def of(cls, op_type: str, domain: str, hint: str) -> UnknownOperator:
        return cls(f"domain {domain} has no operator {op_type!r}", hint=hint)

    @property
    def key(self) -> str:
        """Domain and operator, `ai.onnx.Foo`, parsed from the message."""
        _, domain, *_, op_type = self.what.split()
        return f"{domain}.{op_type.strip(chr(39))}"
