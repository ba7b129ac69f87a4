"""Tests that out-of-range indices in data are reported, on every backend."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner
from xdsl.dialects import arith
from xdsl.dialects.func import FuncOp
from xdsl.dialects.scf import ForOp
from xdsl.ir import Block

import popgraph
from popgraph import popart as session
from popgraph.cli import app
from popgraph.compiler import load, lower
from popgraph.dialects import tile
from popgraph.passes.optimizer_spec import SGD, Scalar
from popgraph.passes.options import Options, Training
from popgraph.runner import Runner
from popgraph.support.arrays import Array
from popgraph.support.errors import IndicesError, PassError

Inputs = dict[str, Array]

LOOKUPS = """
opset 24

graph lookups(x: f32[5, 16], i: i64[7], e: i32[5, 16], n: i64[3, 2]) -> (a, b, c) {
    a = Relu(Gather(x, i))
    b = GatherElements(x, e, axis=1)
    c = GatherND(x, n)
}
"""
SCATTERS = """
opset 24

graph scatters(x: f32[5, 16], e: i32[3, 16], n: i64[3, 2], c: i64[5], r: i64[16]) -> (a, b, d, f) {
    a = ScatterElements(x, e, x[0:3, :], axis=1, reduction="add")
    b = ScatterND(x, n, x[0, 0:3], reduction="max")
    d = TensorScatter(x, x[:, 0:4], c, axis=1)
    f = ReverseSequence(x, r)
}
"""
LOSSES = """
opset 24

graph losses(x: f32[3, 4], i: i32[3], j: i64[3]) -> (a, b, c) {
    a = ai.graphcore.Nll(Softmax(x), i, ignoreIndex=-1)
    b = NegativeLogLikelihoodLoss(x, j)
    c = SoftmaxCrossEntropyLoss(x, j, ignore_index=-7)
}
"""
MANY = """
opset 24

graph many(x: f32[5, 7], i: i64[70001], e: i32[999, 7], n: i64[20003, 2]) -> (a, b, c) {
    a = Gather(Reshape(x, [35]), i)
    b = GatherElements(x, e, axis=0)
    c = GatherND(x, n)
}
"""
ROTARY = """
opset 24

graph rotary(x: f32[1, 2, 3, 4], cos: f32[6, 2], sin: f32[6, 2], p: i64[1, 3]) -> (y) {
    y = RotaryEmbedding(x, cos, sin, p)
}
"""
ATTENTION = """
opset 24

