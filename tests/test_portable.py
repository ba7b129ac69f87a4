"""The same bits on every target, for every number of threads and of rows."""

from __future__ import annotations

import platform
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import onnx
import pytest
from onnx import helper

import popgraph
from popgraph import Options
from popgraph.passes.goals import quick
from popgraph.passes.structured.winograd.use_winograd import UseWinograd
from popgraph.support.arrays import Array
from popgraph.support.determinism import CHOICES
from popgraph.support.errors import PopgraphError
from popgraph.support.machine import EMBEDDED, TARGETS, Machine
from popgraph.support.tuning import Tuning
from tests.backends.test_c_export import exported, made
from tests.backends.test_c_targets import GRAPHS, MORE, inputs
from tests.portable_networks import TRAINING, Text

PORTABLE = Options(determinism="portable")
FLAGS = {"sse2": "sse2", "avx2": "avx2", "avx512": "avx512vl"}
HERE = [name for name, flag in FLAGS.items() if flag in Path("/proc/cpuinfo").read_text().split()]
"""The targets of x86-64 that this machine runs."""
SEEDS = 300


def outputs(path: Path, options: Options, inputs: Mapping[str, Array], threads: int = 1) -> Array:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Some networks divide by zero.
        (found,) = popgraph.compile(path, options=options, threads=threads)(inputs).values()
    return found


def assert_same_bits(found: Array, wanted: Array, about: object) -> None:
    """Equal bits; any NaN is as good as another."""
    assert found.shape == wanted.shape
    either = np.isnan(found) & np.isnan(wanted)
    same = (found.view(np.uint32) == wanted.view(np.uint32)) | either
    assert same.all(), f"{about}: {np.count_nonzero(~same)} of {same.size} elements differ"


def written(folder: Path, seed: int, more: str = "") -> tuple[Path, Array]:
    """A random network and 64 rows for it."""
    text, path = Text(Random(seed)), folder / "net.pgraph"
    path.write_text(f"{text}{more}")
    rows = np.random.default_rng(seed).standard_normal((64, *text.input))
    return path, rows.astype(np.float32)


@pytest.mark.budget(4)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_networks(seed: int, tmp_path: Path) -> None:
    path, rows = written(tmp_path, seed)

    def found(machine: Machine, count: int = 7, threads: int = 1, *, soon: bool = False) -> Array:
        options = replace(PORTABLE, machine=machine)
        # Without a least size, small contractions get register tiles, too.
        chosen = quick(replace(options, tuning=Tuning(quick_products=0))) if soon else options
        return outputs(path, chosen, {"x": rows[:count]}, threads)

    wanted = found(TARGETS["avx512"])
    assert_same_bits(found(TARGETS["avx2"], threads=2), wanted, "AVX2, two threads")
    assert_same_bits(found(TARGETS["sse2"], threads=3), wanted, "SSE2, three threads")
    assert_same_bits(found(EMBEDDED["armv7e-m"], threads=4), wanted, "Cortex-M, four threads")
    assert_same_bits(found(TARGETS["avx2"], soon=True), wanted, "a quick program")
    assert_same_bits(found(TARGETS["avx2"], 1), wanted[:1], "a batch of one row")
    many = found(TARGETS["avx512"], 64)
    assert_same_bits(many[:7], wanted, "a batch of 64 rows")
    alone = outputs(path, PORTABLE, {"x": rows[40:41]})
    assert_same_bits(alone, many[40:41], "a row from the middle")
    reversed_ = outputs(path, PORTABLE, {"x": rows[::-1].copy()})
    assert_same_bits(reversed_[::-1].copy(), many, "rows at other positions")


CONVOLUTIONS = """
opset 21

graph g(x: f32[N, 31, 7, 7]) -> (y) {
    weight v: f32[32, 31, 3, 3] = normal
    weight w: f32[7, 32, 5, 5] = normal
    y = Conv(Conv(x, v, pads=[1, 1, 1, 1]), w, pads=[2, 2, 2, 2])
}
"""


def test_thresholds_do_not_choose_transforms(tmp_path: Path) -> None:
    """A quick program's thresholds alone would select transforms for the first convolution."""
    path = tmp_path / "net.pgraph"
    path.write_text(CONVOLUTIONS)
    x = np.random.default_rng(0).standard_normal((3, 31, 7, 7)).astype(np.float32)
    wanted = outputs(path, PORTABLE, {"x": x})
    for options in (quick(PORTABLE), replace(PORTABLE, tuning=Tuning(winograd_gain=0))):
        assert_same_bits(outputs(path, options, {"x": x}), wanted, options)


