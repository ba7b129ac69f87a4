"""The levels of the IR, downwards: which one a module is at, and what may stand in it there."""

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
"""What a person sees of a model at each level."""

_TILE: dict[type[Operation], str] = {
    **dict.fromkeys(tile.STRUCTURED, STRUCTURED),
    **dict.fromkeys(tile.LOOPS, LOOPS),
    **dict.fromkeys(tile.PROGRAM, PROGRAM),
}
_FREE = (tile.ViewOp, tile.AssembleOp)
"""Structured operations that stay until memory is planned: they may cost nothing."""


def level_of(module: ModuleOp) -> str:
    """The level of a module: the highest that one of its operations belongs to."""
    found = {level for op in operations(module) if (level := _level(op)) is not None}
    return next((level for level in LEVELS if level in found), GRAPHCORE)


def operations(module: ModuleOp) -> Iterator[Operation]:
    """The operations of a module and of its graphs; not what stands in the bodies of these."""
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
    """The level that an operation belongs to; None for what may stand at several."""
    dialect = op.name.split(".")[0].split("_")[0]
    if dialect in (ONNX, GRAPHCORE):
        return dialect
    if isinstance(op, GraphcoreOp):
        return GRAPHCORE
    return None if isinstance(op, _FREE) else _TILE.get(type(op))


def check_level(module: ModuleOp, level: str) -> None:
    """`PassError` when an operation of another level stands in a module that is at this one."""
    for op in operations(module):
        own = _level(op)
        if own is not None and own != level:
            raise PassError(
                f"{op.name} belongs to the {own} level, but the module is at the {level} level"
            )
        if isinstance(op, GraphOp) and level in (ONNX, PROGRAM):
            raise PassError(f"a module of the {level} level holds no {op.name}")
