"""Tests inputs whose values decide structure: detection, specialization, eviction, caching."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner
from xdsl.ir import SSAValue
from xdsl.utils.test_value import create_ssa_value

import popgraph
from popgraph import compiler, open_model, start
from popgraph.backends.base import Executable
from popgraph.backends.c.run import warm_start
from popgraph.backends.interface import KnownModel, KnownProgram
from popgraph.builder.onnx.read import import_model
from popgraph.cli import app
from popgraph.compiler import requests
from popgraph.dialects.onnx import op_class
from popgraph.dialects.onnx.types import UNKNOWN
from popgraph.operators.record import structural_operands
from popgraph.passes.base import Compilation
from popgraph.passes.onnx.structural_inputs import structural_inputs
from popgraph.passes.optimizer_spec import SGD, Scalar
from popgraph.passes.options import Options, Training
from popgraph.support.arrays import Array
from popgraph.support.errors import (
    DifferentiationError,
    PopgraphError,
    RunError,
    TypeMismatchError,
    UnsupportedError,
)
from popgraph.support.shapes import prod
from popgraph.support.warnings import ManyProgramsWarning
from tests.passes.test_onnx_to_graphcore import as_array, compare, todays_node_cases
from tests.sampling import WHOLE
from tests.test_node_cases import Part, batches, differences, together

X = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)
BACKENDS = ("c", "reference")

Shape = Sequence[int | str]


def graph(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, tuple[int, Shape]],
    outputs: Sequence[str] = ("y",),
    initializers: Mapping[str, Array] | None = None,
    **more: Any,
) -> onnx.ModelProto:
    """A model of opset 18; initializers among the inputs can be overridden."""
    made = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info(name, *type_) for name, type_ in inputs.items()],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in (initializers or {}).items()],
    )
    return helper.make_model(
        made, opset_imports=[helper.make_opsetid("", 18)], ir_version=9, **more
    )


FLOAT, INT, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def reshaping(sizes: Shape = (4, 6), count: int | str = 2) -> onnx.ModelProto:
    """The model y = relu(reshape(x, shape))."""
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["r"], name="here"),
        helper.make_node("Relu", ["r"], ["y"]),
    ]
    return graph(nodes, {"x": (FLOAT, sizes), "shape": (INT, [count])})


def found(model: onnx.ModelProto) -> tuple[str, ...]:
    compilation = Compilation()
    return structural_inputs(import_model(model, compilation.weights), compilation.weights)


# ONNX's node cases with fed inputs

AT_LEAST = 180
"""Number of cases with structural inputs that pass if all run; raise it when more do."""
SHARES = 8
"""A run takes every eighth case of each operator, `make test-all` all of them."""
IN_C = 3
"""One of these in this many also runs in C."""


def fed_cases() -> Iterator[Part]:
    """The cases in which an input decides structure."""
    for case in todays_node_cases("ONNX's node cases, fed", SHARES):
        infos = case.model.graph.input
        if all(info.type.HasField("tensor_type") for info in infos) and found(case.model):
            for inputs, outputs in case.data_sets:
                names, arrays = (info.name for info in infos), map(as_array, inputs)
                given = dict(zip(names, arrays, strict=False))
                yield Part(case, outputs, case.model, given)


def test_node_cases_with_fed_inputs() -> None:
    right, wrong = [], []
    for part in fed_cases():
        try:
            result = popgraph.compile(part.model, backend="reference")(part.given)
        except UnsupportedError as error:
            assert "must be constant" not in error.what, part.case.name
            continue
        difference = compare(part.case, result, part.outputs)
        wrong += [f"{part.case.name}: {difference}"] if difference else []
        right.append(part)
    assert not wrong, "\n".join(wrong)
    assert len(right) >= (AT_LEAST if WHOLE else AT_LEAST // SHARES)
    for batch in batches(right[::IN_C]):
        made, given = together(batch)
        assert not list(differences(batch, popgraph.compile(made, threads=2), given))


def test_lowerings_declare_structural_operands() -> None:
    def value() -> SSAValue:
        return create_ssa_value(UNKNOWN)

    reshape = op_class("Reshape", 18).make([value(), value()], {}, {}, ["y"], [UNKNOWN], {})
    relu = op_class("Relu", 18).make([value()], {}, {}, ["y"], [UNKNOWN], {})
    assert structural_operands(reshape) == {1}
    assert not structural_operands(relu)


# Detection of structural inputs


def test_values_are_followed_through_arithmetic() -> None:
    nodes = [
        helper.make_node("Cast", ["n"], ["wide"], to=INT),
        helper.make_node("Mul", ["wide", "two"], ["twice"]),
        helper.make_node("Concat", ["twice", "rest"], ["both"], axis=0),
        helper.make_node("Reshape", ["x", "both"], ["y"]),
    ]
    constants = {"two": np.array([2]), "rest": np.array([-1])}
    model = graph(nodes, {"x": (FLOAT, [4, 6]), "n": (TensorProto.INT32, [1])}, ["y"], constants)
    assert found(model) == ("n",)
    run = popgraph.compile(model)
    for number in (1, 2, 4):
        given = {"x": X, "n": np.array([number], np.int32)}
        np.testing.assert_array_equal(run(given)["y"], X.reshape(2 * number, -1))


def test_shape_operators_make_nothing_structural() -> None:
    nodes = [
        helper.make_node("Shape", ["tokens"], ["s"]),
        helper.make_node("Expand", ["x", "s"], ["y"]),
    ]
    model = graph(nodes, {"x": (FLOAT, [1]), "tokens": (INT, ["N"])})
    assert found(model) == ()


def test_large_inputs_are_data() -> None:
    nodes = [
        helper.make_node("ReduceMax", ["t"], ["m"], keepdims=1),
        helper.make_node("Reshape", ["x", "m"], ["y"]),
    ]
    small, large = (graph(nodes, {"x": (FLOAT, [6]), "t": (INT, [n])}) for n in (256, 257))
    assert found(small) == ("t",)
    for backend in BACKENDS:
        run = popgraph.compile(small, backend=backend)
        assert run(x=X[0], t=np.arange(-249, 7))["y"].shape == (6,)
    assert found(large) == ()
    with pytest.raises(UnsupportedError, match="shape of Reshape must be constant"):
        compiler.lower(*compiler.load(large))
    run = popgraph.compile(large)
    assert run.structural == ()
    assert run(x=X[0], t=np.arange(-250, 7))["y"].shape == (6,)
    unknown = popgraph.compile(graph(nodes, {"x": (FLOAT, [6]), "t": (INT, ["N"])}))
    assert unknown(x=X[0], t=np.arange(7))["y"].shape == (6,)
    assert unknown(x=X[0], t=np.full(257, 6))["y"].shape == (6,)


def test_values_of_unknown_operators_are_not_followed() -> None:
    nodes = [
        helper.make_node("Mystery", ["t", "n"], ["places"], domain="com.example"),
        helper.make_node("Shape", ["places"], ["s"]),
        helper.make_node("Expand", ["x", "s"], ["y"]),
    ]
    model = graph(nodes, {"x": (FLOAT, [1]), "t": (INT, [3, 1]), "n": (INT, [1])})
    assert found(model) == ()
    with pytest.raises(UnsupportedError, match="Mystery"):
        popgraph.compile(model)


def test_structural_inputs_of_functions() -> None:
    """Structural values in a function of the model, and in an operator with a function body."""
    body = [
        helper.make_node("Shape", ["unused"], ["s"]),
        helper.make_node("Concat", ["to", "s"], ["both"], axis=0),
        helper.make_node("Reshape", ["a", "both"], ["b"]),
    ]
    opset = [helper.make_opsetid("", 18)]
    function = helper.make_function("own", "shaped", ["a", "to", "unused"], ["b"], body, opset)
    call = helper.make_node("shaped", ["x", "n", "t"], ["y"], domain="own")
    types = {"x": (FLOAT, [4, 6]), "n": (INT, [1]), "t": (INT, [6])}
    model = graph([call], types, functions=[function])
    model.opset_import.append(helper.make_opsetid("own", 1))
    assert found(model) == ("n",)
    given = {"x": X, "n": np.array([4]), "t": np.zeros(6, np.int64)}
    np.testing.assert_array_equal(popgraph.compile(model)(given)["y"], X)
    crop = helper.make_node("CenterCropPad", ["x", "to"], ["y"])
    model = graph([crop], {"x": (FLOAT, [4, 6]), "to": (INT, [2])})
    assert found(model) == ("to",)
    cropped = popgraph.compile(model)(x=X, to=np.array([2, 4]))["y"]
    np.testing.assert_array_equal(cropped, X[1:3, 1:5])


def test_inputs_that_need_not_be_known_are_data() -> None:
    nodes = [
        helper.make_node("Trilu", ["x", "k"], ["t"]),
        helper.make_node("Pad", ["t", "pads", "value"], ["p"]),
        helper.make_node("Clip", ["p", "low", ""], ["y"]),
    ]
    types = {"x": (FLOAT, [4, 6]), "k": (INT, []), "value": (FLOAT, []), "low": (FLOAT, [])}
    model = graph(nodes, types, ["y"], {"pads": np.array([1, 0, 0, 2])})
    assert found(model) == ()
    for backend in BACKENDS:
        run = popgraph.compile(model, backend=backend)
        assert run.static is not None
        for k in (-9, -1, 0, 2, 9):
            given = [np.array(k), np.array(3 + k, np.float32), np.array(-1, np.float32)]
            wide = np.pad(np.triu(X, k), ((1, 0), (0, 2)), constant_values=3 + k)
            result = run(x=X, k=given[0], value=given[1], low=given[2])["y"]
            np.testing.assert_array_equal(result, np.maximum(wide, -1))


def dropping(mode: Array | None) -> onnx.ModelProto:
    node = helper.make_node("Dropout", ["x", "ratio", "mode"], ["y", "mask"])
    types: dict[str, tuple[int, Shape]] = {"x": (FLOAT, [100, 100]), "ratio": (FLOAT, [])}
    if mode is None:
        return graph([node], types | {"mode": (BOOL, [])}, ["y", "mask"])
    return graph([node], types, ["y", "mask"], {"mode": mode})


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_ratio_of_dropout_is_data_and_its_mode_structural(backend: str) -> None:
    x = np.ones((100, 100), np.float32)
    assert found(dropping(np.array(True))) == ()
    assert found(dropping(None)) == ("mode",)
    run = popgraph.compile(dropping(None), backend=backend)
    half = np.array(0.5, np.float32)
    kept = run(x=x, ratio=half, mode=np.array(False))
    np.testing.assert_array_equal(kept["y"], x)
    assert kept["mask"].all()
    for ratio in (0.0, 0.25, 0.5):
        share = np.array(ratio, np.float32)
        dropped = run(x=x, ratio=share, mode=np.array(True))
        assert abs(dropped["mask"].mean() - (1 - ratio)) < 0.02
        np.testing.assert_allclose(dropped["y"], dropped["mask"] / (1 - ratio), rtol=1e-6)


def test_a_fed_dropout_ratio_drops_the_same_as_a_constant() -> None:
    x = np.random.default_rng(1).normal(size=(100, 100)).astype(np.float32)
    made = [dropping(np.array(True)), dropping(np.array(True))]
    ratio = np.array(0.25, np.float32)
    made[1].graph.initializer.append(numpy_helper.from_array(ratio, "ratio"))
    data, known = (popgraph.compile(model) for model in made)
    dropped, expected = data(x=x, ratio=ratio), known(x=x)
    np.testing.assert_array_equal(dropped["mask"], expected["mask"])
    np.testing.assert_allclose(dropped["y"], expected["y"], rtol=1e-6)


def test_overridable_initializers_are_constants() -> None:
    model = reshaping()
    model.graph.initializer.append(numpy_helper.from_array(np.array([6, 4]), "shape"))
    assert found(model) == ()
    run = popgraph.compile(model)
    assert run.static is not None
    np.testing.assert_array_equal(run(x=X)["y"], np.maximum(X.reshape(6, 4), 0))


def overridable(host: bool = False, sizes: Shape = (4, 6)) -> onnx.ModelProto:
    """The model y = relu(reshape(x, shape)) * w; with `host`, also NonZero(y)."""
    made = reshaping(sizes)
    made.graph.node[-1].output[0] = "q"
    made.graph.node.append(helper.make_node("Mul", ["q", "w"], ["y"]))
    made.graph.input.append(helper.make_tensor_value_info("w", FLOAT, [1]))
    for name, array in (("shape", np.array([6, 4])), ("w", np.array([2], np.float32))):
        made.graph.initializer.append(numpy_helper.from_array(array, name))
    if host:
        made.graph.node.append(helper.make_node("NonZero", ["y"], ["places"]))
        made.graph.output.append(helper.make_empty_tensor_value_info("places"))
    return made


def check_overriding(run: popgraph.runner.Runner) -> None:
    """Overridden initializers apply to their call only."""
    x = np.abs(X)
    np.testing.assert_array_equal(run(x=x)["y"], x.reshape(6, 4) * 2)
    for number in (3, 5):
        w = np.array([number], np.float32)
        np.testing.assert_array_equal(run(x=x, w=w)["y"], x.reshape(6, 4) * number)
    for shape in ([3, 8], [24, 1]):
        found = run(x=x, shape=np.array(shape))["y"]
        np.testing.assert_array_equal(found, x.reshape(shape) * 2)
        found = run(x=x, shape=np.array(shape), w=np.array([7], np.float32))["y"]
        np.testing.assert_array_equal(found, x.reshape(shape) * 7)
    np.testing.assert_array_equal(run(x=x)["y"], x.reshape(6, 4) * 2)
    with pytest.raises(PopgraphError, match=r"input 'w' holds 1e\+300, which float32 cannot"):
        run(x=x, w=np.array([1e300]))
    with pytest.raises(PopgraphError, match="no input 'v'"):
        run(x=x, v=np.array([7.0]))


@pytest.mark.parametrize("host", [False, True])
@pytest.mark.parametrize("sizes", [(4, 6), ("N", 6)])
@pytest.mark.parametrize("backend", BACKENDS)
def test_overridable_initializers_may_be_fed(backend: str, sizes: Shape, host: bool) -> None:
    check_overriding(popgraph.compile(overridable(host, sizes), backend=backend))


def test_variables_are_written_instead_of_fed() -> None:
    run = popgraph.compile(overridable(), backend="reference", options=Options(variables=True))
    with pytest.raises(RunError, match="no input 'w'"):
        run(x=X, w=np.array([7], np.float32))


# Specialized programs


@pytest.mark.parametrize("backend", BACKENDS)
def test_values_and_unknown_dimensions_together(backend: str) -> None:
    run = popgraph.compile(reshaping(["N", "M"], "R"), backend=backend)
    assert run.structural == ("shape",)
    for rows in (1, 2, 4):
        for shape in ([-1], [rows, 6], [2, rows, 3], [0, 3, 2]):
            y = run(x=X[:rows], shape=np.array(shape))["y"]
            expected = X[:rows].reshape([rows if size == 0 else size for size in shape])
            np.testing.assert_array_equal(y, np.maximum(expected, 0))


def test_a_structural_input_may_be_data_and_an_output_as_well() -> None:
    nodes = [
        helper.make_node("Expand", ["x", "n"], ["wide"]),
        helper.make_node("Cast", ["n"], ["number"], to=FLOAT),
        helper.make_node("Mul", ["wide", "number"], ["y"]),
        helper.make_node("Identity", ["n"], ["same"]),
    ]
    run = popgraph.compile(graph(nodes, {"x": (FLOAT, [1]), "n": (INT, [1])}, ["y", "same"]))
    for number in (2, 3):
        result = run({"x": X[0, :1], "n": [number]})  # type: ignore[list-item]
        np.testing.assert_array_equal(result["y"], np.full(number, X[0, 0]) * number)
        assert list(result["same"]) == [number]


def test_the_least_recently_used_program_is_evicted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_model, "SPECIALISATIONS", 2)
    built: list[object] = []
    build = compiler.BuildRequest.executable

    def counted(request: compiler.BuildRequest) -> Executable:
        built.append(request)
        return build(request)

    monkeypatch.setattr(compiler.BuildRequest, "executable", counted)
    run = popgraph.compile(reshaping(), backend="reference")
    shapes = [np.array(sizes) for sizes in ([4, 6], [6, 4], [8, 3])]
    for number, times in ((0, 1), (1, 2), (0, 2), (2, 3), (0, 3), (1, 4), (2, 5)):
        assert run(x=X, shape=shapes[number])["y"].shape == tuple(shapes[number])
        assert len(built) == times


def test_many_values_warn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_model, "MANY_VALUES", 4)
    model = graph(
        [helper.make_node("Tile", ["x", "n"], ["y"])], {"x": (FLOAT, [1]), "n": (INT, [1])}
    )
    run = popgraph.compile(model, backend="reference")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number in (1, 2, 3, 1, 2, 3):
            run(x=X[0, :1], n=np.array([number]))
    with pytest.warns(
        ManyProgramsWarning, match=r"input 'n' decides .* 4 different values"
    ) as warned:
        run(x=X[0, :1], n=np.array([4]))
    assert warned[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number in range(5, 12):
            run(x=X[0, :1], n=np.array([number]))


def test_many_sizes_of_a_dimension_warn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dimension of two inputs counts once; another one has no name."""
    monkeypatch.setattr(open_model, "MANY_SIZES", 4)
    model = graph(
        [helper.make_node("Add", ["x", "z"], ["y"])],
        {"x": (FLOAT, ["length", 2]), "z": (FLOAT, ["length", None])},
    )
    run = popgraph.compile(model, backend="reference")

    def call(size: int) -> None:
        run(x=np.ones((size, 2), np.float32), z=np.ones((size, 1), np.float32))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for size in (3, 5, 9, 3, 5, 9):
            call(size)
    with pytest.warns(
        ManyProgramsWarning, match=r"dimension length has had 4 sizes, from 3 to 9: a program"
    ) as warned:
        call(7)
    assert warned[0].filename.endswith("test_structural_inputs.py") and len(warned) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for size in range(10, 15):
            call(size)


