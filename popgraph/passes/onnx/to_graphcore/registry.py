"""The registry of lowering functions by ONNX domain, operator and version."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from popgraph.dialects.graphcore.base import Operand
from popgraph.dialects.onnx import SCHEMAS, OnnxOp, is_removed
from popgraph.dialects.onnx.custom import OWN, Custom
from popgraph.passes.onnx.to_graphcore.contents import PAGES
from popgraph.passes.onnx.to_graphcore.node import Node
from popgraph.support import extensions
from popgraph.support.pages import Page, enter

Lowered: TypeAlias = Operand | Sequence[Operand | None]
"""The value of the first output, or one per output (None: this output cannot be had)."""
LoweringFunction: TypeAlias = Callable[[Node], Lowered]


def as_values(lowered: Lowered) -> list[SSAValue | None]:
    if isinstance(lowered, SSAValue | Operation):
        return [SSAValue.get(lowered)]
    return [None if one is None else SSAValue.get(one) for one in lowered]


GRAPHCORE = "ai.graphcore"

REGISTRY: dict[tuple[str, str], LoweringFunction] = dict(PAGES)
"""By domain ("" is ai.onnx) and operator; each function takes every version."""

Structural: TypeAlias = Sequence[int] | Callable[[OnnxOp], Sequence[int]]
"""Numbers of operands; of a node, where its attributes and outputs decide which."""

_STRUCTURAL: dict[tuple[str, str], Structural] = {}


def lowering_of(domain: str, name: str) -> LoweringFunction | None:
    """The function for an operator; its module is imported when the operator is first met."""
    if (domain, name) not in REGISTRY and extensions.is_free(domain):
        extensions.load(extensions.OPERATORS, domain)
    found = REGISTRY.get((domain, name))
    return found.loaded() if isinstance(found, Page) else found


def is_lowered(op: OnnxOp) -> bool:
    """Whether there is a function for the operator of a node."""
    return (op.domain, op.op_type) in REGISTRY


def load_operators(module: ModuleOp) -> None:
    """Loads what distributions bring for the operators of a module."""
    for op in module.walk():
        if isinstance(op, Custom):
            lowering_of(op.domain, op.op_type)


def structural_operands(op: OnnxOp) -> frozenset[int]:
    """The operands whose values decide a node's structure: `Node.array` asks for no others."""
    lowering_of(op.domain, op.op_type)
    found = _STRUCTURAL.get((op.domain, op.op_type), ())
    return frozenset(found(op) if callable(found) else found)


def lowers(
    *names: str, domain: str = "", structural: Structural = ()
) -> Callable[[LoweringFunction], LoweringFunction]:
    """
    Registers a function for operators, in all their versions.

    `structural` are the operands whose elements it must know: where they come from the inputs of
    a model, there is a program for each of their values.
    """

    def register(function: LoweringFunction) -> LoweringFunction:
        for name in names:
            known = REGISTRY.get((domain, name))
            assert known is None or isinstance(known, Page), f"{name} is lowered twice"
            enter(REGISTRY, (domain, name), function)
            _STRUCTURAL[domain, name] = structural
        return function

    return register


def supported_operators() -> dict[tuple[str, str], tuple[int, ...]]:
    """
    The versions of each operator of users that can be lowered, by domain and name.

    Operators that are no part of ONNX have version 1.
    """
    versions: dict[tuple[str, str], list[int]] = {}
    for schema in SCHEMAS:
        if not is_removed(schema):
            versions.setdefault((schema.domain, schema.name), []).append(schema.since_version)
    return {key: tuple(sorted(versions.get(key, [1]))) for key in sorted(REGISTRY) if key[0] != OWN}
