"""The registry of plugin operations at the graphcore level."""

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
"""Plugin operations by their names in IR texts."""
RESERVED = frozenset(
    f"{Builtin.name} onnx onnx_ml onnx_preview onnx_training graphcore tile pg func arith complex "
    "math memref scf vector".split()
)
"""Names of dialects that plugins cannot use."""


def outside_operation(cls: type[Op]) -> type[Op]:
    """Registers a plugin operation, so that IR texts can name it."""
    dialect, dot, _ = cls.name.partition(".")
    if not dot or dialect in RESERVED:
        raise ExtensionError(
            f"the operation name {cls.name!r} is reserved or has no dialect",
            f"{cls.__module__}.{cls.__qualname__}",
            "begin its name with a dialect of your own: `example.swiglu`",
        )
    if not issubclass(cls, Composite | Elementwise):
        raise ExtensionError(
            f"{cls.name} cannot be lowered",
            f"{cls.__module__}.{cls.__qualname__}",
            "inherit Composite and build it from smaller operations in `expand`, or inherit Unary "
            "or Binary with a known SCALAR",
        )
    known = OUTSIDE.get(cls.name)
    if known is not None:
        raise ExtensionError(
            f"duplicate operation {cls.name!r}",
            f"{known.__module__} and {cls.__module__}",
            "rename one of them",
        )
    made = irdl_op_definition(cls)
    extensions.note(made.__module__)
    OUTSIDE[made.name] = made
    return made


def outside_dialects() -> dict[str, Dialect]:
    """The dialects of plugin operations, by name."""
    found: dict[str, list[type[GraphcoreOp]]] = {}
    for name, op in OUTSIDE.items():
        found.setdefault(name.partition(".")[0], []).append(op)
    return {name: Dialect(name, list(ops)) for name, ops in found.items()}