def test_threads_with_different_structural_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_model, "SPECIALISATIONS", 2)
    run = popgraph.compile(reshaping(), threads=2)
    shapes = [[4, 6], [6, 4], [8, 3]]

    def drive(turn: int) -> bool:
        shape = shapes[turn % 3]
        y = run(x=X + turn, shape=np.array(shape))["y"]
        return np.array_equal(y, np.maximum((X + turn).reshape(shape), 0))

    with ThreadPoolExecutor(3) as pool:
        assert all(pool.map(drive, range(24)))


# Mistakes


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_impossible_value_is_named(backend: str) -> None:
    run = popgraph.compile(reshaping(), backend=backend)
    with pytest.raises(PopgraphError, match="24 elements") as caught:
        run(x=X, shape=np.array([5, 7]))
    assert "node 'here'" in caught.value.where
    assert "input 'shape' = [5, 7]" in caught.value.where
    assert caught.value.hint
    assert run(x=X, shape=np.array([3, 8]))["y"].shape == (3, 8)


def test_mismatched_arrays_are_refused() -> None:
    run = popgraph.compile(reshaping(), backend="reference")
    for same in ([4, 6], np.array([4, 6], np.int32), np.array([4, 6], ">i8")):
        assert run(x=X, shape=same)["y"].shape == (4, 6)
    assert len(run.kept) == 1
    with pytest.raises(RunError, match="input 'shape' holds float64, the model requires int64"):
        run(x=X, shape=np.array([4.0, 6.0]))
    with pytest.raises(TypeMismatchError, match=r"input 'shape' is i64\[2\], not i64\[3\]"):
        run(x=X, shape=np.array([4, 2, 3]))
    with pytest.raises(RunError, match="input 'shape' is missing"):
        run(x=X)
    with pytest.raises(RunError, match=r"no input 'shap'(.|\n)*did you mean 'shape'"):
        run(x=X, shape=np.array([4, 6]), shap=np.array(1))
    run(x=X, shape=np.array([4, 6]))
    with pytest.raises(RunError, match="input 'x' holds complex64"):
        run(x=X.astype(np.complex64), shape=np.array([4, 6]))


