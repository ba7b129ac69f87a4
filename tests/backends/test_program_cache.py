"""Tests the program cache: hits, misses, damage, variables, concurrency."""

from __future__ import annotations

import json
import mmap
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event, Thread
from typing import IO, Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import popgraph
import popgraph.compiler as compiler
from popgraph import start
from popgraph.backends.c.build import toolchain
from popgraph.backends.c.cache import folder as cache_folder
from popgraph.backends.c.cache import install_fingerprint, program_cache, program_file, program_key
from popgraph.backends.c.memory.pages import LARGE_PAGE, aligned
from popgraph.backends.c.run import warm_start
from popgraph.background import Deferred
from popgraph.builder.onnx import message
from popgraph.builder.onnx import wire as onnx_wire
from popgraph.passes import pipeline
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.optimizer_spec import SGD, Adam, Scalar
from popgraph.passes.options import Options, Training
from popgraph.passes.pipeline import Step
from popgraph.support import files
from popgraph.support.arrays import Array, ArrayStore
from popgraph.support.cache_files import trim
from popgraph.support.machine import PRESETS
from popgraph.support.tuning import Tuning
from popgraph.support.warnings import UntrainedWeightsWarning
from tests.damages import DAMAGES

ADAM = Adam(learning_rate=Scalar(0.01))
X = np.random.default_rng(1).standard_normal((2, 3, 8, 8), dtype=np.float32)

AGAIN = """
import sys
import numpy as np
from pathlib import Path
from popgraph import compiler
from popgraph.backends.c.cache import program_key

def forbidden(*arguments, **named):
    raise AssertionError("a pass runs")

program_key.sources = lambda: "the same"
compiler.requests.lower = forbidden
run = compiler.compile(sys.argv[1])
np.save(sys.argv[3], run({"x": np.load(sys.argv[2])})["y"])
"""


def model(seed: int = 0) -> bytes:
    """A convolution with a batch norm to fold, a matmul, and a weight that is not packed."""
    rng = np.random.default_rng(seed)
    shapes = {"w": (16, 3, 3, 3), "m": (1024, 8), "t": (2, 8, 160)}
    shapes |= dict.fromkeys(("scale", "bias", "mean", "variance"), (16,))
    weights = [
        numpy_helper.from_array(rng.random(shape, dtype=np.float32), name)
        for name, shape in shapes.items()
    ]
    norm = ["c", "scale", "bias", "mean", "variance"]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", norm, ["n"]),
        helper.make_node("Flatten", ["n"], ["f"]),
        helper.make_node("MatMul", ["f", "m"], ["p"]),
        helper.make_node("Unsqueeze", ["p", "last"], ["q"]),
        helper.make_node("Add", ["q", "t"], ["y"]),
    ]
    weights.append(numpy_helper.from_array(np.array([2], np.int64), "last"))
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (2, 8, 160))],
        weights,
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return made.SerializeToString()  # type: ignore[no-any-return]


