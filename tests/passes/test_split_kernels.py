"""Tests that long kernels are split into short functions with the same results."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp

from popgraph.backends.c.build_program import build
from popgraph.dialects.tile import CallOp, ProgramOp
from popgraph.passes.base import Compilation
from popgraph.passes.pipeline import Options, planned
from popgraph.testing import Network, build_network
from popgraph.testing.specs import Node

PIECES = 200


def lowered(
    threads: int, *, disabled: frozenset[str] = frozenset()
) -> tuple[Compilation, ModuleOp]:
    """
    A concatenation of 200 pieces of two inputs along the inner axis; threads split the outer one.
    """
    node = Node("Concat", tuple(number % 2 for number in range(PIECES)), (("axis", 1),))
    compilation = Compilation()
    module = build_network(Network(((64, 3), (64, 5)), (node,), "f32"), compilation.weights, "y")
    for _, made in planned(Options(threads=threads, disabled=disabled)):
        made.run(compilation, module)
    return compilation, module


def calls(module: ModuleOp) -> list[CallOp]:
    (program,) = (op for op in module.ops if isinstance(op, ProgramOp))
    return [op for op in program.body.block.ops if isinstance(op, CallOp)]


@pytest.mark.parametrize("threads", [1, 2])
def test_a_concatenation_of_many_pieces_is_several_functions(threads: int) -> None:
    compilation, module = lowered(threads)
    functions = [op for op in module.ops if isinstance(op, func.FuncOp)]
    loops = [[op for op in one.body.block.ops if op.name == "scf.for"] for one in functions]
    whole = calls(lowered(threads, disabled=frozenset({"split-kernels"}))[1])
    assert len(whole) == 1 and sum(map(len, loops)) == PIECES
    assert max(map(len, loops)) <= 64 and len(calls(module)) == len(functions) == 4
    assert {call.chunks for call in calls(module)} == {whole[0].chunks}
    assert (whole[0].chunks.value.data > 1) == (threads > 1)

    rng = np.random.default_rng(0)
    x = {f"x{at}": rng.random((64, size), np.float32) for at, size in enumerate((3, 5))}
    found = build(module, compilation.weights, threads).run(x)["y"]
    np.testing.assert_array_equal(found, np.tile(np.hstack([x["x0"], x["x1"]]), PIECES // 2))
