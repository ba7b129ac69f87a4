"""Tests the reference backend on kernels, and its bounds checks."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.parser import Parser

from popgraph.backends.reference import evaluate
from popgraph.passes.base import Compilation
from popgraph.support.arrays import Array

CONSTANTS = """
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c3 = arith.constant 3 : index
  %c4 = arith.constant 4 : index
  %c12 = arith.constant 12 : index
"""


def module(text: str) -> ModuleOp:
    made = Parser(Compilation(), text).parse_module()
    made.verify()
    return made


def run(body: str, size: int, *arrays: Array, chunks: int = 1) -> Array:
    """The `size` elements that a kernel writes, given operands %a, %b, ... of f32."""
    names = "abc"[: len(arrays)]
    graph_arguments = ", ".join(
        f"%x{name}: tensor<{array.size}xf32>" for name, array in zip(names, arrays, strict=True)
    )
    memories = "".join(
        f"%{name}: memref<{array.size}xf32>, " for name, array in zip(names, arrays, strict=True)
    )
    operands = ", ".join(f"%x{name}" for name in names)
    types = ", ".join(f"tensor<{array.size}xf32>" for array in arrays)
    inputs = ", ".join(f'#pg.bytes<"{name}">' for name in names)
    text = f"""builtin.module {{
      func.func private @kernel(%chunk: index, {memories}%r: memref<{size}xf32>) {{
        {CONSTANTS}
        {body}
        func.return
      }}
      pg.graph @main inputs [{inputs}] {{
      ^bb0({graph_arguments}):
        %y = tile.launch @kernel chunks {chunks} : i64 inplace [] ({operands})
          : ({types}) -> tensor<{size}xf32>
        pg.return [#pg.bytes<"y">], %y : tensor<{size}xf32>
      }} }}"""
    flat = {name: array.reshape(-1) for name, array in zip(names, arrays, strict=True)}
    outputs, _ = evaluate(module(text), flat, Compilation().weights)
    return outputs["y"]


def ones(size: int) -> Array:
    return np.ones(size, np.float32)


MATMUL = """
  scf.for %i = %c0 to %c12 step %c1 {
    %row = arith.muli %i, %c12 : index
    scf.for %j = %c0 to %c12 step %c1 {
      %zero = arith.constant 0.0 : f32
      %sum = scf.for %k = %c0 to %c12 step %c1 iter_args(%acc = %zero) -> (f32) {
        %ik = arith.addi %row, %k : index
        %kr = arith.muli %k, %c12 : index
        %kj = arith.addi %kr, %j : index
        %p = memref.load %a[%ik] : memref<144xf32>
        %q = memref.load %b[%kj] : memref<144xf32>
        %pq = arith.mulf %p, %q : f32
        %next = arith.addf %acc, %pq : f32
        scf.yield %next : f32
      }
      %ij = arith.addi %row, %j : index
      memref.store %sum, %r[%ij] : memref<144xf32>
    }
  }
"""


def test_loops_compute_strictly_in_float32() -> None:
    generator = np.random.default_rng(0)
    a, b = generator.standard_normal((2, 12, 12)).astype(np.float32)
    expected = np.zeros((12, 12), np.float32)
    for k in range(12):
        expected += a[:, k : k + 1] * b[k : k + 1]
    found = run(MATMUL, 144, a, b).reshape(12, 12)
    np.testing.assert_array_equal(found, expected)
    in_double = a.astype(np.float64) @ b.astype(np.float64)
    assert (found != in_double.astype(np.float32)).any(), (
        "the values do not distinguish f32 from f64"
    )


def test_chunks_write_their_own_slice() -> None:
    body = """
      %base = arith.muli %chunk, %c2 : index
      scf.for %i = %c0 to %c2 step %c1 {
        %at = arith.addi %base, %i : index
        %v = memref.load %a[%at] : memref<4xf32>
        memref.store %v, %r[%at] : memref<4xf32>
      }"""
    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(run(body, 4, x, chunks=2), x)
    only_first = run(body, 4, x, chunks=1)
    assert np.isnan(only_first[2:]).all(), "unwritten memory is NaN"


def test_a_loop_without_iterations_gives_its_initial_values() -> None:
    body = """
      %one = arith.constant 1.0 : f32
      %behind = arith.addi %chunk, %c4 : index
      %v = scf.for %i = %c3 to %c3 step %c1 iter_args(%acc = %one) -> (f32) {
        %bad = memref.load %a[%behind] : memref<1xf32>
        scf.yield %bad : f32
      }
      memref.store %v, %r[%c0] : memref<1xf32>"""
    assert run(body, 1, ones(1)) == [1]


def test_loop_carried_values_are_assigned_together() -> None:
    body = """
      %zero = arith.constant 0.0 : f32
      %one = arith.constant 1.0 : f32
      %p, %q = scf.for %i = %c0 to %c3 step %c1 iter_args(%s = %zero, %t = %one) -> (f32, f32) {
        scf.yield %t, %s : f32, f32
      }
      memref.store %p, %r[%c0] : memref<2xf32>
      memref.store %q, %r[%c1] : memref<2xf32>"""
    np.testing.assert_array_equal(run(body, 2, ones(1)), [1, 0])


def test_if_takes_one_branch() -> None:
    body = """
      scf.for %i = %c0 to %c3 step %c1 {
        %small = arith.cmpi ult, %i, %c1 : index
        %v = scf.if %small -> (f32) {
          %f = arith.constant 5.0 : f32
          scf.yield %f : f32
        } else {
          %g = memref.load %a[%c0] : memref<1xf32>
          scf.yield %g : f32
        }
        memref.store %v, %r[%i] : memref<3xf32>
      }"""
    np.testing.assert_array_equal(run(body, 3, ones(1)), [5, 1, 1])


VECTORS = """
  %v = vector.load %a[%c1] : memref<6xf32>, vector<4xf32>
  %two = arith.constant 2.0 : f32
  %twos = vector.broadcast %two : f32 to vector<4xf32>
  %w = vector.fma %v, %twos, %v : vector<4xf32>
  %e = vector.extract %w[3] : f32 from vector<4xf32>
  %n = arith.negf %e : f32
  %u = vector.insert %n, %w[0] : f32 into vector<4xf32>
  vector.store %u, %r[%c0] : memref<4xf32>, vector<4xf32>
"""


def test_vectors() -> None:
    found = run(VECTORS, 4, np.arange(6, dtype=np.float32))
    np.testing.assert_array_equal(found, [-12, 6, 9, 12])


def test_a_shuffle_picks_lanes_of_two_vectors() -> None:
    body = """
      %v = vector.load %a[%c0] : memref<6xf32>, vector<4xf32>
      %w = vector.load %a[%c2] : memref<6xf32>, vector<4xf32>
      %p = vector.shuffle %v, %w [1, 7, 4, 0] : vector<4xf32>, vector<4xf32>
      vector.store %p, %r[%c0] : memref<4xf32>, vector<4xf32>"""
    found = run(body, 4, np.arange(6, dtype=np.float32))
    np.testing.assert_array_equal(found, [1, 5, 2, 0])


def test_vectors_are_values_not_views() -> None:
    body = """
      %v = vector.load %a[%c0] : memref<4xf32>, vector<4xf32>
      vector.store %v, %r[%c0] : memref<4xf32>, vector<4xf32>
      %old = vector.load %r[%c0] : memref<4xf32>, vector<4xf32>
      %zero = arith.constant 0.0 : f32
      %zeros = vector.broadcast %zero : f32 to vector<4xf32>
      vector.store %zeros, %r[%c0] : memref<4xf32>, vector<4xf32>
      vector.store %old, %r[%c0] : memref<4xf32>, vector<4xf32>"""
    np.testing.assert_array_equal(run(body, 4, ones(4)), ones(4))


def test_scratch_memory_is_unwritten() -> None:
    body = """
      %s = memref.alloca() : memref<2x3xf32>
      %f = memref.load %a[%c0] : memref<1xf32>
      memref.store %f, %s[%c1, %c2] : memref<2x3xf32>
      %g = memref.load %s[%c1, %c2] : memref<2x3xf32>
      memref.store %g, %r[%c0] : memref<2xf32>
      %h = memref.load %s[%c0, %c2] : memref<2x3xf32>
      memref.store %h, %r[%c1] : memref<2xf32>"""
    found = run(body, 2, ones(1))
    assert found[0] == 1 and np.isnan(found[1])


AT = "%m = arith.addi %chunk, %c{} : index\n"
"""An index unknown before the run: the verifier refuses constant ones."""
LOAD = "%v = memref.load %a[{}] : memref<4xf32>\nmemref.store %v, %r[%c0] : memref<4xf32>"
OUTSIDE = {
    "load behind the end": AT.format(4) + LOAD.format("%m"),
    "load before the start": "%m = arith.subi %c0, %c1 : index\n" + LOAD.format("%m"),
    "store": AT.format(4)
    + "%f = arith.constant 0.0 : f32\nmemref.store %f, %r[%m] : memref<4xf32>",
    "inner index of two": AT.format(3)
    + """%s = memref.alloca() : memref<2x2xf32>
        %v = memref.load %s[%c0, %m] : memref<2x2xf32>""",
    "vector load": AT.format(1) + "%v = vector.load %a[%m] : memref<4xf32>, vector<4xf32>",
    "vector store": AT.format(1)
    + """%v = vector.load %a[%c0] : memref<4xf32>, vector<4xf32>
        vector.store %v, %r[%m] : memref<4xf32>, vector<4xf32>""",
    "lane": """%v = vector.load %a[%c0] : memref<4xf32>, vector<4xf32>
        %e = vector.extract %v[%c4] : f32 from vector<4xf32>""",
    "inserted lane": """%v = vector.load %a[%c0] : memref<4xf32>, vector<4xf32>
        %f = arith.constant 0.0 : f32
        %e = vector.insert %f, %v[%c4] : f32 into vector<4xf32>""",
}


@pytest.mark.parametrize("body", OUTSIDE.values(), ids=OUTSIDE.keys())
def test_access_outside_memory_is_an_error(body: str) -> None:
    with pytest.raises(AssertionError, match=r"is outside a memory of shape .*(memref|vector)\."):
        run(body, 4, ones(4))


def test_operands_cannot_be_written() -> None:
    body = "%f = arith.constant 0.0 : f32\nmemref.store %f, %a[%c0] : memref<4xf32>"
    with pytest.raises(ValueError, match="read-only"):
        run(body, 4, ones(4))
