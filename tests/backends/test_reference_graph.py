"""Tests the reference backend on graphs and planned programs."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.parser import Parser
from xdsl.utils.exceptions import VerifyException

from popgraph.backends.reference import evaluate, signature
from popgraph.backends.reference.executable import ReferenceExecutable
from popgraph.passes.base import Compilation
from popgraph.support.errors import BackendError, RunError

WEIGHTS = Compilation().weights


def parse(text: str) -> ModuleOp:
    module = Parser(Compilation(), text).parse_module()
    module.verify()
    return module


def bits(*numbers: float) -> str:
    return np.array(numbers, np.float32).tobytes().hex()


SWAP = f"""
builtin.module {{
  pg.graph @main inputs [#pg.bytes<"x">] {{
  ^bb0(%x: tensor<2xf32>):
    %p = pg.variable #pg.bytes<"p"> = #pg.data<"{bits(1, 2)}" : tensor<2xf32>>
    pg.update <"q">, %p : tensor<2xf32>
    %q = pg.variable #pg.bytes<"q"> = #pg.data<"{bits(3, 4)}" : tensor<2xf32>>
    %s = graphcore.add %q, %x : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    pg.update <"p">, %s : tensor<2xf32>
    %k = pg.prepare {{
      %c = pg.constant #pg.data<"{bits(10, 20)}" : tensor<2xf32>>
      %n = graphcore.neg %c : (tensor<2xf32>) -> tensor<2xf32>
      pg.yield %n : tensor<2xf32>
    }} : tensor<2xf32>
    %y = graphcore.add %p, %k : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<2xf32>
  }}
}}
"""
ONE = {"x": np.ones(2, np.float32)}


def test_updates_take_effect_together_at_the_end_of_the_step() -> None:
    module = parse(SWAP)
    outputs, state = evaluate(module, ONE, WEIGHTS)
    np.testing.assert_array_equal(outputs["y"], [-9, -18])
    np.testing.assert_array_equal(state["p"], [4, 5])
    np.testing.assert_array_equal(state["q"], [1, 2])
    outputs, state = evaluate(module, ONE, WEIGHTS, state)
    np.testing.assert_array_equal(outputs["y"], [-6, -15])
    np.testing.assert_array_equal(state["p"], [2, 3])


def test_signature() -> None:
    types = signature(parse(SWAP))
    assert {name: str(type_) for name, type_ in types.items()} == {"x": "tensor<2xf32>"}


def test_executable_keeps_variables() -> None:
    program = ReferenceExecutable(parse(SWAP), WEIGHTS)
    assert [(name, row[0].name, row[1]) for name, row in program.variables.items()] == [
        ("p", "f32", (2,)),
        ("q", "f32", (2,)),
    ]
    np.testing.assert_array_equal(program.run(ONE)["y"], [-9, -18])
    np.testing.assert_array_equal(program.run(ONE)["y"], [-6, -15])
    program.write("p", np.array([100, 200], np.float32))
    np.testing.assert_array_equal(program.run(ONE)["y"], [90, 180])
    np.testing.assert_array_equal(program.read("q"), [100, 200])


def test_executable_returns_copies_of_variables() -> None:
    program = ReferenceExecutable(parse(SWAP), WEIGHTS)
    program.read("p")[:] = 7
    np.testing.assert_array_equal(program.read("p"), [1, 2])


def test_executable_names_wrong_inputs_and_variables() -> None:
    program = ReferenceExecutable(parse(SWAP), WEIGHTS)
    with pytest.raises(RunError, match="input 'x' is missing"):
        program.run({})
    with pytest.raises(RunError, match="input 'x' must have the shape 2, not 3"):
        program.run({"x": np.ones(3, np.float32)})
    with pytest.raises(RunError, match="no variable 'r'"):
        program.read("r")
    with pytest.raises(RunError, match="variable 'p' is f32 of shape 2, not float64 of shape 2"):
        program.write("p", np.ones(2))


def test_a_module_without_a_graph_is_refused() -> None:
    with pytest.raises(BackendError, match="no unique graph to run"):
        evaluate(parse("builtin.module {}"), {}, WEIGHTS)


def planned(arena: int = 16, offset: int = 0) -> str:
    """y = 2x through the arena; the variable doubles in each step; z is prepared once."""
    double = """
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c4 = arith.constant 4 : index
      scf.for %i = %c0 to %c4 step %c1 {
        %v = memref.load %a[%i] : memref<4xf32>
        %w = arith.addf %v, %v : f32
        memref.store %w, %b[%i] : memref<4xf32>
      }
      func.return"""
    two, four = '<"n">', "memref<4xf32>"
    return f"""
builtin.module {{
  func.func private @double(%chunk: index, %a: {four}, %b: {four}) {{ {double} }}
  func.func private @copy(%chunk: index, %a: {four}, %b: {four}) {{
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c4 = arith.constant 4 : index
      scf.for %i = %c0 to %c4 step %c1 {{
        %v = memref.load %a[%i] : memref<4xf32>
        memref.store %v, %b[%i] : memref<4xf32>
      }}
      func.return
  }}
  tile.program @main arena {arena} persistent 16 lower_bound 16 prepare {{
    %c = tile.buffer "constant" at 0 named <""> holding
      #pg.data<"{bits(1, 2, 3, 4)}" : tensor<4xf32>> : {four}
    %k = tile.buffer "persistent" at 0 named <""> : {four}
    tile.call @double chunks 1 (%c, %k) : {four}, {four}
  }} body {{
    %xs = tile.buffer "input" at 0 named <"x"> : memref<2x2xf32>
    %ys = tile.buffer "output" at 0 named <"y"> : memref<2x2xf32>
    %zs = tile.buffer "output" at 0 named <"z"> : {four}
    %n = tile.buffer "variable" at 0 named {two} holding
      #pg.data<"{bits(1, 1, 1, 1)}" : tensor<4xf32>> : {four}
    %x = tile.buffer "input" at 0 named <"x"> : {four}
    %y = tile.buffer "output" at 0 named <"y"> : {four}
    %t = tile.buffer "arena" at {offset} named <""> : {four}
    %k = tile.buffer "persistent" at 0 named <""> : {four}
    tile.call @copy chunks 1 (%x, %t) : {four}, {four}
    tile.call @double chunks 1 (%t, %y) : {four}, {four}
    tile.call @copy chunks 1 (%k, %zs) : {four}, {four}
    tile.call @double chunks 1 (%n, %n) : {four}, {four}
  }}
}}
"""


def test_a_planned_program_runs() -> None:
    x = np.arange(4, dtype=np.float32).reshape(2, 2)
    program = ReferenceExecutable(parse(planned()), WEIGHTS)
    assert program.inputs["x"][1] == (2, 2) and list(program.outputs) == ["y", "z"]
    for step in (2, 4):
        found = program.run({"x": x})
        np.testing.assert_array_equal(found["y"], 2 * x)
        np.testing.assert_array_equal(found["z"], [2, 4, 6, 8])
        np.testing.assert_array_equal(program.read("n"), [step] * 4)


@pytest.mark.parametrize(("arena", "offset"), [(15, 0), (16, 4)])
def test_a_buffer_outside_its_memory_is_refused(arena: int, offset: int) -> None:
    with pytest.raises(VerifyException, match=f"exceeds the {arena} bytes of arena memory"):
        parse(planned(arena, offset))


def test_inputs_of_a_program_cannot_be_written() -> None:
    text = planned().replace("(%t, %y)", "(%t, %x)")
    with pytest.raises(ValueError, match="read-only"):
        evaluate(parse(text), {"x": np.ones((2, 2), np.float32)}, WEIGHTS)