def test_sessions_require_constant_structure() -> None:
    flow = popgraph.DataFlow(1, {"y": popgraph.AnchorReturnType("All")})
    device = popgraph.DeviceManager().createCpuDevice()
    with pytest.raises(Exception, match="shape of Reshape must be constant"):
        popgraph.InferenceSession(reshaping().SerializeToString(), flow, device).prepareDevice()


# Training


def stepping() -> onnx.ModelProto:
    """The model loss = mean((reshape(x, shape) @ w) * range(start, limit, delta))."""
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["r"]),
        helper.make_node("MatMul", ["r", "w"], ["p"]),
        helper.make_node("Range", ["start", "limit", "delta"], ["factors"]),
        helper.make_node("Mul", ["p", "factors"], ["m"]),
        helper.make_node("ReduceMean", ["m"], ["loss"], keepdims=0),
    ]
    types: dict[str, tuple[int, Shape]] = {"x": (FLOAT, ["N"]), "shape": (INT, [2])}
    types |= dict.fromkeys(("start", "limit", "delta"), (FLOAT, []))
    weights = {"w": np.ones((6, 3), np.float32)}
    return graph(nodes, types, ["loss"], weights)


@pytest.mark.parametrize("backend", BACKENDS)
def test_programs_of_training_share_their_weights(backend: str) -> None:
    """A step with other shapes or values continues from the previous weights."""
    training = Training("loss", SGD(learning_rate=Scalar(0.5)))
    run = popgraph.compile(stepping(), backend=backend, options=Options(training=training))
    assert run.structural == ("shape", "start", "limit", "delta")
    w = np.ones((6, 3), np.float64)
    for rows, start_at in ((2, 1), (4, 1), (2, 1), (2, 3), (4, 1)):
        x = X[:rows].reshape(-1)
        factors = np.arange(start_at, start_at + 3)
        scalars = (start_at, start_at + 3, 1)
        given = {name: np.array(number, np.float32) for name, number in
                 zip(("start", "limit", "delta"), scalars, strict=True)}  # fmt: skip
        loss = run({"x": x, "shape": np.array([rows, 6]), **given})["loss"]
        np.testing.assert_allclose(loss, (X[:rows] @ w * factors).mean(), rtol=1e-4)
        w -= 0.5 * X[:rows].T @ np.broadcast_to(factors / (3 * rows), (rows, 3))
        program = run.program({"x": x, "shape": np.array([rows, 6]), **given})
        assert set(program.variables) == {"w"}
        np.testing.assert_allclose(program.read("w"), w, rtol=1e-4)


