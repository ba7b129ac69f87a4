"""Tests models with unknown dimensions: one program for sizes that vary between calls."""

from __future__ import annotations

import mmap
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import popgraph
from popgraph import Runner
from popgraph.cli import app
from popgraph.compiler import requests
from popgraph.support.amounts import bytes_text
from popgraph.support.arrays import Array
from popgraph.support.errors import PopgraphError, RunError, TypeMismatchError

MLP = """
opset 21
graph mlp(x: f32[N, 8]) -> y {
    weight w: f32[8, 12] = glorot_uniform
    weight b: f32[12] = uniform(-1, 1)
    y = Softmax(Relu(x @ w + b))
}
"""
PAIR = """
opset 21
graph pair(a: f32[N, 8], b: f32[M, 8]) -> (c: f32[N, 8], d: f32[M]) {
    c = Relu(a)
    d = ReduceMax(b, [1], keepdims=0)
}
"""
REVERSED = "opset 21\ngraph reversed(x: f32[N, 8]) -> y {\n y = x[::-1]\n}\n"


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Counts requested programs, cached or not."""
    made: list[int] = []
    executable = requests.BuildRequest.executable

    def counted(self: requests.BuildRequest) -> object:
        found = executable(self)
        made.append(len(made))
        return found

    monkeypatch.setattr(requests.BuildRequest, "executable", counted)
    yield made


def rows(count: int, width: int = 8) -> Array:
    return np.random.default_rng(count).standard_normal((count, width)).astype(np.float32)


def reference(text: str, **inputs: Array) -> dict[str, Array]:
    return popgraph.compile(text, backend="reference")(inputs)


def assert_right(run: Runner, text: str, **inputs: Array) -> None:
    found = run(inputs)
    for name, expected in reference(text, **inputs).items():
        assert found[name].shape == expected.shape
        np.testing.assert_allclose(found[name], expected, 1e-5, 1e-6)


def bounds(run: Runner) -> list[dict[str, int]]:
    return [dict(one.bounds) for one in run.programs]


def test_a_second_size_compiles_a_program_for_many(built: list[int]) -> None:
    run = popgraph.compile(MLP)
    for size in (4, 4, 9, 10, 17, 18, 5, 3):
        assert_right(run, MLP, x=rows(size))
    assert bounds(run) == [{}, {"N": 32}], "the first size, then all up to the next power of two"
    assert_right(run, MLP, x=rows(100))
    assert bounds(run)[-1] == {"N": 256}
    for size in range(33, 60):
        assert_right(run, MLP, x=rows(size))
    assert len(run.programs) == 3


def test_much_smaller_sizes_have_their_own_program() -> None:
    run = popgraph.compile(MLP, bounds={})
    for size in (64, 63, 9, 4, 2, 1):
        assert_right(run, MLP, x=rows(size))
    assert bounds(run) == [{}, {"N": 64}, {"N": 8}, {}]


def test_bounds_set_the_range_of_the_first_program() -> None:
    run = popgraph.compile(MLP, bounds={"N": 50})
    for size in (1, 50, 7):
        assert_right(run, MLP, x=rows(size))
    assert bounds(run) == [{"N": 50}]
    assert_right(run, MLP, x=rows(51))
    assert bounds(run) == [{"N": 50}, {"N": 128}]


def test_constant_dimensions_are_not_sizes() -> None:
    run = popgraph.compile(PAIR)
    for size in (3, 4, 5):
        assert_right(run, PAIR, a=rows(size), b=rows(20))
    assert bounds(run) == [{}, {"N": 8}]
    assert_right(run, PAIR, a=rows(6), b=rows(21))
    assert bounds(run)[-1] == {"N": 8, "M": 64}


@pytest.mark.parametrize("threads", [1, 2])
def test_large_arrays_are_not_copied(threads: int) -> None:
    text = "opset 21\ngraph wide(x: f32[N, 4096]) -> y {\n y = Relu(x) + 1.0\n}\n"
    run = popgraph.compile(text, threads=threads, bounds={"N": 64})
    kept = [run(x=rows(size, 4096))["y"] for size in (64, 9, 33)]
    for size, found in zip((64, 9, 33), kept, strict=True):
        np.testing.assert_allclose(found, np.maximum(rows(size, 4096), 0) + 1)
        assert found.flags.c_contiguous
    assert_right(run, text, x=rows(40, 8192)[::2, ::2])


def calls_of(run: Callable[[], object]) -> int:
    """The number of function calls of a run."""
    found: list[str] = []
    sys.setprofile(lambda frame, event, argument: found.append(event))
    try:
        run()
    finally:
        sys.setprofile(None)
    return sum(event in ("call", "c_call") for event in found)


def test_known_sizes_cost_few_function_calls() -> None:
    static, run = popgraph.compile(MLP.replace("N", "5")), popgraph.compile(MLP, bounds={"N": 8})
    five, six = rows(5), rows(6)
    for array in (five, six, five, six, five):
        run(x=array)
    static(x=five)
    least = calls_of(lambda: static(x=five))
    assert calls_of(lambda: run(x=five)) <= least + 8
    assert calls_of(lambda: run(x=six)) <= least + 20


def test_calls_that_fail_leave_the_next_ones_alone() -> None:
    text = "opset 21\ngraph wide(x: f32[N, 4096], s: f32) -> y {\n y = Relu(x) + s\n}\n"
    run, one = popgraph.compile(text, bounds={"N": 64}), np.array(1, np.float32)
    kept = run(x=rows(64, 4096), s=one)["y"]
    for wrong in ({"x": rows(9, 4096)}, {"x": rows(9, 4096), "s": "1"}, {"x": rows(9), "s": one}):
        with pytest.raises(PopgraphError):
            run(wrong)
        assert_right(run, text, x=rows(9, 4096), s=one)
        assert_right(run, text, x=rows(64, 4096), s=one)
    np.testing.assert_allclose(kept, np.maximum(rows(64, 4096), 0) + 1)


def test_outputs_survive_calls_of_other_sizes() -> None:
    """Small outputs are copied, large ones have separate memory."""
    text = "opset 21\ngraph wide(x: f32[N, 4096]) -> y {\n y = Relu(x) + 1.0\n}\n"
    run = popgraph.compile(text, bounds={"N": 64})
    sizes = (64, 3, 64, 7, 8, 9, 7, 64, 32, 3)
    kept = [run(x=rows(size, 4096) * at)["y"] for at, size in enumerate(sizes)]
    for at, (size, found) in enumerate(zip(sizes, kept, strict=True)):
        np.testing.assert_allclose(found, np.maximum(rows(size, 4096) * at, 0) + 1)
        assert found.flags.c_contiguous
        assert found.base is None or found.base.nbytes <= 5 * found.nbytes


def test_inputs_are_released_after_calls() -> None:
    text = "opset 21\ngraph wide(x: f32[N, 4096]) -> y {\n y = Relu(x) + 1.0\n}\n"
    run = popgraph.compile(text, bounds={"N": 64})
    array = rows(64, 4096)
    held = weakref.ref(array)
    run(x=array)
    del array
    run(x=rows(63, 4096))
    assert held() is None


def test_outputs_without_sizes_are_arrays_of_their_shape() -> None:
    text = "opset 21\ngraph g(x: f32[N, 8], s: f32) -> (y, z) {\n y = x + s\n z = s * 2.0\n}\n"
    run = popgraph.compile(text, bounds={"N": 8})
    for size in (8, 3):
        found = run(x=rows(size), s=np.array(3, np.float32))
        assert isinstance(found["z"], np.ndarray) and found["z"].shape == ()
        assert found["z"] == 6 and found["y"].shape == (size, 8)


def test_unsupported_operators_have_a_program_per_size() -> None:
    run = popgraph.compile(REVERSED)
    for size in (3, 4, 5):
        assert_right(run, REVERSED, x=rows(size))
    assert bounds(run) == [{}, {}, {}]


def test_refused_sizes_do_not_affect_others() -> None:
    text = "opset 21\ngraph fours(x: f32[N, 6]) -> y {\n y = Reshape(x, [4, -1]) * 2.0\n}\n"
    run = popgraph.compile(text)
    for size in (4, 8, 12):
        assert_right(run, text, x=rows(size, 6))
    with pytest.raises(TypeMismatchError, match="54 elements do not become"):
        run(x=rows(9, 6))
    assert bounds(run) == [{}, {}, {}], "neither a bound nor a probe need be a multiple of four"


BY_SIZE = {
    "a branch": """
    big = Shape(x)[0] > 40
    y = if big {
        y = x * 2.0
    } else {
        y = x * 3.0
    }