@pytest.mark.budget(4)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_trainings(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, rows = written(tmp_path, seed, TRAINING)
    if "weight" not in path.read_text():
        pytest.skip("nothing to train")

    def weights(name: str, threads: int) -> Mapping[str, Array]:
        monkeypatch.setenv("POPGRAPH_TARGET", name)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trainer = popgraph.Trainer(path, determinism="portable", threads=threads)
            trainer.fit({"x": rows[:10]}, batch=5, steps=2, shuffle=False)
        return trainer.weights()

    wanted = weights(HERE[-1], 1)
    for threads, name in enumerate(HERE[:-1], 2):
        for tensor, array in weights(name, threads).items():
            assert_same_bits(array, wanted[tensor], (name, threads, tensor))


PRODUCTS = """
opset 21

graph products(x: f32[N, 300]) -> (y) {
    weight w: f32[300, 33] = he_normal(seed=1)
    weight v: f32[33, 10] = he_normal(seed=2)
    weight s: f32[33] = normal(seed=3)
    weight t: f32[33] = normal(seed=4)
    y = Softmax(LayerNormalization(Tanh(x @ w), s, t) @ v) + Sin(ReduceMax(x, [1]) * 1e9)
}
"""


@pytest.fixture
def products(tmp_path: Path) -> Path:
    path = tmp_path / "products.pgraph"
    path.write_text(PRODUCTS)
    return path


ROWS = np.random.default_rng(0).standard_normal((7, 300)).astype(np.float32)


def on_targets(path: Path, determinism: str, patch: pytest.MonkeyPatch) -> list[bytes]:
    """The bits of the results, by target of this machine."""
    found = []
    for name in HERE:
        patch.setenv("POPGRAPH_TARGET", name)
        options = Options(determinism=determinism)
        found.append(outputs(path, options, {"x": ROWS}).tobytes())
    return found


@pytest.mark.skipif(len(HERE) < 2, reason="this machine runs one target only")
def test_instructions_of_targets_give_the_same_bits(
    products: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SSE2 has no instruction for multiply-adds, and computes them in f64."""
    assert len(set(on_targets(products, "portable", monkeypatch))) == 1
    assert len(set(on_targets(products, "machine", monkeypatch))) > 1, "so the test can fail"


@pytest.mark.skipif(len(HERE) < 2, reason="this machine runs one target only")
@pytest.mark.parametrize("small", [False, True])
def test_sums_that_are_nearly_halfway_round_once(
    small: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    x + a b, where a b is half of the last digit of x and a little more or less.

    The little is lost in f64. With `small`, the sums are subnormal.
    """
    path, count = tmp_path / "net.pgraph", np.arange(1, 65)
    path.write_text(
        "opset 21\ngraph net(x: f32[64, 2], w: f32[2, 64]) -> (y) {\n    y = x @ w\n}\n"
    )
    x, w = np.ones((64, 2)), np.ones((2, 64))
    x[:, 0] = 2**24 + 2 * count
    x[:, 1], w[1] = 1 + count * 2.0**-23, 1 - count * 2.0**-23
    if small:
        x, w = x * [2.0**-150, 2.0**-75], w * [[1], [2.0**-75]]
        x[:, 0] = (2**22 + count) * 2.0**-149
    x32, w32, found = x.astype(np.float32), w.astype(np.float32), []
    for name in HERE:
        monkeypatch.setenv("POPGRAPH_TARGET", name)
        found.append(popgraph.compile(path, options=PORTABLE)(x=x32, w=w32)["y"].tobytes())
    assert len(set(found)) == 1


@pytest.mark.skipif(len(HERE) < 2, reason="this machine runs one target only")
@pytest.mark.parametrize("name", GRAPHS | MORE)
def test_every_element_type_has_the_same_bits(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Halves, f64, integers and quantized layers, beside the f32 of the random networks."""
    path, found = tmp_path / f"{name}.pgraph", []
    path.write_text((GRAPHS | MORE)[name])
    for target in HERE:
        monkeypatch.setenv("POPGRAPH_TARGET", target)
        made = popgraph.compile(path, options=PORTABLE)(inputs(path))
        found.append({key: array.tobytes() for key, array in made.items()})
    assert all(one == found[0] for one in found)


def test_programs_of_every_size_have_the_same_bits(products: Path) -> None:
    """One program with a bound, and a program for each number of rows."""
    bounded = popgraph.compile(products, options=PORTABLE, bounds={"N": 64})
    for count in (1, 5, 7):
        wanted = outputs(products, PORTABLE, {"x": ROWS[:count]})
        assert_same_bits(bounded(x=ROWS[:count])["y"], wanted, count)


def test_results_are_right(products: Path) -> None:
    reference = popgraph.compile(products, backend="reference")(x=ROWS)["y"]
    found = outputs(products, PORTABLE, {"x": ROWS})
    np.testing.assert_allclose(found, reference, atol=2e-6)


FUNCTIONS = """
opset 21

graph functions(x: f64[N], e: f64[N]) -> (s, c, p, r) {
    s = Sin(x)
    c = Cos(x)
    p = Pow(Abs(x), e)
    r = Erf(e)
}
"""


def test_functions_need_no_library(tmp_path: Path) -> None:
    """Angles beyond a million, and powers of f64, come from libm in other programs."""
    path = tmp_path / "functions.pgraph"
    path.write_text(FUNCTIONS)
    generator = np.random.default_rng(1)
    x = np.exp(generator.uniform(-5, 300, 2000)) * generator.choice([-1, 1], 2000)
    x[:6] = 0.0, 1.0, np.inf, 1e22, -np.inf, np.nan
    e = generator.uniform(-2, 2, 2000)
    e[6:8] = -6.5, 3.0
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = popgraph.compile(path, options=PORTABLE)(x=x, e=e)
        wanted = {"s": np.sin(x), "c": np.cos(x), "p": np.abs(x) ** e}
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-15, atol=2e-16, err_msg=name)
    reference = popgraph.compile(path, backend="reference")(x=x, e=e)
    np.testing.assert_allclose(found["r"], reference["r"], rtol=4e-15)


def test_the_environment_decides_where_nothing_is_said(
    products: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POPGRAPH_DETERMINISM", "portable")
    assert Options().is_portable
    assert not Options(determinism="machine").is_portable
    monkeypatch.setenv("POPGRAPH_DETERMINISM", "bitwise")
    with pytest.raises(PopgraphError, match="unknown determinism 'bitwise'") as caught:
        Options()
    assert caught.value.where == "POPGRAPH_DETERMINISM"
    with pytest.raises(PopgraphError, match="unknown determinism 'exact'"):
        Options(determinism="exact")
    with pytest.raises(PopgraphError, match="determinism must be one of machine, portable"):
        popgraph.Trainer(products, "ReduceMean(y)", "SGD", determinism="exact")


@pytest.mark.parametrize("accuracy", [0, 4])
def test_weights_of_four_bits(accuracy: int) -> None:
    """Whether sums of blocks are scaled depends on the size of L2 and on the rows elsewhere."""
    model, rows = four_bits(accuracy), np.random.default_rng(1).standard_normal((7, 1024))
    found = []
    caches = {"avx512": (1 << 17, 1 << 26), "avx2": (1 << 20,), "neon": (1 << 20,)}
    for name, size in ((name, size) for name, sizes in caches.items() for size in sizes):
        options = replace(PORTABLE, machine=replace(TARGETS[name], l2_bytes=size))
        runner = popgraph.compile(model, options=options)
        found += [runner(x=rows[:count].astype(np.float32))["y"][:1] for count in (1, 7)]
    for other in found[1:]:
        assert_same_bits(other, found[0], accuracy)


def four_bits(accuracy: int) -> onnx.ModelProto:
    """A product with a weight in blocks of 32 numbers of four bits."""
    generator = np.random.default_rng(0)
    arrays = {
        "w": generator.integers(0, 256, (512, 32, 16), dtype=np.uint8),
        "s": generator.uniform(0.01, 0.02, 512 * 32).astype(np.float32),
    }
    sizes = {"K": 1024, "N": 512, "bits": 4, "block_size": 32, "accuracy_level": accuracy}
    node = helper.make_node("MatMulNBits", ["x", *arrays], ["y"], domain="com.microsoft", **sizes)
    graph = helper.make_graph(
        [node],
        "four_bits",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["M", 1024])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["M", 512])],
        [onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets)


def test_measurements_of_a_machine_do_not_choose_transforms() -> None:
    measured = ("anything -> winograd",)
    options = Options(determinism="machine", measured=measured)
    (usual, portable) = (UseWinograd.of(replace(options, determinism=one)) for one in CHOICES)
    assert usual is not None and usual.measured == measured
    assert portable is not None and not portable.measured


def test_resumed_training_has_the_same_bits(tmp_path: Path) -> None:
    path, rows = written(tmp_path, 3, TRAINING)
    kept = tmp_path / "kept.npz"

    def trained(*epochs: int) -> Mapping[str, Array]:
        for count in epochs:
            trainer = popgraph.Trainer(path, determinism="portable")
            trainer.fit({"x": rows}, batch=16, epochs=count, checkpoint=kept, resume=kept.exists())
        kept.unlink()
        return trainer.weights()

    whole = trained(2)
    for name, array in trained(1, 2).items():
        assert_same_bits(array, whole[name], name)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the targets are x86-64")
def test_exported_programs_have_the_same_bits(tmp_path: Path) -> None:
    """A check prints a hash of its results; -ffp-contract=off keeps compilers from fusing."""
    found = set()
    levels = {"sse2": "x86-64-v2", "avx2": "x86-64-v3", "avx512": "x86-64-v4"}
    for name in HERE:
        (place := tmp_path / name).mkdir()
        options = ("--portable", "--dim", "N=2", "--target", levels[name])
        folder = exported(place, *options, text=PRODUCTS.replace("* 1e9", ""))
        assert "-ffp-contract=off" in (folder / "Makefile").read_text()
        found |= {line for line in made(folder).splitlines() if line.startswith("bits ")}
    assert len(found) == 1