# Commands


@pytest.fixture
def saved(tmp_path: Path) -> str:
    path = tmp_path / "model.onnx"
    path.write_bytes(reshaping(["N", 6], "R").SerializeToString())
    return str(path)


def call(*arguments: str) -> Any:
    return CliRunner().invoke(app, arguments)


def test_print_lists_structural_inputs(saved: str, tmp_path: Path) -> None:
    text = call("print", saved).stdout
    assert text.startswith("// input 'shape' decides the structure")
    printed = tmp_path / "printed.mlir"
    printed.write_text(text)
    assert call("print", str(printed)).stdout == text
    dims = ("--dim", "N=4", "--value", "shape=-1,8")
    assert "-> tensor<3x8xf32>" in call("print", saved, "--at", "graphcore", *dims).stdout
    assert "decides" not in call("print", saved, *dims).stdout
    refused = call("print", saved, "--at", "graphcore", "--dim", "N=4")
    assert refused.exit_code == 1
    assert "input 'shape' decides the structure" in refused.output
    assert "--value shape=2,3" in refused.output


def test_run_takes_structural_values(saved: str, tmp_path: Path) -> None:
    for name, array in (("x", X), ("shape", np.array([8, 3])), ("narrow", np.array([3, 8], "i4"))):
        np.save(tmp_path / f"{name}.npy", array)
    x, shape, narrow = (f"{name}={tmp_path}/{name}.npy" for name in ("x", "shape", "narrow"))
    expected = str(np.maximum(X.reshape(8, 3), 0)[7, 2])[:4]
    for given in (("-i", shape), ("--value", "shape=8,3")):
        text = call("run", saved, "-i", x, *given, "--backend", "reference").stdout
        assert text.startswith("y: float32[8, 3]") and expected in text
    fitted = call("run", saved, "-i", x, "-i", narrow.replace("narrow=", "shape="))
    assert "float32[3, 8]" in fitted.output
    made_up = ("run", saved, "--random", "--dim", "N=4", "--backend", "reference")
    assert "float32[6, 4]" in call(*made_up, "--value", "shape=6,4").stdout
    assert "is not generated" in call(*made_up).output