""",
    "a choice": "    y = Where(Shape(x)[0] > 40, x, x * 3.0)\n",
    "a choice for one row": "    y = Where(Shape(x)[0] > 1, x, x * 3.0)\n",
    "some sizes alone": ("    n = Shape(x)[0]\n    y = Where(And(n > 10, n < 40), x, x * 3.0)\n"),
    "even rows": "    y = Where(Mod(Shape(x)[0], 2) == 0, x, x * 3.0)\n",
    "the first rows": "    y = x[:5] + 1.0\n",
    "at most some rows": "    y = Slice(x, [0], Min(Shape(x)[0:1], [10]), [0]) * 2.0\n",
    "a number": "    y = x * Cast(Shape(x)[0], to=1)\n",
    "positions": "    y = x + Unsqueeze(Cast(Range(0, Shape(x)[0], 1), to=1), [1])\n",
}
"""Models in which a size matters beyond trip counts."""


@pytest.mark.parametrize("what", BY_SIZE)
def test_sizes_in_conditions_and_values(what: str) -> None:
    text = f"opset 21\ngraph by_size(x: f32[N, 8]) -> y {{\n{BY_SIZE[what]}}}\n"
    run = popgraph.compile(text, bounds={"N": 64})
    for size in (64, 41, 40, 30, 11, 3, 2, 1):
        assert_right(run, text, x=rows(size))
    assert (len(run.programs) > 2) == (
        what not in ("a choice for one row", "a number", "positions")
    )


RECURRENT = """
opset 21
graph recurrent(x: f32[5, N, 8], lengths: i32[N]) -> (scores, cell) {
    weight w: f32[2, 24, 8] = glorot_uniform
    weight r: f32[2, 24, 6] = glorot_uniform
    weight w2: f32[1, 40, 12] = glorot_uniform
    weight r2: f32[1, 40, 10] = glorot_uniform
    weight p: f32[1, 30] = uniform(-1, 1)
    weight dense: f32[10, 3] = glorot_uniform
    (both, _, _) = LSTM(x, w, r, _, lengths, hidden_size=6, direction="bidirectional")
    steps = Reshape(Transpose(both, perm=[0, 2, 1, 3]), [0, 0, -1])
    (ys, _, cell) = LSTM(steps, w2, r2, _, _, _, _, p, hidden_size=10)
    scores = Transpose(Squeeze(ys, [1]), perm=[1, 0, 2]) @ dense
}
"""
SCANNED = """
opset 21
graph scanned(x: f32[6, N, 8]) -> outs {
    weight w: f32[8, 12] = glorot_uniform
    weight r: f32[12, 12] = glorot_uniform
    start = (x[0] * 0.0) @ w
    (h, outs) = loop row in x with h = start {
        h = Tanh(h @ r + row @ w)
        outs = h
    }
}
"""


MERGED = """
opset 21
graph merged(x: f32[6, N, 8]) -> y {
    weight w: f32[8, 12] = glorot_uniform
    weight b: f32[12] = uniform(-1, 1)
    weight v: f32[12, 8] = glorot_uniform
    flat = Reshape(x, [-1, 8])
    hidden = Softmax(flat @ w + b) * ReduceMax(flat, [1])
    gated = Reshape(Gelu(hidden @ v) + flat, [6, -1, 8])
    y = Transpose(gated, perm=[1, 0, 2])
}
"""


def test_sizes_are_followed_into_merged_rows() -> None:
    """PyTorch's attention merges steps and batch, in this order, before its last matmul."""
    run = popgraph.compile(MERGED, bounds={"N": 16})
    for size in (16, 1, 5):
        assert_right(run, MERGED, x=rows(size, 48).reshape(size, 6, 8).transpose(1, 0, 2))
    assert bounds(run) == [{"N": 16}]


