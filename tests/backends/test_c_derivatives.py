"""Tests the derivatives of exported C against finite differences and the ONNX products."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import popgraph
from popgraph.cli import app
from popgraph.support.arrays import Array

HEADERS: dict[str, list[str]] = {}
"""The lines of the header of each library, by its name."""
ALL = "jvp,vjp,jacobian,hessian-vector"
STEP = 1e-5

DYNAMICS = """
graph dynamics(x: f64[1, 3], u: f64[2]) -> (y: f64[1, 4], z: f64[1, 1], best) {
    weight w: f64[3, 5] = he_normal(seed=1)
    weight v: f64[5, 4] = glorot_uniform(seed=2)
    h = Tanh(x @ w)
    y = Softmax(h @ v + u[0] * u[1])
    z = ReduceSum(h * LogSoftmax(h), [1], keepdims=1) + Sin(u[1])
    best = ArgMax(y, axis=1)
}
"""
WIDE = """
graph wide(x: f32[2]) -> (y: f32[5]) {
    weight w: f32[2, 5] = he_normal(seed=1)
    y = Sigmoid(x @ w)
}
"""
PICTURE = """
graph picture(x: f64[1, 1, 5, 5], s: f64[3], gain: f64) -> (energy: f64) {
    weight k: f64[3, 1, 3, 3] = he_normal(seed=1)
    c = Tanh(MaxPool(Conv(x, k), kernel_shape=[2, 2], strides=[1, 1]))
    energy = ReduceMean(c * c * c, [0, 1, 2, 3], keepdims=0) * gain + ReduceSum(s, keepdims=0)
}
"""


@dataclass
class Library:
    """The exported functions of a model, called with arrays by name."""

    functions: ctypes.CDLL
    name: str
    folder: Path

    def __call__(self, function: str, given: Mapping[str, Array]) -> dict[str, Array]:
        prefix = f"{self.name}_{function}"
        about = prefix if function != "run" else self.name
        inputs, outputs = _tensors(self.functions, about)
        dtypes = {"f32": np.float32, "f64": np.float64, "i64": np.int64}
        fed = [np.ascontiguousarray(given[name], dtypes[type_]) for name, type_, _ in inputs]
        found = {name: np.full(shape, 77, dtypes[type_]) for name, type_, shape in outputs}
        new = getattr(self.functions, f"{self.name}_new")
        new.restype = ctypes.c_void_p
        model = ctypes.c_void_p(new())
        code = getattr(self.functions, prefix)(model, _pointers(fed), _pointers(found.values()))
        getattr(self.functions, f"{self.name}_delete")(model)
        assert code == 0
        return found


def _pointers(arrays: object) -> ctypes.Array[ctypes.c_void_p]:
    """A struct of pointers, which has the layout of an array."""
    addresses = [array.ctypes.data for array in arrays]  # type: ignore[attr-defined]
    return (ctypes.c_void_p * len(addresses))(*addresses)


def _tensors(
    library: ctypes.CDLL, about: str
) -> tuple[list[tuple[str, str, tuple[int, ...]]], ...]:
    """The name, type and shape of the inputs and outputs in a `NAME_about`."""
    words = (ctypes.c_size_t * 9).in_dll(library, f"{about}_about")
    rank = next(int(line.split()[2]) for line in HEADERS[about.split("_")[0]] if "_RANK " in line)
    found = []
    for count, address in ((words[5], words[7]), (words[6], words[8])):
        rows = (ctypes.c_size_t * ((5 + rank) * count)).from_address(address)
        tensors = []
        for at in range(count):
            name, type_, _, _, axes, *shape = rows[(5 + rank) * at : (5 + rank) * (at + 1)]
            texts = [ctypes.string_at(one).decode() for one in (name, type_)]
            tensors.append((texts[0], texts[1], tuple(shape[:axes])))
        found.append(tensors)
    return tuple(found)


def export(folder: Path, text: str, *options: str) -> str:
    """Runs `popgraph export` with further options; returns its output."""
    name = text.split()[1].partition("(")[0]
    model = folder / f"{name}.pgraph"
    model.write_text(text)
    arguments = ["export", str(model), "-o", str(folder / name), "--name", name, *options]
    return CliRunner().invoke(app, arguments).output


def library(folder: Path, text: str, *options: str) -> Library:
    """Exports, checks and loads a model."""
    name = text.split()[1].partition("(")[0]
    printed = export(folder, text, *options)
    assert "ROM" in printed, printed
    made = folder / name
    HEADERS[name] = (made / f"{name}.h").read_text().splitlines()
    strict = ["cc", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-psabi", "-march=native", "-std=c11"]
    sources = [str(one) for one in made.glob(f"{name}*.[cS]")]
    command = [*strict, "-fPIC", "-shared", *sources, "-lm", "-o", str(made / "lib.so")]
    done = subprocess.run(command, cwd=made, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return Library(ctypes.CDLL(str(made / "lib.so")), name, made)


def drawn(**shapes: tuple[int, ...]) -> dict[str, Array]:
    generator = np.random.default_rng(5)
    return {name: generator.normal(size=shape) for name, shape in shapes.items()}


def differences(
    function: Callable[[Mapping[str, Array]], Array], given: Mapping[str, Array], name: str
) -> Array:
    """The derivative by an input: central differences, in the shape of the output and input."""
    columns = []
    for at in np.ndindex(given[name].shape):
        ends = []
        for sign in (1, -1):
            moved = np.array(given[name], np.float64)
            moved[at] += sign * STEP
            ends.append(function({**given, name: moved}))
        columns.append((ends[0] - ends[1]) / (2 * STEP))
    return np.reshape(np.stack(columns, -1), (*columns[0].shape, *given[name].shape))


POINT = drawn(x=(1, 3), u=(2,))


@pytest.fixture(scope="module")
def dynamics(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return library(tmp_path_factory.mktemp("c"), DYNAMICS, "--derivatives", ALL, "--casadi")


@pytest.fixture(scope="module")
def jacobians(dynamics: Library) -> dict[tuple[str, str], Array]:
    """Finite differences of every float output by every input."""
    return {
        (y, x): differences(lambda given, y=y: dynamics("run", given)[y], POINT, x)  # type: ignore[misc]
        for y in "yz"
        for x in "xu"
    }


def test_the_jacobian_equals_finite_differences(
    dynamics: Library, jacobians: Mapping[tuple[str, str], Array]
) -> None:
    found = dynamics("jacobian", POINT)
    assert found["y"] == pytest.approx(dynamics("run", POINT)["y"])
    assert list(found["best"]) == [np.argmax(found["y"])]
    for (y, x), wanted in jacobians.items():
        np.testing.assert_allclose(found[f"Jacobian___{y}___{x}"], wanted, atol=1e-8)


def test_the_products_equal_finite_differences(
    dynamics: Library, jacobians: Mapping[tuple[str, str], Array]
) -> None:
    tangents = drawn(Tangent___x=(1, 3), Tangent___u=(2,))
    weights = drawn(Gradient___y=(1, 4), Gradient___z=(1, 1))
    forward, reverse = dynamics("jvp", POINT | tangents), dynamics("vjp", POINT | weights)
    for y in "yz":
        wanted = sum(
            np.tensordot(jacobians[y, x], tangents[f"Tangent___{x}"], POINT[x].ndim) for x in "xu"
        )
        np.testing.assert_allclose(forward[f"Tangent___{y}"], wanted, atol=1e-8)
    for x in "xu":
        gradient = sum(np.tensordot(weights[f"Gradient___{y}"], jacobians[y, x], 2) for y in "yz")
        np.testing.assert_allclose(reverse[f"Gradient___{x}"], gradient, atol=1e-8)


def test_the_products_equal_those_of_the_onnx_models(dynamics: Library) -> None:
    runtime = pytest.importorskip("onnxruntime")
    given = POINT | drawn(Tangent___x=(1, 3), Tangent___u=(2,))
    given |= drawn(Gradient___y=(1, 4), Gradient___z=(1, 1))
    for function, product in (("jvp", popgraph.onnx_jvp), ("vjp", popgraph.onnx_vjp)):
        found = dynamics(function, given)
        model = product(DYNAMICS).SerializeToString()
        session = runtime.InferenceSession(model, providers=["CPUExecutionProvider"])
        taken = {one.name: given[one.name] for one in session.get_inputs() if one.name in given}
        names = [one.name for one in session.get_outputs()]
        assert set(names) == set(found)
        for name, wanted in zip(names, session.run(None, taken), strict=True):
            np.testing.assert_allclose(found[name], wanted, atol=1e-12)


def test_a_weighted_hessian_product_equals_differences_of_gradients(dynamics: Library) -> None:
    """Several outputs: the Hessian of <Gradient___y, y>, as of a Lagrangian."""
    tangents = drawn(Tangent___x=(1, 3), Tangent___u=(2,))
    weights = drawn(Gradient___y=(1, 4), Gradient___z=(1, 1))
    found = dynamics("hvp", POINT | tangents | weights)
    _check_hessian(partial(_gradient, dynamics, weights), found, tangents, POINT)


def _gradient(
    model: Library, weights: Mapping[str, Array], name: str, given: Mapping[str, Array]
) -> Array:
    return model("vjp", {**given, **weights})[f"Gradient___{name}"]


def _check_hessian(
    gradient: Callable[[str, Mapping[str, Array]], Array],
    found: Mapping[str, Array],
    tangents: Mapping[str, Array],
    point: Mapping[str, Array],
) -> None:
    for name in point:
        np.testing.assert_allclose(found[f"Gradient___{name}"], gradient(name, point))
        wanted = sum(
            np.tensordot(
                differences(partial(gradient, name), point, other),
                tangents[f"Tangent___{other}"],
                point[other].ndim,
            )
            for other in point
        )
        np.testing.assert_allclose(found[f"Tangent___Gradient___{name}"], wanted, atol=1e-7)


@pytest.fixture(scope="module")
def picture(tmp_path_factory: pytest.TempPathFactory) -> Library:
    chosen = ["--derivatives", "vjp,hessian-vector", "--weights", "array"]
    return library(tmp_path_factory.mktemp("c"), PICTURE, *chosen)


def test_the_hessian_product_of_a_scalar_takes_no_weight(picture: Library) -> None:
    """The gradient by `s` is constant: its tangent is 0."""
    point = drawn(x=(1, 1, 5, 5), s=(3,), gain=())
    tangents = {f"Tangent___{name}": one for name, one in drawn(x=(1, 1, 5, 5), s=(3,)).items()}
    tangents["Tangent___gain"] = np.array(0.3)
    found = picture("hvp", point | tangents)
    assert not found["Tangent___Gradient___s"].any()
    _check_hessian(
        partial(_gradient, picture, {"Gradient___energy": np.ones(())}), found, tangents, point
    )


def test_a_jacobian_with_fewer_columns_than_rows_in_f32(tmp_path: Path) -> None:
    """Forward mode, by the threads of a pool, and the check that is exported with it."""
    wide = library(tmp_path, WIDE, "--derivatives", "jacobian", "--threads", "2")
    x = np.array([0.3, -0.7], np.float32)
    found = wide("jacobian", {"x": x})
    slope = found["y"] * (1 - found["y"])
    ends = [wide("run", {"x": unit})["y"] for unit in np.eye(2)]
    weights = np.stack([np.log(y / (1 - y)) for y in ends], -1)
    np.testing.assert_allclose(found["Jacobian___y___x"], slope[:, None] * weights, rtol=1e-5)
    done = subprocess.run(["make", "check"], cwd=wide.folder, capture_output=True, text=True)
    assert "Jacobian___y___x: " in done.stdout and "good" in done.stdout, done.stdout + done.stderr


def test_constants_are_stored_once(dynamics: Library) -> None:
    """All functions read the same weights."""
    rom = (dynamics.folder / "dynamics_weights.bin").stat().st_size
    assert rom < 2 * 8 * (3 * 5 + 5 * 4) + 1024


CASADI = """
import casadi, numpy
model = casadi.external("dynamics_casadi", "{library}")
x, u, l = casadi.MX.sym("x", 3), casadi.MX.sym("u", 2), casadi.MX.sym("l", 5)
found = casadi.vertcat(*model(x, u)[:2])
joined = casadi.vertcat(x, u)
hessian, gradient = casadi.hessian(casadi.dot(l, found), casadi.vertcat(joined, l))
names = casadi.Function("f", [x, u, l], [casadi.jacobian(found, joined), hessian, gradient])
numpy.savez("{out}", *names({x}, {u}, {l}))
"""


def test_casadi_computes_exact_jacobians_and_hessians(
    dynamics: Library, jacobians: Mapping[tuple[str, str], Array], tmp_path: Path
) -> None:
    pytest.importorskip("casadi", reason="casadi is not installed")
    weights = drawn(Gradient___y=(1, 4), Gradient___z=(1, 1))
    multipliers = np.concatenate([weights["Gradient___y"][0], weights["Gradient___z"][0]])
    program = CASADI.format(
        library=dynamics.folder / "lib.so",
        out=tmp_path / "found.npz",
        x=POINT["x"][0].tolist(),
        u=POINT["u"].tolist(),
        l=multipliers.tolist(),
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    jacobian, hessian, gradient = np.load(tmp_path / "found.npz").values()
    rows = np.block([[jacobians[y, x].reshape(-1, POINT[x].size) for x in "xu"] for y in "yz"])
    np.testing.assert_allclose(jacobian, rows, atol=1e-8)
    np.testing.assert_allclose(gradient[:5, 0], rows.T @ multipliers, atol=1e-7)
    np.testing.assert_allclose(hessian[5:, :5], jacobian, atol=1e-12)  # d(J^T u) / du
    np.testing.assert_allclose(hessian, hessian.T, atol=1e-12)
    for at, unit in enumerate(np.eye(5)):
        tangents = {"Tangent___x": unit[None, :3], "Tangent___u": unit[3:]}
        found = dynamics("hvp", POINT | weights | tangents)
        column = [found[f"Tangent___Gradient___{x}"].ravel() for x in "xu"]
        np.testing.assert_allclose(hessian[:5, at], np.concatenate(column), atol=1e-10)


WRONG = {
    "unknown": (["--derivatives", "jvp,hessian"], "'hessian' is not one of jvp, vjp, jacobian"),
    "training": (["--derivatives", "jvp", "--train"], "--train exports a training step"),
    "alone": (["--wrt", "x"], "belongs to --derivatives"),
    "input": (["--derivatives", "vjp", "--wrt", "y"], "no float input 'y' to differentiate by"),
    "output": (["--derivatives", "vjp", "--of", "h"], "the model has no output 'h' at: --of h"),
    "integers": (["--derivatives", "vjp", "--of", "best"], "'best' is not a float tensor"),
    "selection": (["--derivatives", "vjp", "--casadi", "--of", "y"], "without --wrt and --of"),
    "constants": (["--derivatives", "vjp", "--casadi", "--weights", "file"], "the constants"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_options_are_refused(name: str, tmp_path: Path) -> None:
    options, wanted = WRONG[name]
    printed = " ".join(export(tmp_path, DYNAMICS, *options).replace("│", " ").split())
    assert wanted in printed


def test_open_sizes_and_state_are_refused(tmp_path: Path) -> None:
    rows = "graph rows(x: f32[N, 2]) -> y { y = Tanh(x) }"
    printed = export(tmp_path, rows, "--derivatives", "jvp", "--dim", "N=..4")
    assert "--dim N=4" in " ".join(printed.replace("│", " ").split())
    noise = "graph noise(x: f32[4]) -> y { y = x * RandomNormal(shape=[4]) }"
    assert "with state" in export(tmp_path, noise, "--derivatives", "jvp")


def test_a_model_without_a_gradient_is_refused(tmp_path: Path) -> None:
    rounded = "graph rounded(x: f32[4]) -> y { y = DequantizeLinear(QuantizeLinear(x, 0.5), 0.5) }"
    assert "no output depends on 'x'" in export(tmp_path, rounded, "--derivatives", "jacobian")


def test_names_of_derivatives_are_refused_in_the_model(tmp_path: Path) -> None:
    taken = "graph taken(x: f32[4]) -> Gradient___x { Gradient___x = Tanh(x) }"
    assert "the name of a derivative" in export(tmp_path, taken, "--derivatives", "jvp")