@dataclass
class Passes:
    """Number of times that a module was lowered."""

    runs: int = 0


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache that stays valid while the package is edited."""
    monkeypatch.setenv("POPGRAPH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv(program_cache.SWITCH, "1")
    monkeypatch.setattr(program_key, "sources", lambda: "the same")
    monkeypatch.setattr(install_fingerprint, "states", lambda: "the same")
    return tmp_path / "cache"


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Passes]:
    counted, lower = Passes(), compiler.lower

    def counting(*arguments: object, **named: object) -> object:
        counted.runs += 1
        return lower(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr("popgraph.compiler.requests.lower", counting)
    yield counted


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> Event:
    """An event for which files of programs wait before they are written."""
    go, write = Event(), program_file.write

    def wait_and_write(*arguments: Any) -> None:
        assert go.wait(60)
        write(*arguments)

    monkeypatch.setattr(program_file, "write", wait_and_write)
    return go


def compute(given: object, **named: object) -> Array:
    return compiler.compile(given, **named)({"x": X})["y"]  # type: ignore[arg-type]


def program(cache: Path) -> Path:
    """The only program in the cache."""
    program_cache.SAVES.wait()
    (file,) = (cache / "programs").glob("*/*")
    return file


@pytest.mark.parametrize(
    "other",
    [
        Options(tuning=Tuning(least_products=1)),
        Options(machine=replace(PRESETS["zen3"], far_line_cycles=7.0)),
    ],
    ids=["tuning", "machine"],
)
def test_machine_and_tuning_are_part_of_the_program_key(
    other: Options, cache: Path, passes: Passes, tmp_path: Path
) -> None:
    """Neither the program cache nor the shortcuts confuse them."""
    (tmp_path / "model.onnx").write_bytes(model())
    plain = replace(other, machine=PRESETS["zen3"], tuning=Tuning())
    for runs, options in ((1, plain), (1, plain), (2, other), (2, other)):
        popgraph.compile(tmp_path / "model.onnx", options=options)
        assert passes.runs == runs


def test_another_process_needs_no_pass_and_no_compiler(
    cache: Path, passes: Passes, tmp_path: Path
) -> None:
    (tmp_path / "model.onnx").write_bytes(model())
    np.save(tmp_path / "x.npy", X)
    expected = compute(tmp_path / "model.onnx")
    assert passes.runs == 1
    names = [str(tmp_path / name) for name in ("model.onnx", "x.npy", "y.npy")]
    subprocess.run(
        [sys.executable, "-c", AGAIN, *names], check=True, env={**os.environ, "CC": "/bin/false"}
    )
    assert np.array_equal(np.load(tmp_path / "y.npy"), expected)
    assert np.allclose(expected, compute(model(), backend="reference"), rtol=1e-4)


def test_the_same_model_again_is_taken_from_the_cache(cache: Path, passes: Passes) -> None:
    first = compute(model())
    assert np.array_equal(first, compute(model()))
    assert passes.runs == 1


def test_variables_start_with_the_values_of_the_model(cache: Path, passes: Passes) -> None:
    options = Options(variables=True)
    first = compute(model(), options=options)
    again = compiler.compile(model(), options=options)
    assert passes.runs == 1
    assert np.array_equal(first, again({"x": X})["y"])
    executable = again.program({"x": X})
    executable.write("scale", np.zeros(16, np.float32))
    assert not np.array_equal(first, again({"x": X})["y"])
    assert np.array_equal(first, compute(model(), options=options)), "the cache is not written to"


def test_each_number_of_threads_has_a_program(cache: Path, passes: Passes) -> None:
    for threads in (1, 2, 2, 1):
        assert np.array_equal(compute(model()), compute(model(), threads=threads))
    assert passes.runs == 2


def test_weights_are_part_of_the_program_key(cache: Path, passes: Passes) -> None:
    first = compute(model())
    assert not np.array_equal(first, compute(model(seed=1)))
    assert passes.runs == 2


def test_options_are_part_of_the_program_key(cache: Path, passes: Passes) -> None:
    compute(model())
    compute(model(), options=Options(disabled=frozenset({"fuse-epilogue"})))
    compute(model(), options=Options(extra_outputs=("c",)))
    assert passes.runs == 3


def test_the_package_version_is_part_of_the_program_key(
    cache: Path, passes: Passes, monkeypatch: pytest.MonkeyPatch
) -> None:
    compute(model())
    monkeypatch.setattr(program_key, "sources", lambda: "another")
    compute(model())
    assert passes.runs == 2


def test_the_compiler_is_part_of_the_program_key(
    cache: Path, passes: Passes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compute(model())
    (compiler_used, *_) = toolchain.candidates()
    other = tmp_path / "other-cc"
    other.write_text(f'#!/bin/sh\nexec {compiler_used.name} "$@"\n')
    other.chmod(0o755)
    monkeypatch.setenv("CC", str(other))
    compute(model())
    assert passes.runs == 2


@pytest.mark.parametrize("place", [0.0, 0.001, 0.5, 0.9999])
def test_a_damaged_program_is_replaced(cache: Path, passes: Passes, place: float) -> None:
    expected = compute(model())
    file = program(cache)
    content = bytearray(file.read_bytes())
    content[int(place * len(content))] ^= 0x10
    file.write_bytes(content)
    assert np.array_equal(compute(model()), expected)
    assert passes.runs == 2, "the damaged program is not used"
    assert np.array_equal(compute(model()), expected)
    assert passes.runs == 2, "and has been replaced"


@pytest.mark.parametrize("left", [0, 10, 1000, -1])
def test_a_truncated_program_is_replaced(cache: Path, passes: Passes, left: int) -> None:
    expected = compute(model())
    file = program(cache)
    file.write_bytes(file.read_bytes()[:left])
    assert np.array_equal(compute(model()), expected)
    assert passes.runs == 2


def test_a_program_under_a_wrong_name_is_not_used(cache: Path, passes: Passes) -> None:
    compute(model())
    first = program(cache)
    compute(model(seed=1))
    program_cache.SAVES.wait()
    (second,) = set((cache / "programs").glob("*/*")) - {first}
    second.write_bytes(first.read_bytes())
    expected = compute(model(seed=1), backend="reference")
    runs = passes.runs
    assert np.allclose(compute(model(seed=1)), expected, rtol=1e-4)
    assert passes.runs == runs + 1


def test_a_program_without_its_library_is_replaced(cache: Path, passes: Passes) -> None:
    expected = compute(model())
    for file in cache.rglob("*.so"):
        file.unlink()
    assert np.array_equal(compute(model()), expected)
    assert passes.runs == 2


def test_a_cache_that_cannot_be_written_is_read(
    cache: Path, passes: Passes, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = compute(model())
    before = sorted(cache.rglob("*"))
    monkeypatch.setattr(cache_folder, "refusal", lambda path: "cannot be written")
    with pytest.warns(RuntimeWarning, match="cannot be written"):
        cache_folder.forget()
        assert np.array_equal(compute(model()), expected)
        assert passes.runs == 1
        compute(model(seed=1))
    assert sorted(cache.rglob("*")) == before


@pytest.mark.parametrize(
    ("name", "value"),
    [("POPGRAPH_DEBUG", "1"), ("POPGRAPH_CHECK", "1"), (program_cache.SWITCH, "0")],
)
def test_debugging_variables_bypass_the_program_cache(
    cache: Path, passes: Passes, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    compute(model())
    monkeypatch.setenv(name, value)
    compute(model())
    assert passes.runs == 2


def test_weights_that_are_variables_are_not_stored_again(cache: Path) -> None:
    compute(model(), options=Options(variables=True))
    header = json.loads(program(cache).read_bytes().splitlines()[1])
    literals = [slot["literal"] for slot in header["slots"] if slot["literal"]]
    named = [literal for literal in literals if "key" in literal and "piece" not in literal]
    shapes = [[16, 3, 3, 3], [1024, 8], [2, 8, 160]]
    assert sorted(literal["shape"] for literal in named) == sorted(shapes)


class Foreign(Pass):
    """A custom pass."""

    name = "foreign"

    def run(self, compilation: Compilation, module: object) -> None:
        """Nothing."""


def test_unknown_passes_and_new_files_have_no_program_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(program_cache.SWITCH, "1")
    module, _ = compiler.load(model())
    sources = program_key.sources.__wrapped__
    monkeypatch.setattr(install_fingerprint, "STARTED", 1e12)
    assert sources() is not None
    monkeypatch.setattr(program_key, "sources", lambda: "the same")
    assert program_key.program_key(module, []) is not None
    assert program_key.program_key(module, [Foreign()]) is None
    monkeypatch.setattr(program_key, "sources", sources)
    assert program_key.program_key(module, []) is not None
    monkeypatch.setattr(install_fingerprint, "STARTED", 0.0)
    assert program_key.program_key(module, []) is None, "files are newer than the process"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installation of this package that is older than the process."""
    (tmp_path / "package/pgraph/__pycache__").mkdir(parents=True)
    for name in ("a.py", "pgraph/b.lark", "pgraph/__pycache__/b.py", "other.txt"):
        (tmp_path / "package" / name).write_text("content")
    monkeypatch.setattr(install_fingerprint, "PACKAGE", tmp_path / "package")
    monkeypatch.setattr(program_key, "PACKAGE", tmp_path / "package")
    monkeypatch.setattr(install_fingerprint, "STARTED", 1e12)
    return tmp_path / "package"