STEPS = """
opset 21
graph steps(x: f32[T, N, 8], lengths: i32[N]) -> (scores, cell) {
    weight w: f32[1, 24, 8] = glorot_uniform
    weight r: f32[1, 24, 6] = glorot_uniform
    weight w2: f32[1, 30, 6] = glorot_uniform
    weight r2: f32[1, 30, 10] = glorot_uniform
    weight dense: f32[10, 3] = glorot_uniform
    (ys, _, cell) = LSTM(x, w, r, _, lengths, hidden_size=6)
    (zs, _) = GRU(Squeeze(ys, [1]), w2, r2, hidden_size=10)
    scores = Transpose(Squeeze(zs, [1]), perm=[1, 0, 2]) @ dense
}
"""


def test_recurrent_layers_run_for_any_number_of_steps() -> None:
    run = popgraph.compile(STEPS, bounds={"N": 8, "T": 20})
    for steps, size in ((20, 8), (2, 3), (13, 5), (3, 2), (19, 7)):
        x = rows(steps, size * 8).reshape(steps, size, 8)
        assert_right(run, STEPS, x=x, lengths=np.arange(size, dtype=np.int32) % steps + 1)
    assert bounds(run) == [{"T": 20, "N": 8}]


JOINED = """
opset 21
graph joined(x: f32[N, L, 8]) -> (outs, h) {
    weight w: f32[8, 8] = glorot_uniform
    flat = Reshape(x, [-1, 8])
    start = ReduceMax(flat, [0], keepdims=0)
    (h, outs) = loop row in flat with h = start {
        h = Tanh(h @ w + row)
        outs = h * 2.0
    }
}
"""


