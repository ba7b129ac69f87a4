"""Tests the recognition of IR levels, and the refusal of operations of other levels."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import ModuleType

import pytest
from xdsl.dialects.builtin import ModuleOp

from popgraph.builder import pgraph
from popgraph.compiler import lower
from popgraph.dialects import graphcore
from popgraph.dialects.levels import LEVELS, MEANINGS, check_level, level_of, operations
from popgraph.passes.base import Compilation
from popgraph.support.errors import PassError

TEXT = """opset 21
graph g(x: f32[2, 4, 8, 8]) -> y {
    weight w: f32[4, 4, 3, 3] = normal(seed=1)
    y = Concat(Relu(Conv(x, w, pads=[1, 1, 1, 1])), x, axis=1)
}
"""


def at(level: str) -> ModuleOp:
    document = pgraph.parse(TEXT)
    return lower(document.module, Compilation(document.weights), level=level)


@pytest.mark.parametrize("level", LEVELS)
def test_a_lowered_module_is_at_its_level(level: str) -> None:
    module = at(level)
    assert level_of(module) == level
    check_level(module, level)
    assert MEANINGS[level]


@pytest.mark.parametrize(("own", "other"), list(itertools.permutations(LEVELS, 2)))
def test_a_module_is_not_at_another_level(own: str, other: str) -> None:
    module = at(own)
    with pytest.raises(PassError, match="level"):
        check_level(module, other)


def test_an_operation_of_another_level_is_named() -> None:
    structured, loops = at("structured"), at("loops")
    (left,) = (op for op in operations(structured) if op.name == "tile.reduce")
    (graph,) = (op for op in loops.ops if op.name == "pg.graph")
    clone = left.clone(dict.fromkeys(left.operands, graph.body.block.args[0]))
    graph.body.block.insert_op_before(clone, graph.body.block.first_op)  # type: ignore[arg-type]
    with pytest.raises(PassError, match=r"tile\.reduce belongs to the structured level"):
        check_level(loops, "loops")
    assert level_of(loops) == "structured"


def test_names_of_a_dialect_shadow_none_of_its_modules() -> None:
    folder = Path(graphcore.__file__).parent
    for name in (path.stem for path in folder.glob("*.py") if path.stem != "__init__"):
        assert isinstance(getattr(graphcore, name), ModuleType), name