def installation() -> tuple[str | None, str | None]:
    """The fingerprints of the installation: for programs, and for shortcuts to them."""
    return program_key.sources.__wrapped__(), install_fingerprint.states.__wrapped__()


@pytest.mark.parametrize("name", ["a.py", "pgraph/b.lark", "pgraph/new.h"])
def test_an_edited_installation_has_another_fingerprint(package: Path, name: str) -> None:
    first = installation()
    assert all(first) and first == installation()
    (package / "other.txt").write_text("nobody reads this")
    (package / "pgraph/__pycache__/b.py").write_text("nor this")
    assert first == installation()
    file, old = package / name, (package / "a.py").stat()
    file.write_text("changed")
    os.utime(file, ns=(old.st_atime_ns, old.st_mtime_ns))
    assert all(one != other for one, other in zip(first, installation(), strict=True))


def test_another_version_of_a_dependency_has_another_fingerprint(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in "12":
        (package.parent / number).mkdir()
        (package.parent / number / "below.py").write_text("")
    for module in (install_fingerprint, program_key):
        monkeypatch.setattr(module, "DEPENDENCIES", ("below",))
    found = []
    for number in "12":
        monkeypatch.syspath_prepend(package.parent / number)
        monkeypatch.setattr(program_key, "version", lambda _, number=number: number)
        found.append(installation())
    assert len(set(found)) == 2
    assert all(one != other for one, other in zip(*found, strict=True))
    (package.parent / "2/below.py").write_text("again")
    assert install_fingerprint.states.__wrapped__() != found[1][1]
    monkeypatch.setattr(install_fingerprint, "DEPENDENCIES", ("nowhere",))
    assert install_fingerprint.states.__wrapped__() is None


def test_an_unreadable_installation_has_no_fingerprint(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(install_fingerprint, "PACKAGE", package / "archive.zip")
    assert installation() == (None, None)
    monkeypatch.setattr(install_fingerprint, "PACKAGE", package)
    monkeypatch.setattr(install_fingerprint, "STARTED", 0.0)
    assert installation() == (None, None)


def test_the_least_recently_used_file_is_evicted_first(tmp_path: Path) -> None:
    for number in range(4):
        file = tmp_path / "ab" / str(number)
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(bytes(100))
        os.utime(file, (number, number))
    trim(tmp_path, 250)
    assert sorted(file.name for file in tmp_path.glob("*/*")) == ["2", "3"]


def test_a_checksum_covers_every_bit_and_the_order_of_blocks() -> None:
    data = aligned(3 * program_file.BLOCK + 5)
    data[:] = np.random.default_rng(0).integers(0, 256, data.size, np.uint8)
    sums = {program_file.checksum(data)}
    for place in (0, program_file.BLOCK, data.size - 1):
        data[place] ^= 1
        sums.add(program_file.checksum(data))
    first = data[: program_file.BLOCK].copy()
    data[: program_file.BLOCK] = data[program_file.BLOCK : 2 * program_file.BLOCK]
    data[program_file.BLOCK : 2 * program_file.BLOCK] = first
    sums.add(program_file.checksum(data))
    assert len(sums) == 5


def large_and_small(path: Path) -> tuple[Array, Array]:
    """Two pieces of a program file at `path`; the first does not end at a block boundary."""
    rng = np.random.default_rng(0)
    sizes = LARGE_PAGE + 3 * program_file.STEP + program_file.BLOCK + 77, 1000
    large, small = (rng.integers(0, 256, size, np.uint8) for size in sizes)
    program_file.write(path, {"name": "it"}, [large, small])
    return large, small


def read_whole(file: IO[bytes]) -> None:
    opened = program_file.ProgramFile(file)
    for number in range(2):
        opened.piece(number)


def is_mapped(array: Array) -> bool:
    return not array.flags.writeable


def test_large_pieces_are_read_into_memory_and_small_ones_mapped(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "file"
    pieces = large_and_small(path)
    with path.open("rb") as file:
        opened = program_file.ProgramFile(file)
        found = [opened.piece(0), opened.piece(1)]
        mine = opened.piece(1, into=aligned(1000))
    assert opened.header["name"] == "it"
    assert not is_mapped(mine) and np.array_equal(mine, pieces[1])
    for piece, again in zip(pieces, found, strict=True):
        assert np.array_equal(piece, again)
    assert [is_mapped(piece) for piece in found] == [False, True]
    assert found[0].ctypes.data % LARGE_PAGE == 0


@pytest.mark.parametrize("place", [100, LARGE_PAGE // 2, LARGE_PAGE + program_file.STEP + 1, -1])
def test_damaged_pieces_of_a_program_file_are_not_read(tmp_path: Path, place: int) -> None:
    path = tmp_path / "file"
    large, _ = large_and_small(path)
    start = path.read_bytes().index(large[:64].tobytes())
    content = np.fromfile(path, np.uint8)
    content[place if place < 0 else start + place] ^= 4
    content.tofile(path)
    with path.open("rb") as file, pytest.raises(ValueError, match="damaged data"):
        read_whole(file)


def test_a_truncated_program_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    large_and_small(path)
    os.truncate(path, LARGE_PAGE)
    with path.open("rb") as file, pytest.raises(ValueError, match="data is missing"):
        read_whole(file)


@pytest.mark.parametrize("missing", ["MAP_PRIVATE", "madvise"])
def test_aligned_memory_without_large_pages(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    if missing == "madvise":

        class Mapping(mmap.mmap):
            madvise = property(doc="raises AttributeError, as it has no getter")

        monkeypatch.setattr(mmap, "mmap", Mapping)
    else:
        monkeypatch.delattr(mmap, missing)
    memory = aligned(2 * LARGE_PAGE)
    memory.fill(1)
    assert memory.size == 2 * LARGE_PAGE
    assert memory.ctypes.data % LARGE_PAGE == 0


# Saves in a thread


STEPS = """
opset 21

graph net(x: f32[4, 64], labels: i32[4]) -> (y, loss) {
    weight w: f32[64, 256] = he_normal(seed=1)
    weight v: f32[256, 10] = he_normal(seed=2)
    y = Softmax(Relu(x @ w) @ v)
    loss = ai.graphcore.Nll(y, labels)
}
"""


@pytest.mark.parametrize("options", [Options(training=Training("loss", ADAM)), Options()])
def test_a_program_is_saved_as_it_was_before_its_runs(
    cache: Path, options: Options, late: Event
) -> None:
    """The thread writes only arrays that steps do not change."""
    inputs = {"x": X.reshape(-1)[:256].reshape(4, 64), "labels": np.arange(4, dtype=np.int32)}
    run = compiler.compile(STEPS, options=options)
    losses = [float(run(inputs)["loss"]) for _ in range(3)]
    assert (losses[0] == losses[2]) == (options.training is None)
    assert not list(cache.glob("programs/*/*"))
    late.set()
    saved = program(cache).read_bytes()
    again = compiler.compile(STEPS, options=options)
    assert [float(again(inputs)["loss"]) for _ in range(3)] == losses
    program(cache).unlink()
    compiler.compile(STEPS, options=options)
    assert program(cache).read_bytes() == saved


def test_a_file_may_change_while_its_program_is_saved(
    cache: Path, file: Path, late: Event, passes: Passes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A view of a file that has become shorter would end the process by SIGBUS."""
    monkeypatch.setattr(message, "LARGE_MODEL", 0)
    expected, content = compute(file), file.read_bytes()
    file.write_bytes(b"")
    late.set()
    assert np.array_equal(compute(content), expected)
    assert passes.runs == 1


def test_programs_are_found_while_they_are_saved(cache: Path, late: Event, passes: Passes) -> None:
    expected = compute(model())
    Thread(target=late.set).start()
    assert np.array_equal(compute(model()), expected)
    assert passes.runs == 1


def test_quick_programs_are_saved_without_packed_weights(cache: Path, passes: Passes) -> None:
    """Whoever finds one has the weights of its model."""
    expected = compute(model(), backlog=Deferred())
    content = program(cache).read_bytes()
    assert len(content) < np.dtype(np.float32).itemsize * 1024 * 8, "smaller than one weight"
    assert np.array_equal(compute(model(), backlog=Deferred()), expected)
    assert passes.runs == 1
    key = program_cache.ProgramKey(json.loads(content.splitlines()[1])["key"])
    assert key.is_kept() and key.load(ArrayStore()) is None


# Shortcuts


AT_ONCE = """
import sys
import numpy as np
from popgraph.backends.c.cache import install_fingerprint

install_fingerprint.states = lambda: "the same"
import popgraph

run = popgraph.compile(sys.argv[1])
np.save(sys.argv[3], run(x=np.load(sys.argv[2]))["y"])
for name in ("popgraph.compiler", "popgraph.dialects", "xdsl", "onnx", "lark"):
    assert name not in sys.modules, name
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A model file."""
    path = tmp_path / "model.onnx"
    path.write_bytes(model())
    return path


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes files count as settled at once, however recent their last change."""
    monkeypatch.setattr(files, "SETTLED", -1.0)


def shortcuts(cache: Path) -> list[Path]:
    return list((cache / "shortcuts").glob("*/*"))


@pytest.mark.usefixtures("settled")
def test_a_known_file_starts_without_importing_the_compiler(cache: Path, file: Path) -> None:
    np.save(file.with_name("x.npy"), X)
    expected = compute(file)
    assert len(shortcuts(cache)) == 1
    names = [str(file.with_name(name)) for name in ("model.onnx", "x.npy", "y.npy")]
    environment = {**os.environ, "CC": "/bin/false"}
    subprocess.run([sys.executable, "-c", AT_ONCE, *names], check=True, env=environment)
    assert np.array_equal(np.load(file.with_name("y.npy")), expected)


def has_shortcut(path: Path, **named: object) -> bool:
    return warm_start.recall(path, named.get("options"), 1) is not None


ROUNDED = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[2] x) => (float loss) <float[2] w = {1.3, 2.4}> {
    r = Round(w)  y = Mul(r, x)  loss = ReduceSum<keepdims = 0>(y)
}
"""
TRAINED = Options(training=Training("loss", SGD(learning_rate=Scalar(0.1))))


@pytest.mark.usefixtures("cache", "settled")
def test_a_warning_is_kept_with_the_program(tmp_path: Path, passes: Passes) -> None:
    """Every start reports the warning once, although passes run only in the first."""
    path, model = tmp_path / "rounded.onnx", onnx.parser.parse_model(ROUNDED)
    onnx.save(model, path)
    for way in (path, path, model, model.SerializeToString()):
        with pytest.warns(UntrainedWeightsWarning, match="1 weight: 'w'") as caught:
            start.compile(way, options=TRAINED)
        assert len(caught) == 1
        assert passes.runs == 1
    with pytest.warns(UntrainedWeightsWarning):
        assert has_shortcut(path, options=TRAINED)


@pytest.mark.usefixtures("settled")
def test_a_changed_file_is_compiled_again(cache: Path, file: Path) -> None:
    first = compute(file)
    assert has_shortcut(file)
    assert not has_shortcut(file, options=Options(extra_outputs=("c",)))
    file.write_bytes(model(seed=1))
    assert not has_shortcut(file)
    assert not np.array_equal(compute(file), first)
    assert has_shortcut(file)


def test_a_recently_changed_file_has_no_shortcut(
    cache: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "SETTLED", 3600.0)
    compute(file)
    assert not shortcuts(cache)


@pytest.mark.usefixtures("settled")
def test_shortcuts_check_external_data(cache: Path, file: Path) -> None:
    path = str(file)
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="w.bin", size_threshold=0)
    expected = compute(file)
    assert has_shortcut(file)
    data = file.with_name("w.bin")
    data.write_bytes(data.read_bytes())
    assert not has_shortcut(file)
    assert np.array_equal(compute(file), expected)


@pytest.mark.usefixtures("settled")
def test_programs_of_an_open_text_depend_on_its_weights(cache: Path, file: Path) -> None:
    """The text itself is unchanged, and so is the call."""
    text, weights = file.with_name("model.pgraph"), file.with_name("w.npy")
    weight = 'weight w: f32[3] = load("w.npy")'
    text.write_text(f"graph g(x: f32[N, 3]) -> (y) {{\n    {weight}\n    y = x * w\n}}\n")
    for factor in (2, 3):
        np.save(weights, np.full(3, factor, np.float32))
        for _ in range(2):
            found = compiler.compile(text)(x=np.ones((2, 3), np.float32))["y"]
            assert found.tolist() == [[factor] * 3] * 2


@pytest.mark.usefixtures("settled")
def test_shortcuts_follow_links_to_weights(cache: Path, file: Path) -> None:
    text = file.with_name("model.pgraph")
    weight = 'weight w: f32[3] = load("w.npy")'
    text.write_text(f"graph g(x: f32[3]) -> (y) {{\n    {weight}\n    y = x * w\n}}\n")
    link = file.with_name("w.npy")
    for factor in (2, 3):
        np.save(file.with_name(f"{factor}.npy"), np.full(3, factor, np.float32))
    link.symlink_to("2.npy")
    compiler.compile(text)
    assert has_shortcut(text)
    link.unlink()
    link.symlink_to("3.npy")
    assert not has_shortcut(text)

    path = str(file)
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="w.bin", size_threshold=0)
    data = file.with_name("w.bin")
    other = data.rename(file.with_name("2.bin"))
    data.symlink_to(other)
    compute(file)
    assert has_shortcut(file)
    file.with_name("3.bin").write_bytes(other.read_bytes())
    data.unlink()
    data.symlink_to("3.bin")
    assert not has_shortcut(file)


SQUARED = "def squared(x: f32[N]) -> y {\n    y = x * x\n}\n"
"""A text to import."""

NUMBERS = np.array([1, 2, 3], np.float32)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """A text that imports another one from the search path."""
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    (tmp_path / "second" / "parts.pgraph").write_text(SQUARED)
    path = tmp_path / "model.pgraph"
    graph = "graph g(x: f32[3]) -> (y) {\n    y = x |> squared\n}\n"
    path.write_text(f'import "parts.pgraph" (squared)\n\n{graph}')
    return path


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("touched", ["model.pgraph", "second/parts.pgraph"])
def test_shortcuts_of_texts_check_their_imports(cache: Path, text: Path, touched: str) -> None:
    found = Options(search=(str(text.with_name("second")),))
    run = compiler.compile(text, options=found)
    assert has_shortcut(text, options=found)
    again = start.compile(text, options=found)
    assert np.array_equal(again(x=NUMBERS)["y"], run(x=NUMBERS)["y"])
    file = text.parent / touched
    file.write_text(file.read_text() + "# as before\n")
    assert not has_shortcut(text, options=found)


@pytest.mark.usefixtures("settled")
def test_shortcuts_check_earlier_search_folders(cache: Path, text: Path) -> None:
    folders = tuple(str(text.with_name(name)) for name in ("first", "second"))
    found = Options(search=folders)
    compiler.compile(text, options=found)
    assert has_shortcut(text, options=found)
    (text.with_name("first") / "parts.pgraph").write_text(SQUARED.replace("x * x", "x + x"))
    assert not has_shortcut(text, options=found)
    assert list(start.compile(text, options=found)(x=NUMBERS)["y"]) == [2, 4, 6]


@pytest.mark.usefixtures("settled")
def test_shortcuts_follow_links_to_imports(cache: Path, text: Path) -> None:
    link = text.with_name("parts.pgraph")
    link.symlink_to(text.parent / "second" / "parts.pgraph")
    found = Options(search=())
    compiler.compile(text, options=found)
    assert has_shortcut(text, options=found)
    other = text.with_name("other.pgraph")
    other.write_text(SQUARED.replace("x * x", "x + x"))
    link.unlink()
    link.symlink_to(other)
    assert not has_shortcut(text, options=found)


@pytest.mark.usefixtures("settled")
def test_shortcuts_depend_on_the_working_directory(
    cache: Path, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Options(search=("second",))
    monkeypatch.chdir(text.parent)
    compiler.compile(text, options=found)
    assert has_shortcut(text, options=found)
    monkeypatch.chdir(text.with_name("first"))
    assert not has_shortcut(text, options=found)


KINDS = {
    "library": "kernels/*/*/*.so",
    "object": "objects/*/*.o",
    "entry": "objects/*/" + "[0-9a-f]" * 64,
    "text": "kernel_texts/*/*",
    "program": "programs/*/*",
    "shortcut": "shortcuts/*/*",
    "target": "targets/*/*.json",
}
"""The files that are made again when missing, by kind."""


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("kind", KINDS)
def test_damaged_cache_files_are_replaced(cache: Path, file: Path, kind: str, damage: str) -> None:
    expected = compute(file)
    program_cache.SAVES.wait()
    found = list(cache.glob(KINDS[kind]))
    assert found
    left = [DAMAGES[damage](path) for path in found]
    if kind in ("object", "entry"):
        for path in cache.glob(KINDS["library"]):
            path.unlink()
    if kind == "text":
        program(cache).unlink()
    assert np.array_equal(popgraph.compile(file)(x=X)["y"], expected)
    program_cache.SAVES.wait()
    assert all(path.is_file() for path in found), "every file has been replaced"
    assert not any(path.read_bytes() == old for path, old in zip(found, left, strict=True))
    assert has_shortcut(file)


@pytest.mark.usefixtures("settled")
def test_a_shortcut_without_its_program_is_a_miss(cache: Path, file: Path) -> None:
    compute(file)
    program(cache).unlink()
    assert not has_shortcut(file)


@pytest.mark.usefixtures("settled")
def test_debugging_and_custom_passes_bypass_shortcuts(
    cache: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compute(file)
    assert has_shortcut(file)
    monkeypatch.setenv("POPGRAPH_DEBUG", "1")
    assert not has_shortcut(file)
    monkeypatch.delenv("POPGRAPH_DEBUG")
    step = Step("program", Foreign, "not this package's")
    monkeypatch.setattr(pipeline, "PIPELINE", (*pipeline.PIPELINE, step))
    assert not has_shortcut(file)


@pytest.mark.parametrize("named", [{}, {"backend": "reference"}], ids=["c", "reference"])
def test_a_compiled_model_survives_changes_of_its_file(
    cache: Path, file: Path, monkeypatch: pytest.MonkeyPatch, named: dict[str, str]
) -> None:
    """Weights are mapped from the file during compilation; `t` is not packed."""
    monkeypatch.setattr(message, "LARGE_MODEL", 0)
    monkeypatch.setattr(onnx_wire, "LARGE", 0)
    run = compiler.compile(file, **named)  # type: ignore[arg-type]
    expected = run(x=X)["y"]
    size = file.stat().st_size
    with file.open("r+b") as opened:
        opened.write(bytes(size))
    assert np.array_equal(run(x=X)["y"], expected)
    os.truncate(file, 0)
    assert np.array_equal(run(x=X)["y"], expected)


def test_an_open_model_survives_changes_of_its_file(
    cache: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message, "LARGE_MODEL", 0)
    monkeypatch.setattr(onnx_wire, "LARGE", 0)
    opened = onnx.load_model_from_string(model())
    opened.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "N"
    del opened.graph.node[-1]
    opened.graph.output[0].name = "q"
    opened.graph.output[0].type.tensor_type.ClearField("shape")
    file.write_bytes(opened.SerializeToString())
    run = compiler.compile(file)
    expected = run(x=X)["q"]
    os.truncate(file, 0)
    assert np.allclose(run(x=X[:1])["q"], expected[:1], rtol=1e-5)