def test_a_loop_over_the_product_of_two_sizes_has_a_program_per_size() -> None:
    run = popgraph.compile(JOINED, bounds={"N": 4, "L": 6})
    for size, length in ((4, 6), (3, 5)):
        assert_right(run, JOINED, x=rows(size, length * 8).reshape(size, length, 8))
    assert bounds(run) == [{}, {}]


def test_recurrent_layers_run_for_every_batch() -> None:
    run = popgraph.compile(RECURRENT, bounds={"N": 16})
    for size in (16, 1, 2, 7, 13):
        x = rows(size, 40).reshape(size, 5, 8).transpose(1, 0, 2)
        assert_right(run, RECURRENT, x=x, lengths=np.arange(size, dtype=np.int32) % 5 + 1)
    assert bounds(run) == [{"N": 16}]


def test_hoisted_matmuls_of_loops_run_for_every_batch() -> None:
    run = popgraph.compile(SCANNED, bounds={"N": 16})
    for size in (16, 1, 5):
        assert_right(run, SCANNED, x=rows(size, 48).reshape(size, 6, 8).transpose(1, 0, 2))
    assert bounds(run) == [{"N": 16}]


def test_empty_batches() -> None:
    run = popgraph.compile(MLP, bounds={"N": 8})
    assert run(x=rows(0))["y"].shape == (0, 12)
    assert_right(run, MLP, x=rows(8))


ELSEWHERE = """
import sys
import numpy as np
from popgraph.backends.c.cache import install_fingerprint

install_fingerprint.states = lambda: "the same"
import popgraph

run = popgraph.compile(sys.argv[1])
for sizes in eval(sys.argv[2]):
    run({name: np.ones(shape, np.float32) for name, shape in sizes.items()})
for name in ("popgraph.compiler", "popgraph.dialects", "xdsl", "onnx", "lark"):
    assert name not in sys.modules, name
print([dict(one.bounds) for one in run.programs])
"""
TURNED = (
    "opset 21\ngraph turned(a: f32[N, 8], b: f32[M, 8]) -> (c, d) {\n c = a[::-1]\n d = -b\n}\n"
)
"""A model where the rows of `a` decide structure, and those of `b` are a size."""


def in_another_process(file: Path, calls: list[dict[str, tuple[int, int]]]) -> str:
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, str(file), repr(calls)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_another_process_finds_programs_for_sizes(tmp_path: Path, program_cache: Path) -> None:
    """Another process needs no compiler for known sizes, in any order."""
    file = tmp_path / "mlp.pgraph"
    file.write_text(MLP)
    run = popgraph.compile(file)
    for size in (4, 9, 10):
        run(x=rows(size))
    calls = [{"x": (size, 8)} for size in (4, 14, 9, 3, 32)]
    assert in_another_process(file, calls) == "[{}, {'N': 32}]"