def test_training_takes_structural_values(tmp_path: Path) -> None:
    """Structural inputs have one value in all steps, instead of samples."""
    made = stepping()
    made.graph.input[0].type.tensor_type.shape.dim.add().dim_value = 6
    path, trained = tmp_path / "model.onnx", tmp_path / "trained.onnx"
    path.write_bytes(made.SerializeToString())
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "ones.npy", np.ones(4, np.float32))
    train = ["train", str(path), f"x={tmp_path}/x.npy", "--loss", "loss", "--batch", "4"]
    train += ["--optimizer", "SGD(0.5)", "--backend", "reference"]
    values = [("shape", "4,6"), ("start", "1"), ("limit", "4"), ("delta", "1")]
    given = [f"--value={name}={text}" for name, text in values]
    done = call(*train, *given, "-o", str(trained))
    assert not done.exit_code, done.output
    w = numpy_helper.to_array(onnx.load(trained).graph.initializer[0])
    expected = 1 - 0.5 * X.T @ np.broadcast_to(np.arange(1, 4) / 12, (4, 3))
    np.testing.assert_allclose(w, expected, rtol=1e-4)
    lacking = call(*train, *given[:2])
    assert "input 'limit' decides the structure" in lacking.output
    assert "--value limit=2 " in lacking.output
    sampled = call(*train, f"start={tmp_path}/ones.npy", given[0], *given[2:])
    assert "input 'start' has samples and decides the structure" in sampled.output
    twice = call(*train, *given, f"--value=x={1}")
    assert twice.exit_code and "has 2 axes" in twice.output


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("shap=3", "no input 'shap'"),
        ("shape=3,x", "'3,x' is not a list of integers, the type of input 'shape'"),
        ("shape=99999999999999999999", "not a list of integers"),
        ("x=1,2", "input 'x' has 2 axes, and '1,2' gives it at most one"),
        ("x=1,2", "--input x=FILE.npy"),
        ("shape", "is not NAME=VALUE"),
        ("turns=2,3", "input 'turns' is a scalar, and '2,3' is a list of 2; try --value turns=2"),
        (
            "turns=2.5",
            "'2.5' is not an integer, the type of input 'turns'; try --value turns=2",
        ),
        ("go=perhaps", "is not an integer, the type of input 'go'; try --value go=true"),
    ],
)
def test_invalid_values_of_structural_inputs(value: str, message: str, tmp_path: Path) -> None:
    made = reshaping(["N", 6], "R")
    for name, element in (("turns", INT), ("go", BOOL)):
        made.graph.input.append(helper.make_tensor_value_info(name, element, []))
    path = tmp_path / "model.onnx"
    path.write_bytes(made.SerializeToString())
    refused = call("print", str(path), "--value", value)
    assert refused.exit_code and message in " ".join(refused.output.replace("│", "").split())


