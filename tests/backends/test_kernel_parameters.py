"""Tests kernel parameters: kernels that differ in sizes only are one C function."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp

import popgraph
from popgraph import compiler
from popgraph.backends.c.print import print_kernel, statements
from popgraph.backends.c.print.module import print_kernels
from popgraph.backends.c.print.unit import Kernel
from popgraph.dialects.levels import PROGRAM
from popgraph.dialects.tile.loops.handed import hand
from popgraph.passes.base import Compilation
from popgraph.passes.options import Options
from popgraph.passes.program import hand_numbers
from popgraph.passes.program.hand_numbers import HandNumbers
from popgraph.support.arrays import Array

WIDTH = 192
RNG = np.random.default_rng(0)


def product(rows: int | str) -> ModelProto:
    """Matmul, Relu and Softmax of `rows` rows."""
    weight = RNG.standard_normal((WIDTH, WIDTH), np.float32) / 16
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Softmax", ["r"], ["y"], axis=-1),
    ]
    return _model(nodes, [rows, WIDTH], [rows, WIDTH], weight)


def normalized(rows: int) -> ModelProto:
    """LayerNormalization of `rows` rows."""
    nodes = [helper.make_node("LayerNormalization", ["x", "w"], ["y"])]
    return _model(nodes, [rows, 1024], [rows, 1024], RNG.standard_normal(1024, np.float32))


def _model(nodes: list, x: list, y: list, weight: Array) -> ModelProto:  # type: ignore[type-arg]
    shapes = (("x", x), ("y", y))
    inputs, outputs = (
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)] for name, shape in shapes
    )
    held = [numpy_helper.from_array(weight, "w")]
    graph = helper.make_graph(nodes, "g", inputs, outputs, held)
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])


def lowered(model: ModelProto) -> ModuleOp:
    module, compilation = compiler.load(model.SerializeToString())
    options = compiler.for_this_machine(Options(), 1)
    return compiler.lower(module, compilation, options, level=PROGRAM)


def kernels(model: ModelProto, *, shared: bool) -> list[Kernel]:
    return print_kernels(lowered(model), shared=shared)


def test_kernels_of_several_sizes_are_one_function() -> None:
    (small,), (large,) = (kernels(normalized(rows), shared=True) for rows in (96, 144))
    assert small.text == large.text and small.symbol == large.symbol
    assert small.numbers != large.numbers
    (small,), (large,) = (kernels(normalized(rows), shared=False) for rows in (96, 144))
    assert small.text != large.text and not small.numbers


@pytest.mark.parametrize("rows", [1, 7, 96, 100])
def test_kernel_parameters_replace_constants_only(rows: int) -> None:
    """Replacing each parameter by its value gives the C of the kernel without sharing."""
    assert_only_numbers_differ(lowered(product(rows)))


def assert_only_numbers_differ(module: ModuleOp) -> None:
    for function in module.ops:
        if not isinstance(function, func.FuncOp):
            continue
        shared, alone = (print_kernel(function, shared=each) for each in (True, False))
        text = shared.text.split("\n", 1)[1]
        for at in reversed(range(len(shared.numbers))):
            assert text.count(f"p{at};") + text.count(f" p{at} ") <= 1
            text = text.replace(f"p{at};", f"{shared.numbers[at]};")
        assert text == alone.text.split("\n", 1)[1]


def first_operand(hand: Callable[..., None]) -> Callable[..., None]:
    """Passes the first operand of a multiplication instead of the constant."""
    return lambda op, places: hand(op, [0])


def one_more(natural: Callable[..., int | None]) -> Callable[..., int]:
    """Passes a number one larger than the constant."""
    return lambda value: (natural(value) or 0) + 1


@pytest.mark.parametrize(
    ("place", "name", "bug"),
    [(hand_numbers, "hand", first_operand), (statements, "natural", one_more)],
    ids=["a computed value is passed", "another constant is passed"],
)
def test_planted_bugs_of_kernel_parameters_are_found(
    place: ModuleType, name: str, bug: Callable[[object], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, name, bug(getattr(place, name)))
    with pytest.raises(AssertionError):
        assert_only_numbers_differ(lowered(product(96)))


def sums(turns: int, inner: int) -> ModuleOp:
    """A kernel that accumulates numbers in two nested loops for each of 100 rows."""
    text = f"""
    builtin.module {{ func.func private @k(%chunk: index, %a: memref<90000xf32>) {{
      %zero = arith.constant 0 : index
      %one = arith.constant 1 : index
      %rows = arith.constant 100 : index
      %turns = arith.constant {turns} : index
      %inner = arith.constant {inner} : index
      %nothing = arith.constant 0.0 : f32
      scf.for %row = %zero to %rows step %one {{
        %start = arith.muli %row, %rows : index
        %sum = scf.for %i = %zero to %turns step %one iter_args(%s = %nothing) -> (f32) {{
          %part = scf.for %j = %zero to %inner step %one iter_args(%t = %s) -> (f32) {{
            %step = arith.muli %j, %inner : index
            %place = arith.addi %start, %step : index
            %v = memref.load %a[%place] : memref<90000xf32>
            %w = arith.addf %t, %v : f32
            scf.yield %w : f32
          }}
          scf.yield %part : f32
        }}
        memref.store %sum, %a[%row] : memref<90000xf32>
      }}
      func.return
    }} }}"""
    return compiler.parse_ir(text, Compilation())


def numbers(module: ModuleOp, step: HandNumbers) -> list[int]:
    """The numbers that callers pass to the kernel of a module."""
    step.run(Compilation(), module)
    (kernel,) = print_kernels(module, shared=True)
    return [*kernel.numbers]


@pytest.mark.parametrize(
    ("turns", "inner", "wanted"),
    [(50, 200, [100, 100, 50]), (7, 200, [100, 100, 7]), (50, 7, [100, 100]), (7, 7, [])],
)
def test_bounds_of_outer_loops_are_kernel_parameters(
    turns: int, inner: int, wanted: list[int]
) -> None:
    """Their strides, too. Inner loops keep constant bounds and strides for the compiler."""
    assert numbers(sums(turns, inner), HandNumbers(least=0)) == wanted


def test_a_kernel_with_too_many_parameters_gets_none() -> None:
    assert numbers(sums(50, 200), HandNumbers(least=0, most=2)) == []


def test_short_kernels_have_no_parameters() -> None:
    assert numbers(sums(50, 200), HandNumbers()) == []


LAYERS = """opset 21
graph layers(x: f32[1, 4, 12, 12]) -> (y) {
    weight w1: f32[6, 4, 3, 3] = he_normal(seed=1)
    weight w2: f32[8, 6, 3, 3] = he_normal(seed=2)
    weight w3: f32[8, 8, 3, 3] = he_normal(seed=3)
    h = Relu(Conv(x, w1, pads=[1, 1, 1, 1]))
    i = Relu(Conv(h, w2, pads=[1, 1, 1, 1], strides=[2, 2]))
    y = Relu(Conv(i, w3, pads=[1, 1, 1, 1]))
}
"""


def layers(optimize: str) -> ModuleOp:
    """Three convolutions with other channels, strides and images, lowered."""
    module, compilation = compiler.load(LAYERS)
    return compiler.lower(module, compilation, Options(optimize=optimize), level=PROGRAM)


def test_layers_of_one_shape_class_share_a_function_in_small_programs() -> None:
    module = layers("size")
    shared, alone = (print_kernels(module, shared=each) for each in (True, False))
    # The first and second one write halos, the last one does not.
    sums = [kernel for kernel in shared if "mulf_addf" in kernel.symbol]
    assert len(sums) == 3 and len({kernel.symbol for kernel in sums}) == 2
    assert len({kernel.symbol for kernel in alone if "mulf_addf" in kernel.symbol}) == 3
    first, second = (kernel.numbers for kernel in sums[:2])
    assert len(first) == len(second) and first != second
    columns = [*zip(first, second, strict=True)]
    assert len({*columns}) == len(columns), "constants that are always equal are one parameter"
    assert all(one != other for one, other in columns), "equal constants stay constants"


def assert_parameters_replace_constants(module: ModuleOp) -> None:
    """With the numbers in place of parameters, each kernel is the C without sharing."""
    pairs = zip(*(print_kernels(module, shared=each) for each in (True, False)), strict=True)
    for shared, alone in pairs:
        text = shared.text.split("\n", 1)[1]
        for at, number in enumerate(shared.numbers):
            text = re.sub(rf"\bp{at}\b", str(number), text)
        assert text == alone.text.split("\n", 1)[1]


@pytest.mark.parametrize("optimize", ["size", "balanced"])
def test_parameters_of_small_programs_replace_constants_only(optimize: str) -> None:
    assert_parameters_replace_constants(layers(optimize))


def one_parameter(hand: Callable[..., None]) -> Callable[..., None]:
    """Passes one number for all constants."""
    return lambda op, places, parameters: hand(op, places, [0 for _ in parameters])


def test_a_planted_bug_of_shared_functions_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hand_numbers, "hand", one_parameter(hand))
    with pytest.raises(AssertionError, match="one value a parameter"):
        assert_parameters_replace_constants(layers("size"))


def test_lengths_of_one_model_share_functions() -> None:
    model = product("n")
    weight = numpy_helper.to_array(model.graph.initializer[0])
    run = popgraph.compile(model)
    for rows in (96, 144, 97, 96):
        x = RNG.standard_normal((rows, WIDTH), np.float32)
        wanted = np.maximum(x @ weight, 0)
        wanted = np.exp(wanted - wanted.max(-1, keepdims=True))
        wanted /= wanted.sum(-1, keepdims=True)
        np.testing.assert_allclose(run(x=x)["y"], wanted, rtol=1e-4, atol=1e-6)
