"""Tests static counts of work in kernels, and of arena memory in use."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from onnx import numpy_helper, parser
from xdsl.dialects import func
from xdsl.dialects.builtin import IndexType, MemRefType, ModuleOp, StringAttr

from popgraph.compiler import load, lower, parse_ir
from popgraph.dialects import element_types
from popgraph.dialects.tile import CallOp, ProgramOp
from popgraph.dialects.tile.program.lifetimes import bytes_in_use, bytes_moved, bytes_touched, calls
from popgraph.dialects.tile.program.work import Counter, Work, multiply_adds, size, written
from popgraph.passes.base import Compilation
from popgraph.passes.onnx.infer_shapes import specialise
from popgraph.passes.options import Options
from popgraph.support import dtypes
from popgraph.support.machine import TARGETS
from popgraph.testing import Network, build_network, networks

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_bytes_of_types() -> None:
    """Types of one byte or less take a byte, as in NumPy; types without a size are refused."""
    for dtype in dtypes.DTYPES:
        if element_types.is_number(type_ := element_types.to_ir(dtype)):
            assert size(MemRefType(type_, [2, 3])) == 6 * dtype.numpy.itemsize
    assert size(MemRefType(IndexType(), [3])) == 24
    with pytest.raises(KeyError):
        size(MemRefType(StringAttr("text"), [3]))


def parsed(text: str) -> ModuleOp:
    return parse_ir(text, Compilation())


def call(body: str, chunks: int = 1) -> Work:
    """The work of one call of a kernel on 64 floats."""
    module = parsed(f"""
