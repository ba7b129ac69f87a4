"""The registry of operators: decorators with which pages fill it, and lookups."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from onnx import FunctionProto
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from popgraph.dialects.graphcore.base import Operand
from popgraph.dialects.onnx import OnnxOp, all_schemas, is_removed
from popgraph.dialects.onnx.custom import OWN, Custom
from popgraph.dialects.onnx.record import (
    HostFunction,
    Requirement,
    Structural,
    enter,
    record_of,
    records,
)
from popgraph.dialects.onnx.schema_op import SchemaOp
from popgraph.dialects.onnx.view import NodeView
from popgraph.operators.node import Node
from popgraph.support import extensions
from popgraph.support.pages import Page

Lowered: TypeAlias = Operand | Sequence[Operand | None]
"""The value of the first output, or one per output (None: this output is not supported)."""
LoweringFunction: TypeAlias = Callable[[Node], Lowered]
BoundsRule: TypeAlias = Callable[[NodeView], Iterator["Bounds"]]
Mending: TypeAlias = Callable[[FunctionProto, SchemaOp], None]

GRAPHCORE = "ai.graphcore"
ML = "ai.onnx.ml"
MICROSOFT = "com.microsoft"
IN_BYTES = 4
"""The `accuracy_level` of MatMulNBits that quantizes activations to int8."""

TYPES_BY_LOWERING = Page("popgraph.passes.onnx.to_graphcore.outside")
"""The type inference of PopART's operators, which `popgraph.passes` implements."""


# Reasons for a missing gradient

STEPS = "the result is piecewise constant: the gradient is zero"
INTEGERS = "the result is rounded to integers; with `straight_through`, gradients pass it"
STRUCTURE = "its inputs decide shapes, and are known at compile time"
HOSTED = "Python computes it, and models with such nodes are not trained"

DRAWN = "the result is random"
DETACHED = "it stops the gradient by definition"
WITH_ZERO = frozenset((STEPS, INTEGERS, DRAWN, DETACHED))
"""Reasons that imply a zero gradient, rather than none."""


# Decorators of pages


def requires(*names: str, domain: str = "") -> Callable[[Requirement], Requirement]:
    """Registers checks of operators' nodes that ONNX's own inference lacks."""

    def register(rule: Requirement) -> Requirement:
        for name in names:
            record = enter(domain, name)
            assert record.require is None, f"{name} has two requirements"
            record.require = rule
        return rule

    return register


def chooses(*names: str, domain: str = "", **choices: Sequence[str]) -> None:
    """Registers the words that attributes of operators may be."""
    for name in names:
        record = enter(domain, name)
        record.choices = {**record.choices, **choices}


def lowers(
    *names: str, domain: str = "", structural: Structural = ()
) -> Callable[[LoweringFunction], LoweringFunction]:
    """
    Registers the lowering function of operators, in all their versions.

    `structural` are the operands whose elements it must know at compile time. Where they come
    from inputs of the model, each of their values gets a program of its own.
    """

    def register(function: LoweringFunction) -> LoweringFunction:
        for name in names:
            record = enter(domain, name)
            assert record.lower is None, f"{name} is lowered twice"
            record.lower, record.structural = function, structural
            if domain == GRAPHCORE:
                record.types = TYPES_BY_LOWERING
        return function

    return register


def computes(*names: str, domain: str = "") -> Callable[[HostFunction], HostFunction]:
    """Registers the NumPy function of operators that Python computes, in all their versions."""

    def register(function: HostFunction) -> HostFunction:
        for name in names:
            enter(domain, name).compute = function
        return function

    return register


def bounds(*names: str, domain: str = "") -> Callable[[BoundsRule], BoundsRule]:
    """Registers the bounds of operators' index inputs."""

    def register(rule: BoundsRule) -> BoundsRule:
        for name in names:
            enter(domain, name).bounds = rule
        return rule

    return register


def mends(*names: str) -> Callable[[Mending], Mending]:
    """Registers a function that repairs the function body in an operator's schema."""

    def register(mend: Mending) -> Mending:
        for name in names:
            enter("", name).mend = mend
        return mend

    return register


def follows_data_sizes(names: str, domain: str = "") -> None:
    """Notes that operators can be trained on tensors whose sizes depend on data."""
    for name in names.split():
        enter(domain, name).follows_data_sizes = True


def without_gradient(names: str, why: str, domain: str = "") -> None:
    """Notes why operators have no gradient."""
    for name in names.split():
        enter(domain, name).without_gradient = why


@dataclass(frozen=True)
class Bounds:
    """The range of the indices in one input: one bound, or one for each column of the indices."""

    input: int
    what: str
    low: tuple[int, ...]
    last: tuple[int, ...]
    ignored: int | None = None
    """An index out of range that means "no element", such as `ignore_index`."""

    @classmethod
    def into(cls, index: int, sizes: Sequence[int]) -> Bounds:
        """The bounds of indices into axes of these sizes: [-size, size - 1]."""
        return cls(index, "index", tuple(-size for size in sizes), tuple(n - 1 for n in sizes))


# Lookups


def as_values(lowered: Lowered) -> list[SSAValue | None]:
    if isinstance(lowered, SSAValue | Operation):
        return [SSAValue.get(lowered)]
    return [None if one is None else SSAValue.get(one) for one in lowered]


def lowering_of(domain: str, name: str) -> LoweringFunction | None:
    """The lowering function of an operator; loads the extension that defines it, if any."""
    if record_of(domain, name) is None and extensions.is_free(domain):
        extensions.load(extensions.OPERATORS, domain)
    found = record_of(domain, name)
    return None if found is None else found.lower


def is_lowered(op: OnnxOp) -> bool:
    """Whether a node's operator has a lowering function."""
    found = record_of(op.domain, op.op_type)
    return found is not None and found.lower is not None


def load_operators(module: ModuleOp) -> None:
    """Loads the extensions that define a module's custom operators."""
    for op in module.walk():
        if isinstance(op, Custom):
            lowering_of(op.domain, op.op_type)


def structural_operands(op: OnnxOp) -> frozenset[int]:
    """The operands whose values decide a node's structure: `Node.array` reads only these."""
    lowering_of(op.domain, op.op_type)
    record = record_of(op.domain, op.op_type)
    found = () if record is None else record.structural
    return frozenset(found(op) if callable(found) else found)


def lowered_operators() -> dict[tuple[str, str], LoweringFunction]:
    """All lowering functions, by domain and name."""
    return {key: record.lower for key, record in records().items() if record.lower is not None}


def defined_operators() -> list[tuple[str, str]]:
    """The operators that ONNX defines by function bodies, by domain and name."""
    return sorted(key for key, record in records().items() if record.define is not None)


def supported_operators() -> dict[tuple[str, str], tuple[int, ...]]:
    """
    The versions of each public operator that can be lowered, by domain and name.

    Operators outside ONNX have version 1.
    """
    versions: dict[tuple[str, str], list[int]] = {}
    for schema in all_schemas():
        if not is_removed(schema):
            versions.setdefault((schema.domain, schema.name), []).append(schema.since_version)
    known = sorted(key for key in lowered_operators() if key[0] != OWN)
    return {key: tuple(sorted(versions.get(key, [1]))) for key in known}
