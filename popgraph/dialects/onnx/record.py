"""Records of operators: everything about an operator beyond its schema, for all versions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any, TypeAlias

from onnx import FunctionProto
from xdsl.ir import Attribute, SSAValue

from popgraph.dialects.onnx.containers import Function
from popgraph.dialects.onnx.custom import Custom
from popgraph.dialects.onnx.op import OnnxOp
from popgraph.dialects.onnx.schema_op import SchemaOp
from popgraph.dialects.onnx.type_errors import TypeConflict
from popgraph.dialects.onnx.view import NodeView
from popgraph.dialects.program import WeightStore
from popgraph.support.arrays import Array

Key: TypeAlias = tuple[str, str]
"""Domain ("" is ai.onnx) and name."""

Conflicts: TypeAlias = Iterator[TypeConflict]
Requirement: TypeAlias = Callable[[NodeView], Conflicts]
"""Yields errors of a node that ONNX's own inference does not detect."""

HostFunction: TypeAlias = Callable[..., Any]
"""Maps a `NodeView` and operands (arrays or lists) to the result, or a tuple of results."""

Definition: TypeAlias = Callable[[Custom, bool], Function | None]
"""
The function that defines a node; None while too little is known of its inputs.

The flag requests an exact definition, for gradients: it must not round beyond the operator.
"""

TypeRule: TypeAlias = Callable[
    [Custom, Mapping[SSAValue, Array], WeightStore], Sequence[Attribute] | None
]
"""The result types of a node, given known elements of its operands; None if not known yet."""

Structural: TypeAlias = Sequence[int] | Callable[[OnnxOp], Sequence[int]]
"""Indices of operands; a callable if they depend on a node's attributes and outputs."""


@dataclass
class Operator:
    """
    Everything about an operator beyond its schema, for all versions.

    Its page, a module of `popgraph.operators`, fills it in when the operator is first used.
    """

    domain: str
    name: str
    page: str = ""
    """The module of the page, until it is imported."""
    require: Requirement | None = None
    choices: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """{attribute: its allowed strings}."""
    bounds: Callable[[NodeView], Iterator[Any]] | None = None
    """The bounds of the indices that a node receives."""
    lower: Callable[[Any], Any] | None = None
    """Lowers a node, whose operands are graphcore values, to graphcore values."""
    structural: Structural = ()
    """Operands whose elements the lowering must know."""
    follows_data_sizes: bool = False
    """
    Whether its lowering reads data-dependent sizes only through the operations that it builds.

    Counterexample: `EyeLike` becomes a constant of the size of its input.
    """
    compute: HostFunction | None = None
    """The NumPy function of the operator, if Python computes it."""
    define: Definition | None = None
    """The function of ONNX operators that defines it, for operators outside of ONNX."""
    types: TypeRule | None = None
    mend: Callable[[FunctionProto, SchemaOp], None] | None = None
    """Corrects the body in its schema if that does not support all types of the schema."""
    without_gradient: str = ""
    """The reason for which it has no gradient, if so."""


RECORDS: dict[Key, Operator] = {}
"""Records that pages and extensions have entered so far."""

_TABLE = "popgraph.operators.contents"
"""The module that lists all pages; a higher layer, so it is only imported on first use."""


def list_pages(package: str, table: str) -> None:
    """Registers the pages of a package; each line lists a module, a domain and operators."""
    for line in table.strip().splitlines():
        module, domain, *names = line.split()
        for name in names:
            record = enter("" if domain == "ai.onnx" else domain, name)
            assert not record.page, f"{name} has two pages"
            record.page = f"{package}.{module}"


def enter(domain: str, name: str) -> Operator:
    """The record of an operator, to be filled in; created if there is none."""
    return RECORDS.setdefault((domain, name), Operator(domain, name))


@cache
def _import_table() -> None:
    """Imports the list of all pages, once: even an imported module takes 1 us to find."""
    import_module(_TABLE)


def record_of(domain: str, name: str) -> Operator | None:
    """The record of an operator, after importing its page."""
    _import_table()
    found = RECORDS.get((domain, name))
    if found is not None and found.page:
        import_module(found.page)  # Blocks while another thread imports it.
        found.page = ""
    return found


def records() -> dict[Key, Operator]:
    """All records, after importing all pages."""
    _import_table()
    for key in list(RECORDS):
        record_of(*key)
    return dict(RECORDS)