def test_booleans_may_be_words(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(dropping(None).SerializeToString())
    for text, found in (("true", True), ("false", False), ("1", True)):
        printed = call("print", str(path), "--value", f"mode={text}", "--at", "graphcore").stdout
        assert ("random_uniform" in printed or "dropout" in printed) == found


@pytest.mark.parametrize("backend", BACKENDS)
def test_programs_may_have_different_variables(backend: str) -> None:
    """Programs with dropout have a random state, which continues across programs."""
    model = dropping(None)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "N"
    run = popgraph.compile(model, backend=backend)
    x, half = np.ones((100, 100), np.float32), np.array(0.5, np.float32)
    masks = []
    for rows, mode in ((50, True), (100, False), (100, True), (75, True), (25, False), (50, True)):
        given = {"x": x[:rows], "ratio": half, "mode": np.array(mode)}
        assert bool(run.program(given).variables) == mode
        found = run(given)["mask"][:50]
        masks += [found] if mode else []
    for number, mask in enumerate(masks):
        assert all((mask != other).any() for other in masks[:number])


# Caching across processes


AT_ONCE = """
import sys
import numpy as np
from popgraph.backends.c.cache import install_fingerprint

install_fingerprint.states = lambda: "the same"
import popgraph

run = popgraph.compile(sys.argv[1])
for sizes in ([4, 6], [8, 3]):
    y = run(x=np.ones((4, 6), np.float32), shape=np.array(sizes))["y"]
    assert y.shape == tuple(sizes)
try:
    run(x=np.ones((4, 6), np.float32))
except popgraph.PopgraphError as error:
    assert "'shape' is missing" in str(error)
for name in ("popgraph.compiler", "popgraph.dialects", "xdsl", "onnx", "lark"):
    assert name not in sys.modules, name
assert run(x=np.ones((2, 6), np.float32), shape=np.array([3, 4]))["y"].shape == (3, 4)
assert "xdsl" in sys.modules
"""


@pytest.fixture
def file(tmp_path: Path, program_cache: Path) -> Path:
    """A file that the program cache accepts at once."""
    path = tmp_path / "model.onnx"
    path.write_bytes(reshaping(["N", 6]).SerializeToString())
    return path


def test_known_programs_of_an_open_model_start_without_the_compiler(file: Path) -> None:
    run = popgraph.compile(file)
    for sizes in ([4, 6], [8, 3]):
        run(x=X, shape=np.array(sizes))
    environment = {**os.environ}
    subprocess.run([sys.executable, "-c", AT_ONCE, str(file)], check=True, env=environment)


@pytest.mark.parametrize("sizes", [(4, 6), ("N", 6)])
def test_initializers_of_a_cached_model_may_be_fed(file: Path, sizes: Shape) -> None:
    file.write_bytes(overridable(sizes=sizes).SerializeToString())
    popgraph.compile(file)(x=X)
    known = warm_start.recall(file, None, 1)
    assert isinstance(known, KnownProgram) == (sizes == (4, 6))
    assert known is not None and known.overridable == ("shape", "w")
    check_overriding(start.compile(file))
    run = start.compile(file)
    file.write_bytes(overridable().SerializeToString())
    os.utime(file, (1, 1))
    with pytest.raises(RunError, match="has changed since it was compiled"):
        run(x=X, w=np.array([7], np.float32))


NOTHING_CACHED = "// compiled programs in the cache: none for this file as it is"


def test_print_lists_cached_signatures(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("popgraph.backends.c.cache.program_key.sources", lambda: "the same")
    assert NOTHING_CACHED in call("print", str(file)).stdout
    run = popgraph.compile(file)
    for sizes in ([4, 6], [8, 3]):
        run(x=X, shape=np.array(sizes))
    assert [one.values["shape"].tolist() for one in run.kept] == [[4, 6], [8, 3]]
    assert run.kept[0].shapes == {"x": X.shape, "shape": (2,)}
    given = ("--random", "--dim", "N=2", "--value", "shape=3,4", "--threads", "2")
    assert call("run", str(file), *given).exit_code == 0
    assert call("print", str(file)).stdout.splitlines()[:5] == [
        "// input 'shape' decides the structure: a program for each of its values",
        "// compiled programs in the cache: 3",
        "//   shape = 3,4, x: [2, 6]; 2 threads",
        f"//   shape = 4,6, x: {[*X.shape]}; 1 thread",
        f"//   shape = 8,3, x: {[*X.shape]}; 1 thread",
    ]
    file.write_bytes(reshaping(["N", 6], 1).SerializeToString())
    assert NOTHING_CACHED in call("print", str(file)).stdout


def test_deleted_programs_are_not_listed(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("popgraph.backends.c.cache.program_key.sources", lambda: "the same")
    popgraph.compile(file)(x=X, shape=np.array([4, 6]))
    assert "// compiled programs in the cache: 1\n" in call("print", str(file)).stdout
    shutil.rmtree(file.parent / "cache" / "programs")
    assert NOTHING_CACHED in call("print", str(file)).stdout


def test_a_rewritten_file_is_a_new_model(file: Path) -> None:
    popgraph.compile(file)(x=X, shape=np.array([6, 4]))
    known = warm_start.recall(file, None, 1)
    assert isinstance(known, KnownModel) and known.interface["structural"] == ("shape",)
    run = start.compile(file)
    file.write_bytes(reshaping(["N", 6], 1).SerializeToString())
    assert warm_start.recall(file, None, 1) is None
    assert run(x=X, shape=np.array([6, 4]))["y"].shape == (6, 4), "that program is of the old file"
    with pytest.raises(RunError, match="has changed since it was compiled") as caught:
        run(x=X, shape=np.array([3, 8]))
    assert str(file) in caught.value.where and "popgraph.compile" in caught.value.hint
    assert start.compile(file)(x=X, shape=np.array([24]))["y"].shape == (24,)


def test_cached_segments_are_not_lowered_again(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cached segments are used for new input sizes, and after NonZero."""
    text = file.with_suffix(".pgraph")
    text.write_text(
        "graph g(x: f32[N, 4]) -> (y) {\n  i = NonZero(Relu(x))\n  y = Cast(i, to=f32) * 2\n}\n"
    )
    expected = [popgraph.compile(text)(x=X[:, :4] - size)["y"] for size in (0, 1)]
    monkeypatch.setattr(requests, "lower", None)
    for size, y in enumerate(expected):
        np.testing.assert_array_equal(popgraph.compile(text)(x=X[:, :4] - size)["y"], y)


def test_a_known_model_knows_its_dimensions(file: Path) -> None:
    run = popgraph.compile(file)
    known = warm_start.recall(file, None, 1)
    assert isinstance(known, KnownModel) and run.open is not None
    interface = open_model.Interface(**known.interface)
    call = interface.call({"x": X, "shape": np.array([4, 6])})
    assert interface.sizes(call) == run.open.interface.sizes(call) == {"N": len(X)}


def test_programs_of_other_options_are_separate(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    popgraph.compile(file)(x=X, shape=np.array([6, 4]))
    known = warm_start.recall(file, None, 1)
    assert isinstance(known, KnownModel)
    signature = known_signature(known, X, [6, 4])
    assert known.recall(signature) is not None
    assert known.recall(known_signature(known, X, [4, 6])) is None
    assert known.recall(known_signature(known, X[:2], [6, 4])) is None
    monkeypatch.setenv("POPGRAPH_TARGET", "sse2")
    assert known.recall(signature) is None
    monkeypatch.delenv("POPGRAPH_TARGET")
    monkeypatch.setenv("POPGRAPH_CHECK", "1")
    assert known.recall(signature) is None


def known_signature(known: KnownModel, x: Array, sizes: list[int]) -> object:
    interface = open_model.Interface(**known.interface)
    return interface.call({"x": x, "shape": np.array(sizes)}).signature


CROPPED = """y = Resize <coordinate_transformation_mode="tf_crop_and_resize", mode="linear">
    (x, {}, , sizes)"""
READERS = {
    "region": ("float[4] v", f"sizes = Constant <value_ints = [1, 6]> () {CROPPED.format('v')}"),
    "computed": (
        "float[4] v",
        f"sizes = Constant <value_ints = [1, 6]> () r = Mul(v, v) {CROPPED.format('r')}",
    ),
    "scales": ("float[2] v", 'y = Resize <mode="linear"> (x, , v)'),
    "sizes": ("int64[2] v", 'y = Resize <mode="linear"> (x, , , v)'),
    "axes": ("int64[1] v", "y = ReduceSum (x, v)"),
    "count": ("int64[1] v", "y, i = TopK (x, v)"),
    "shape": ("int64[1] v", "y = Reshape (x, v)"),
    "start": ("float v", "e = Constant <value_float = 9.0> () y = Range (v, e, e)"),
}
"""An input or initializer `v` that is structural for an operator, and the nodes up to `y`."""


@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize("initialized", [False, True])
def test_structural_operands_have_no_gradient(kind: str, initialized: bool) -> None:
    declared, nodes = READERS[kind]
    if initialized and declared.startswith("int64"):
        pytest.skip("initializers of integers are no weights")
    count = max(prod(int(one) for one in re.findall(r"\[(\d)\]", declared)), 1)
    held = f"<{declared} = {{{', '.join(['0.5'] * count)}}}>" if initialized else ""
    inputs = "float[4,6] x" if initialized else f"float[4,6] x, {declared}"
    both = "a = ReduceSum <keepdims=0> (y) b = ReduceSum <keepdims=0> (x) l = Add(a, b)"
    text = f"g ({inputs}) => (float l) {held} {{{nodes} {both}}}"
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 18]> {text}')
    training = Training("l", SGD(), gradients=("x", "v"))
    with pytest.raises(DifferentiationError) as caught:
        popgraph.compile(model, options=Options(training=training), backend="reference")
    value = "a value computed from 'v'" if kind == "computed" else "'v'"
    assert f"{value} decides the structure of" in str(caught.value)
    assert "node 'y'" in caught.value.where
    assert ("GridSample" in caught.value.hint) == (kind in ("region", "computed"))


def test_structure_from_weights_requires_freezing() -> None:
    nodes = f"sizes = Constant <value_ints = [1, 6]> () r = Mul(v, s) {CROPPED.format('r')}"
    text = (
        f"g (float[4,6] x) => (float l) <float[4] v = {{0, 0, 1, 1}}, float s = {{1}}> "
        f"{{{nodes} l = ReduceSum <keepdims=0> (y)}}"
    )
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 18]> {text}')
    training = Training("l", SGD(), gradients=("x",))
    with pytest.raises(UnsupportedError, match="weights that may change: 's', 'v'") as caught:
        popgraph.compile(model, options=Options(training=training), backend="reference")
    assert caught.value.hint == "freeze 's', 'v': weights that decide a structure are not trained"
    frozen = replace(training, frozen=("s", "v"))
    step = popgraph.compile(model, options=Options(training=frozen), backend="reference")
    assert step(x=np.ones((4, 6), np.float32))["l"] == 6