func.func private @kernel(%chunk: index, %x: memref<64xf32>) {{
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %four = arith.constant 4 : index
  %ten = arith.constant 10 : index
  {body}
  func.return
}}
tile.program @main arena 0 : i64 persistent 0 : i64 lower_bound 0 : i64 prepare {{
^bb0:
}} body {{
  %x = tile.buffer "input" at 0 : i64 named <"x"> : memref<64xf32>
  tile.call @kernel chunks {chunks} : i64(%x) : memref<64xf32>
}}""")
    (program,) = (op for op in module.ops if isinstance(op, ProgramOp))
    (only,) = calls(program)
    return Counter(module).call(only)


def test_work_of_vectors_counts_all_lanes() -> None:
    found = call("""
  %v = vector.load %x[%zero] : memref<64xf32>, vector<16xf32>
  %w = vector.fma %v, %v, %v : vector<16xf32>
  %y = math.exp %w : vector<16xf32>
  vector.store %y, %x[%zero] : memref<64xf32>, vector<16xf32>""")
    assert found == Work(flops=48, loaded=64, stored=64, instructions=4)


def test_work_of_nested_loops_multiplies() -> None:
    found = call("""
  scf.for %i = %zero to %ten step %four {
    scf.for %j = %zero to %four step %one {
      %v = memref.load %x[%j] : memref<64xf32>
      %w = arith.addf %v, %v : f32
    }
  }""")
    assert found == Work(flops=12, loaded=48, instructions=24)


def test_bounds_may_depend_on_other_loops_and_the_chunk() -> None:
    found = call(
        """
  %first = arith.muli %chunk, %four : index
  %after = arith.addi %first, %four : index
  %last = arith.minsi %after, %ten : index
  scf.for %i = %first to %last step %one {
    scf.for %j = %zero to %i step %one {
      %v = memref.load %x[%j] : memref<64xf32>
    }
  }""",
        chunks=3,
    )
    assert found.loaded == 4 * sum(range(10))


def test_conditional_work_counts_only_if_taken() -> None:
    found = call("""
  scf.for %i = %zero to %ten step %one {
    %small = arith.cmpi slt, %i, %four : index
    scf.if %small {
      %v = memref.load %x[%i] : memref<64xf32>
    }
  }""")
    assert found.loaded == 4 * 4


def planned(module: ModuleOp, compilation: Compilation) -> tuple[ModuleOp, ProgramOp]:
    lower(module, compilation, Options(machine=TARGETS["avx2"]))
    (program,) = (op for op in module.ops if isinstance(op, ProgramOp))
    return module, program


@given(networks())
def test_the_peak_of_live_bytes_is_the_lower_bound_of_the_plan(network: Network) -> None:
    compilation = Compilation()
    module, program = planned(build_network(network, compilation.weights), compilation)
    if program.prepare.block.is_empty:
        used = bytes_in_use(program, Counter(module))
        assert max(used, default=0) == program.lower_bound.value.data


def test_work_of_a_network_is_that_of_its_matmuls() -> None:
    module, compilation = load(EXAMPLES / "mlp.pgraph")
    specialise(module, {"x": (1, 64)}, compilation.weights)
    lower(module, compilation, Options(), until="graphcore-to-structured")
    assert multiply_adds(module) == (64 * 32 + 32 * 10)
    module, program = planned(module, compilation)
    work = Counter(module).calls(program.body.block.ops)
    assert multiply_adds(module) == 0
    assert 2 * (64 * 32 + 32 * 10) <= work.flops <= 2.2 * (64 * 32 + 32 * 10)


RECURRENT = """<ir_version: 8, opset_import: ["": 18]>
g (float[5, 1, 3] x, float[1, 16, 3] w, float[1, 16, 4] r, bool c) => (float[1, 1, 4] y) {
  u, h = LSTM<hidden_size = 4>(x, w, r)
  y = If (c) <
    then_branch = t () => (float[1, 1, 4] a) { m = MatMul(h, v)  a = MatMul(m, v) },
    else_branch = e () => (float[1, 1, 4] b) { b = MatMul(h, v) }
  >
}"""


def test_multiply_adds_of_loops_and_branches() -> None:
    made = parser.parse_model(RECURRENT)
    square = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)
    made.graph.initializer.append(numpy_helper.from_array(square, "v"))
    module, compilation = load(made)
    lower(module, compilation, until="graphcore-to-structured")
    assert multiply_adds(module) == (5 * 16 * (3 + 4) + 2 * 4 * 4)


def test_only_results_are_written_and_buffers_count_once() -> None:
    module, compilation = load(EXAMPLES / "mlp.pgraph")
    specialise(module, {"x": (1, 64)}, compilation.weights)
    module, program = planned(module, compilation)
    first = next(op for op in program.body.block.ops if isinstance(op, CallOp))
    (function,) = (
        op
        for op in module.ops
        if isinstance(op, func.FuncOp) and op.sym_name.data == first.callee.string_value()
    )
    assert written(function) == {len(first.arguments) - 1}
    owners = [value.owner for value in first.arguments]
    assert bytes_touched(owners) == 4 * (64 + 64 * 32 + 32 + 32)
    assert bytes_touched(owners + owners) == bytes_touched(owners)


def test_unknown_kernels_have_no_count() -> None:
    with pytest.raises(KeyError):
        Counter(parsed("builtin.module {}")).function("kernel")


LOOPED = """
pg.graph @main inputs [#pg.bytes<"x">] {{
^bb0(%x : tensor<4x4xf32>):
  %y = graphcore.loop trips {turns} carried (%x) : (tensor<4x4xf32>) -> tensor<4x4xf32> {{
  ^bb0(%i : tensor<i64>, %h : tensor<4x4xf32>):
    %n = graphcore.mat_mul %h, %h : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    pg.yield %n : tensor<4x4xf32>
  }}
  pg.return [#pg.bytes<"y">], %y : tensor<4x4xf32>
}}
"""


def test_all_iterations_of_a_loop_count() -> None:
    counts, moved = [], []
    for turns in (50, 100):
        compilation = Compilation()
        module = parse_ir(LOOPED.format(turns=turns), compilation)
        lower(module, compilation, Options(), until="graphcore-to-structured")
        counts.append(multiply_adds(module))
        lower(module, compilation, Options(machine=TARGETS["avx2"]))
        program = next(op for op in module.ops if isinstance(op, ProgramOp))
        moved.append(bytes_moved(program, Counter(module)))
    assert counts == [50 * 4**3, 100 * 4**3]
    assert 0 < 2 * moved[0] == moved[1]