graph attention(q: f32[2, 1, 3, 4], k: f32[2, 1, 5, 4], n: i64[2]) -> (y) {
    y = Attention(q, k, k, _, _, _, n)
}
"""


def numbers(*shape: int) -> Array:
    return np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape)


LEGAL: dict[str, tuple[str, Callable[[], Inputs]]] = {
    "lookups": (
        LOOKUPS,
        lambda: {
            "x": numbers(5, 16),
            "i": np.array([0, 1, 2, 3, 4, -5, -1]),
            "e": np.full((5, 16), -16, np.int32),
            "n": np.array([[0, 0], [4, 15], [-5, -16]]),
        },
    ),
    "scatters": (
        SCATTERS,
        lambda: {
            "x": numbers(5, 16),
            "e": np.full((3, 16), -16, np.int32),
            "n": np.array([[0, 0], [4, 15], [-5, -16]]),
            "c": np.array([0, 12, -16, -1, 3]),
            "r": np.arange(16) % 6,
        },
    ),
    "losses": (
        LOSSES,
        lambda: {
            "x": numbers(3, 4),
            "i": np.array([0, -1, 3], np.int32),
            "j": np.array([0, 1, 3]),
        },
    ),
    "rotary": (
        ROTARY,
        lambda: {
            "x": numbers(1, 2, 3, 4),
            "cos": numbers(6, 2),
            "sin": numbers(6, 2),
            "p": np.array([[0, 5, 2]]),
        },
    ),
    "attention": (
        ATTENTION,
        lambda: {"q": numbers(2, 1, 3, 4), "k": numbers(2, 1, 5, 4), "n": np.array([1, 5])},
    ),
}

WRONG = [
    ("lookups", "i", 5, "index 5 is out of range: -5 to 4 are legal", "node 'a/1' (Gather)"),
    ("lookups", "i", -6, "index -6 is out of range: -5 to 4 are legal", "node 'a/1' (Gather)"),
    ("lookups", "i", -(2**63), f"index {-(2**63)} is out of range: -5 to 4 are legal", "(Gather)"),
    ("lookups", "e", 16, "index 16 is out of range: -16 to 15 are legal", "'b' (GatherElements)"),
    ("lookups", "e", -(2**31), "index -2147483648 is out of range: -16 to 15", "(GatherElements)"),
    ("lookups", "n", 7, "index 7 is out of range: -5 to 4 are legal", "node 'c' (GatherND)"),
    ("scatters", "e", 16, "index 16 is out of range: -16 to 15", "node 'a' (ScatterElements)"),
    ("scatters", "n", -6, "index -6 is out of range: -5 to 4", "node 'b' (ScatterND)"),
    ("scatters", "c", 13, "index 13 is out of range: -16 to 12", "node 'd' (TensorScatter)"),
    ("scatters", "r", 6, "length 6 is out of range: 0 to 5", "node 'f' (ReverseSequence)"),
    ("losses", "i", 4, "label 4 is out of range: 0 to 3 are legal", "(ai.graphcore::Nll)"),
    ("losses", "i", -2, "label -2 is out of range: 0 to 3 are legal", "(ai.graphcore::Nll)"),
    ("losses", "j", -1, "label -1 is out of range: 0 to 3", "(NegativeLogLikelihoodLoss)"),
    ("losses", "j", -7, "label -7 is out of range: 0 to 3", "(NegativeLogLikelihoodLoss)"),
    ("losses", "j", 4, "label 4 is out of range: 0 to 3", "(NegativeLogLikelihoodLoss)"),
    ("rotary", "p", 6, "position 6 is out of range: 0 to 5 are legal", "'y' (RotaryEmbedding)"),
    ("rotary", "p", -1, "position -1 is out of range: 0 to 5 are legal", "'y' (RotaryEmbedding)"),
    ("attention", "n", 6, "length 6 is out of range: 0 to 5 are legal", "node 'y' (Attention)"),
    ("attention", "n", -1, "length -1 is out of range: 0 to 5 are legal", "node 'y' (Attention)"),
]


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str, str | None], Runner]:
    """The models, compiled once per backend and meaning of indices."""
    made: dict[tuple[str, str, str | None], Runner] = {}

    def compiled(name: str, backend: str, indices: str | None) -> Runner:
        if (name, backend, indices) not in made:
            path = tmp_path_factory.mktemp(name) / f"{name}.pgraph"
            path.write_text(LEGAL[name][0])
            runner = popgraph.compile(path, backend=backend, indices=indices, threads=2)
            made[name, backend, indices] = runner
        return made[name, backend, indices]

    return compiled


Compiled = Callable[[str, str, str | None], Runner]


@pytest.mark.parametrize("name", LEGAL)
def test_legal_indices_are_accepted(name: str, runner: Compiled) -> None:
    inputs = LEGAL[name][1]()
    wanted = runner(name, "c", None)(inputs)
    for backend in ("c", "reference"):
        found = runner(name, backend, "error")(inputs)
        assert found.keys() == wanted.keys()
        for output, array in found.items():
            np.testing.assert_allclose(array, wanted[output], rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("backend", ["c", "reference"])
@pytest.mark.parametrize(("name", "input_", "index", "what", "where"), WRONG)
def test_indices_out_of_range_are_named(
    name: str, input_: str, index: int, what: str, where: str, backend: str, runner: Compiled
) -> None:
    legal, wrong = LEGAL[name][1](), LEGAL[name][1]()
    wrong[input_].reshape(-1)[-2 if input_ == "n" else -1] = index
    run = runner(name, backend, "error" if backend == "c" else None)
    with pytest.raises(IndicesError) as raised:
        run(wrong)
    assert what in raised.value.what and where in raised.value.where and raised.value.hint
    run(legal)
    runner(name, backend, "nearest")(wrong)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_single_wrong_index_is_found_at_any_position(threads: int, tmp_path: Path) -> None:
    """Wrong indices in vectors, in remainders, and in the chunk of every thread."""
    path = tmp_path / "many.pgraph"
    path.write_text(MANY)
    run = popgraph.compile(path, indices="error", threads=threads)
    generator = np.random.default_rng(0)
    sizes = {"i": (35, 70001), "e": (5, (999, 7)), "n": ((5, 7), (20003, 2))}
    inputs = {"x": numbers(5, 7)}
    for name, (size, shape) in sizes.items():
        drawn = generator.integers(np.negative(size), size, shape)
        inputs[name] = drawn.astype(np.int32) if name == "e" else drawn
    found = run(inputs)
    assert np.array_equal(found["a"], inputs["x"].ravel()[inputs["i"]])
    assert np.array_equal(found["b"], np.take_along_axis(inputs["x"], inputs["e"] % 5, 0))
    assert np.array_equal(found["c"], inputs["x"][inputs["n"][:, 0], inputs["n"][:, 1]])
    for name, (size, _) in sizes.items():
        flat = inputs[name].reshape(-1)
        columns = np.atleast_1d(size).tolist()
        places = {
            *range(34),
            *range(flat.size - 34, flat.size),
            *range(0, flat.size, flat.size // 29),
        }
        for place in places:
            kept, last = flat[place], columns[place % len(columns)] - 1
            for wrong in (last + 1, -last - 2):
                flat[place] = wrong
                with pytest.raises(IndicesError, match=f"index {wrong} is out of range"):
                    run(inputs)
            flat[place] = kept
    run(inputs)


LONG = {
    "Gather": "x: f32[4096], i: i64[16000]) -> (y) {\n    y = Gather(x, i)",
    "Gather of rows": "x: f32[256, 16], i: i64[4000]) -> (y) {\n    y = Gather(x, i)",
    "GatherElements": "x: f32[64, 64], i: i64[250, 64]) -> (y) {\n    y = GatherElements(x, i)",
    "GatherND": "x: f32[64, 64], i: i64[16000, 2]) -> (y) {\n    y = GatherND(x, i)",
    "labels": (
        "x: f32[1024, 100], i: i64[1024]) -> (y) {\n    y = ai.graphcore.Nll(Softmax(x), i)"
    ),
}


@pytest.mark.parametrize("name", LONG)
def test_index_checks_cost_less_than_2_percent(name: str, tmp_path: Path) -> None:
    path = tmp_path / "long.pgraph"
    path.write_text(f"opset 24\n\ngraph long({LONG[name]}\n}}\n")
    counts = {}
    for indices in ("nearest", "error"):
        module, compilation = load(path)
        lower(module, compilation, Options(indices=indices))
        kernels = {op.sym_name.data: op for op in module.walk() if isinstance(op, FuncOp)}
        calls = [op for op in module.walk() if isinstance(op, tile.CallOp)]
        counts[indices] = sum(
            call.chunks.value.data * operations(kernels[call.callee.string_value()].body.block)
            for call in calls
        )
    assert counts["error"] <= 1.02 * counts["nearest"], counts


def operations(block: Block) -> int:
    """The number of operations, loads and stores of a kernel."""
    return sum(
        trip_count(op) * operations(op.body.block)
        if isinstance(op, ForOp)
        else not isinstance(op, arith.ConstantOp | arith.BitcastOp | arith.IndexCastOp)
        for op in block.ops
    )


def trip_count(loop: ForOp) -> int:
    first, last, step = (
        bound.owner.value.value.data
        for bound in (loop.lb, loop.ub, loop.step)
        if isinstance(bound.owner, arith.ConstantOp)
    )
    return len(range(first, last, step))


@pytest.mark.parametrize("backend", ["c", "reference"])
def test_nearest_clamps_within_the_row(backend: str, runner: Compiled) -> None:
    inputs = LEGAL["lookups"][1]()
    x = inputs["x"]
    inputs["i"][:] = [5, -6, 99, -99, 2**62, -(2**62), 0]
    inputs["e"][:] = 99
    inputs["n"][:] = [[0, 99], [4, -99], [-50, 160]]
    found = runner("lookups", backend, "nearest")(inputs)
    assert np.array_equal(found["a"], np.maximum(x[[4, 0, 4, 0, 4, 0, 0]], 0))
    assert np.array_equal(found["b"], np.repeat(x[:, -1:], 16, axis=1))
    assert np.array_equal(found["c"], x[[0, 4, 0], [15, 0, 15]])


def test_constant_indices_are_checked_at_compile_time(tmp_path: Path) -> None:
    path = tmp_path / "constant.pgraph"
    path.write_text(LOOKUPS.replace("Gather(x, i)", "Gather(x, [0, 5])"))
    with pytest.raises(IndicesError, match="index 5 is out of range"):
        popgraph.compile(path, indices="error")
    assert popgraph.compile(path, indices="nearest")


def test_indices_of_removed_nodes_are_not_checked(tmp_path: Path) -> None:
    """A training step checks labels; a program without the loss does not read them."""
    path = tmp_path / "unused.pgraph"
    path.write_text(LOOKUPS.replace("-> (a, b, c)", "-> (a)"))
    inputs = LEGAL["lookups"][1]()
    inputs["e"][:] = 99
    assert list(popgraph.compile(path, indices="error")(inputs)) == ["a"]


@pytest.mark.parametrize("backend", ["c", "reference"])
def test_compile_checks_indices_by_default(runner: Compiled, backend: str) -> None:
    inputs = LEGAL["lookups"][1]()
    inputs["i"][0] = 5
    with pytest.raises(IndicesError, match="index 5 is out of range"):
        runner("lookups", backend, None)(inputs)
    runner("lookups", backend, "nearest")(inputs)


def test_training_checks_indices_by_default(tmp_path: Path) -> None:
    path = tmp_path / "losses.pgraph"
    text = LOSSES.replace("x: f32[3, 4], ", "").replace("{", "{ weight x: f32[3, 4] = ones\n", 1)
    path.write_text(text)
    training = Training("a", SGD(Scalar(0.1)))
    inputs = LEGAL["losses"][1]()
    del inputs["x"]
    inputs["i"][0] = 4
    with pytest.raises(IndicesError, match="label 4 is out of range"):
        popgraph.compile(path, options=Options(training=training))(inputs)
    popgraph.compile(path, options=Options(training=training, indices="nearest"))(inputs)


def test_an_unknown_meaning_of_indices_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PassError, match="unknown value 'wrap' of indices"):
        Options(indices="wrap")


def test_a_session_checks_indices_by_default() -> None:
    builder = popgraph.Builder()
    x = builder.addInputTensor(popgraph.TensorInfo("FLOAT", [3]))
    i = builder.addInputTensor(popgraph.TensorInfo("INT32", [1]))
    y = builder.aiOnnx.gather([x, i])
    flow = popgraph.DataFlow(1, {y: popgraph.AnchorReturnType("All")})
    data = {x: numbers(3), i: np.array([3], np.int32)}
    for backend, indices, fails in (
        ("reference", None, True),
        ("c", None, True),
        ("c", "nearest", False),
        ("reference", "nearest", False),
    ):
        options = popgraph.SessionOptions()
        options.indices = indices
        device = popgraph.DeviceManager().createCpuDevice(backend=backend)
        session = popgraph.InferenceSession(
            builder.getModelProto(), flow, device, userOptions=options
        )
        session.prepareDevice()
        stepio = popgraph.PyStepIO(data, session.initAnchorArrays())
        with pytest.raises(IndicesError) if fails else nullcontext():
            session.run(stepio)


@pytest.mark.parametrize("indices", [None, "error"])
def test_popart_labels_out_of_range_have_probability_zero(indices: str | None) -> None:
    """PopART's programs draw such labels; a session refuses them on request."""
    builder = session.Builder()
    rows = builder.addInputTensor("FLOAT", [3, 2], "rows")
    labels = builder.addInputTensor("INT32", [3], "labels")
    none = session.ReductionType.NoReduction
    loss = builder.aiGraphcore.nllloss([builder.aiOnnx.softmax([rows]), labels], none)
    options = session.SessionOptions()
    options.indices = indices
    device = session.DeviceManager().createCpuDevice(backend="reference")
    flow = session.DataFlow(1, [loss])
    run = session.InferenceSession(builder.getModelProto(), flow, device, userOptions=options)
    run.prepareDevice()
    anchors = run.initAnchorArrays()
    given = {rows: np.zeros((3, 2), np.float32), labels: np.array([0, 2, -1], np.int32)}
    with pytest.raises(IndicesError, match="label") if indices else nullcontext():
        run.run(session.PyStepIO(given, anchors))
        assert np.allclose(anchors[loss], -np.log([0.5, 1e-7, 1e-7]))


def test_the_command_line_checks_indices(tmp_path: Path) -> None:
    path, place = tmp_path / "lookups.pgraph", tmp_path / "i.npy"
    path.write_text("opset 24\n\ngraph g(i: i64[1]) -> (y) {\n    y = Gather([1.0, 2.0], i)\n}\n")
    np.save(place, np.array([2]))
    given = ["run", str(path), "-i", f"i={place}"]
    wrong = CliRunner().invoke(app, given)
    assert wrong.exit_code == 1 and "index 2 is out of range: -2 to 1" in wrong.output
    assert CliRunner().invoke(app, [*given, "--indices", "nearest"]).exit_code == 0
