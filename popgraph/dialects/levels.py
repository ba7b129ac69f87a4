"""The levels of the IR, top down: the level of a module, and the operations allowed there."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from popgraph.dialects import tile
from popgraph.dialects.graphcore.base import GraphcoreOp
from popgraph.dialects.program import GraphOp, PrepareOp
from popgraph.support.errors import PassError

ONNX, GRAPHCORE, STRUCTURED, LOOPS, PROGRAM = "onnx", "graphcore", "structured", "loops", "program"

LEVELS = (ONNX, GRAPHCORE, STRUCTURED, LOOPS, PROGRAM)

MEANINGS = {
    ONNX: "the model as it was written",
    GRAPHCORE: "what is computed",
    STRUCTURED: "how: index maps, layouts and schedules of each operation",
    LOOPS: "how: kernels with their loops written out",
    PROGRAM: "how: calls of kernels on buffers in one arena",
}
"""A short description of each level, for docs/tile.md and the viewer."""

_TILE: dict[type[Operation], str] = {
    **dict.fromkeys(tile.STRUCTURED, STRUCTURED),
    **dict.fromkeys(tile.LOOPS, LOOPS),
    **dict.fromkeys(tile.PROGRAM, PROGRAM),
}
_FREE = (tile.ViewOp, tile.AssembleOp)
"""Structured operations that may stay until memory planning, which can make them free."""


def level_of(module: ModuleOp, unknown: str = GRAPHCORE) -> str:
    """The level of a module: the topmost level of its operations, if any has one."""
    found = {level for op in operations(module) if (level := _level(op)) is not None}
    return next((level for level in LEVELS if level in found), unknown)


def operations(module: ModuleOp) -> Iterator[Operation]:
    """The operations of a module and of its graphs, without the bodies of operations there."""
    for op in module.ops:
        yield op
        if isinstance(op, GraphOp):
            yield from _within(op)


def _within(op: GraphOp | PrepareOp) -> Iterator[Operation]:
    for inner in op.body.block.ops:
        yield inner
        if isinstance(inner, PrepareOp):
            yield from _within(inner)


def _level(op: Operation) -> str | None:
    """The level of an operation; None for operations that several levels allow."""
    dialect = op.name.split(".")[0].split("_")[0]
    if dialect in (ONNX, GRAPHCORE):
        return dialect
    if isinstance(op, GraphcoreOp):
        return GRAPHCORE
    return None if isinstance(op, _FREE) else _TILE.get(type(op))


def check_level(module: ModuleOp, level: str) -> None:
    """Raises PassError if the module holds an operation of another level."""
    for op in operations(module):
        own = _level(op)
        if own is not None and own != level:
            raise PassError(
                f"{op.name} belongs to the {own} level, but the module is at the {level} level"
            )
        if isinstance(op, GraphOp) and level in (ONNX, PROGRAM):
            raise PassError(f"{op.name} is not allowed in a module of the {level} level")