def test_cached_programs_for_some_sizes_are_found(tmp_path: Path, program_cache: Path) -> None:
    file = tmp_path / "turned.pgraph"
    file.write_text(TURNED)
    run = popgraph.compile(file, bounds={"N": 32, "M": 32})
    for first, second in ((4, 9), (4, 10), (5, 10)):
        run(a=rows(first), b=rows(second))
    made = bounds(run)
    assert made == [{"M": 32}, {"M": 32}]
    again = popgraph.compile(file, bounds={"N": 32, "M": 32})
    for first, second in ((5, 30), (4, 20), (4, 32)):
        assert_right(again, TURNED, a=rows(first), b=rows(second))
    assert bounds(again) == made


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"M": 4}, r"bounds names 'M', which is not a symbolic dimension .*\n.*'N'"),
        ({"N": 0}, r"the bound of 'N' is 0\n.*positive integer"),
        ({"N": 2.5}, r"the bound of 'N' is 2.5"),
    ],
)
def test_wrong_bounds(given: dict[str, int], said: str) -> None:
    with pytest.raises(RunError, match=said):
        popgraph.compile(MLP, bounds=given)


def test_a_model_without_unknown_dimensions_has_no_bounds() -> None:
    with pytest.raises(RunError, match="its symbolic dimensions: none"):
        popgraph.compile(MLP.replace("N", "3"), bounds={"N": 3})


def test_print_of_means_over_a_size(tmp_path: Path) -> None:
    """A division becomes a multiplication for a known power of two, but not for a size."""
    file = tmp_path / "means.pgraph"
    file.write_text("opset 21\ngraph means(x: f32[N, 8]) -> y {\n y = Mean(x, ReduceMean(x))\n}\n")
    shown = CliRunner().invoke(app, ["print", str(file), "--at", "structured", "--dim", "N=..8"])
    assert shown.exit_code == 0, shown.output
    assert "#tile.running<loop 0 to 1 of size 0>" in shown.output


def test_print_shows_where_loops_end(tmp_path: Path) -> None:
    file = tmp_path / "mlp.pgraph"
    file.write_text(MLP)
    shown = CliRunner().invoke(app, ["print", str(file), "--at", "structured", "--dim", "N=..64"])
    assert shown.exit_code == 0, shown.output
    assert '#pg.size<"N" 1 to 64 inputs ("x" axis 0 times 1)' in shown.output
    assert "running = #tile.running<loop 0 to 1 of size 0>" in shown.output


def test_a_runner_lists_its_programs() -> None:
    run = popgraph.compile(MLP, bounds={"N": 32})
    run(x=rows(5))
    (made,) = run.programs
    arrays = 4 * 32 * (8 + 12)
    assert made.memory == arrays + run.program({"x": rows(5)}).arena
    assert f"x Nx8, N 1..32, memory {bytes_text(made.memory)}" in repr(run)


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux what memory is in use")
def test_memory_beyond_the_size_of_a_call_is_not_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs and outputs at the bound of 4096 rows have 64 MiB each."""

    def megabytes() -> float:
        return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE / 1e6

    monkeypatch.setenv("POPGRAPH_POISON", "0")
    text = "opset 21\ngraph wide(x: f32[N, 4096]) -> y {\n y = Softmax(Softmax(x) * 2.0)\n}\n"
    popgraph.compile(text, bounds={"N": 64})(x=rows(8, 4096))
    before = megabytes()
    run = popgraph.compile(text, bounds={"N": 4096})
    assert run(x=rows(8, 4096))["y"].shape == (8, 4096)
    (made,) = run.programs
    assert made.memory >= 2**27
    assert megabytes() - before < 32


@pytest.mark.parametrize("first", [9, 20])
def test_print_lists_the_ranges_of_cached_programs(
    tmp_path: Path, program_cache: Path, first: int
) -> None:
    file = tmp_path / "mlp.pgraph"
    file.write_text(MLP + f"# {first}")
    for sizes in ((4, first), (first, 10)):
        run = popgraph.compile(file, bounds={"N": 32})
        for size in sizes:
            run(x=rows(size))
    popgraph.compile(file)(x=rows(5))
    assert CliRunner().invoke(app, ["print", str(file)]).stdout.splitlines()[:3] == [
        "// compiled programs in the cache: 2",
        "//   x: [N, 8], N 1..32; 1 thread",
        "//   x: [5, 8]; 1 thread",
    ]


def test_programs_for_two_rows_or_more_show_their_range() -> None:
    text = BY_SIZE["a choice for one row"]
    run = popgraph.compile(
        f"opset 21\ngraph by_size(x: f32[N, 8]) -> y {{\n{text}}}\n", bounds={"N": 16}
    )
    for size in (1, 2):
        run(x=rows(size))
    assert [str(one) for one in run.programs] == ["x 1x8", "x Nx8, N 2..16"]
