"""The registry of operations from outside, which work at the graphcore level beside its own."""

from __future__ import annotations

from typing import TypeVar

from xdsl.dialects.builtin import Builtin
from xdsl.ir import Dialect
from xdsl.irdl import irdl_op_definition

from popgraph.dialects.graphcore.base import Composite, Elementwise, GraphcoreOp
from popgraph.support import extensions
from popgraph.support.errors import ExtensionError

Op = TypeVar("Op", bound=GraphcoreOp)

OUTSIDE: dict[str, type[GraphcoreOp]] = {}
"""By name, as IR texts have it."""
RESERVED = frozenset(
    f"{Builtin.name} onnx onnx_ml onnx_preview onnx_training graphcore tile pg func arith complex "
    "math memref scf vector".split()
)
"""Dialects whose names are taken."""


def outside_operation(cls: type[Op]) -> type[Op]:
    """Defines an operation from outside, and lets IR texts name it."""
    dialect, dot, _ = cls.name.partition(".")
    if not dot or dialect in RESERVED:
        raise ExtensionError(
            f"an operation cannot be named {cls.name!r}",
            f"{cls.__module__}.{cls.__qualname__}",
            "begin its name with a dialect of your own: `example.swiglu`",
        )
    if not issubclass(cls, Composite | Elementwise):
        raise ExtensionError(
            f"{cls.name} cannot be lowered",
            f"{cls.__module__}.{cls.__qualname__}",
            "inherit Composite and build it of smaller operations in `expand`, or Unary or "
            "Binary with a known SCALAR",
        )
    known = OUTSIDE.get(cls.name)
    if known is not None:
        raise ExtensionError(
            f"there are two operations {cls.name!r}",
            f"{known.__module__} and {cls.__module__}",
            "rename one of them",
        )
    made = irdl_op_definition(cls)
    extensions.note(made.__module__)
    OUTSIDE[made.name] = made
    return made


def outside_dialects() -> dict[str, Dialect]:
    """The dialects of these operations, by name."""
    found: dict[str, list[type[GraphcoreOp]]] = {}
    for name, op in OUTSIDE.items():
        found.setdefault(name.partition(".")[0], []).append(op)
    return {name: Dialect(name, list(ops)) for name, ops in found.items()}
