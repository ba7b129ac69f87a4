"""The records of operators: what is known of each beyond its schema, in all its versions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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

Complaints: TypeAlias = Iterator[TypeConflict]
Requirement: TypeAlias = Callable[[NodeView], Complaints]
"""What is wrong with a node that ONNX's own inference does not see."""

HostFunction: TypeAlias = Callable[..., Any]
"""From a `NodeView` and the operands, as arrays or lists, to the result: a tuple of several."""

Definition: TypeAlias = Callable[[Custom, bool], Function | None]
"""
What a node of an operator stands for; None as long as too little is known of its inputs.

Asked for an exact meaning, because gradients are to pass it, it rounds nothing that it need not.
"""

TypeRule: TypeAlias = Callable[
    [Custom, Mapping[SSAValue, Array], WeightStore], Sequence[Attribute] | None
]
"""The types of what a node gives, from known elements of its inputs; None: not known yet."""

Structural: TypeAlias = Sequence[int] | Callable[[OnnxOp], Sequence[int]]
"""Numbers of operands; of a node, where its attributes and outputs decide which."""


@dataclass
class Operator:
    """
    All that is known of an operator, in all its versions, beyond its schema.

    Its page, a module of `popgraph.operators`, fills it in when the operator is first met.
    """

    domain: str
    name: str
    page: str = ""
    """The module that says all this, until it is imported."""
    require: Requirement | None = None
    choices: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The words that its attributes may be, by their names."""
    bounds: Callable[[NodeView], Iterator[Any]] | None = None
    """The bounds of the indices that a node gets."""
    lower: Callable[[Any], Any] | None = None
    """From a node, with graphcore values as its operands, to graphcore values."""
    structural: Structural = ()
    """The operands whose elements its lowering must know."""
    follows_data_sizes: bool = False
    """
    Whether its lowering reads no size that data decide, but by the operations that it makes.

    `EyeLike`, say, is a constant of the size of its input, which no operation takes.
    """
    compute: HostFunction | None = None
    """The NumPy function that computes it, where Python does."""
    define: Definition | None = None
    """The function of ONNX's operators that it stands for, if it is no operator of ONNX."""
    types: TypeRule | None = None
    mend: Callable[[FunctionProto, SchemaOp], None] | None = None
    """Changes the body in its schema, if that does not fit all types that the schema admits."""
    without_gradient: str = ""
    """Why it has no gradient, if so."""


RECORDS: dict[Key, Operator] = {}
"""Those that pages and extensions have entered so far."""

_TABLE = "popgraph.operators.contents"
"""The module that lists the pages; it is in the room above, so it is imported when it is needed."""


def list_pages(package: str, table: str) -> None:
    """Notes pages of a package, from lines of a module, a domain and the names of operators."""
    for line in table.strip().splitlines():
        module, domain, *names = line.split()
        for name in names:
            record = enter("" if domain == "ai.onnx" else domain, name)
            assert not record.page, f"{name} has two pages"
            record.page = f"{package}.{module}"


def enter(domain: str, name: str) -> Operator:
    """The record of an operator, a new one if there is none, to be filled in."""
    return RECORDS.setdefault((domain, name), Operator(domain, name))


def record_of(domain: str, name: str) -> Operator | None:
    """The record of an operator, with what its page says."""
    import_module(_TABLE)
    found = RECORDS.get((domain, name))
    if found is not None and found.page:
        import_module(found.page)  # Another thread waits here until it is whole.
        found.page = ""
    return found


def records() -> dict[Key, Operator]:
    """All records, with what all pages say."""
    import_module(_TABLE)
    for key in list(RECORDS):
        record_of(*key)
    return dict(RECORDS)
