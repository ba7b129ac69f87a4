"""Tests the reuse of kernels and schedules of earlier programs through the cache."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from struct import unpack

import numpy as np
import pytest
from xdsl.dialects import func
from xdsl.dialects.builtin import ArrayAttr, FloatAttr, f32, f64
from xdsl.ir import Operation

import popgraph
from popgraph import compiler
from popgraph.backends.c.build import known_kernels
from popgraph.backends.c.build.known_kernels import KernelCache, kernel_cache
from popgraph.backends.c.build_program import units_of
from popgraph.backends.c.cache import install_fingerprint, program_cache, program_key
from popgraph.backends.c.print.module import keyed, print_kernels
from popgraph.dialects import tile
from popgraph.dialects.tile.loops.known import KnownKernels
from popgraph.passes.analysis.structural_hash import spelled
from popgraph.passes.options import Options
from popgraph.passes.structured.schedule import schedule_contractions
from popgraph.passes.structured.schedule.cost import Candidate
from popgraph.passes.structured.schedule.schedule_contractions import (
    candidate_text,
    choose_schedules,
    parse_candidate,
)
from popgraph.passes.structured.to_loops import emitters
from popgraph.passes.structured.to_loops.emit.emitter import Emitter
from popgraph.passes.structured.winograd import use_winograd
from popgraph.support import cache_files
from popgraph.support.machine import TARGETS
from popgraph.support.tuning import Target
from tests.backends.test_objects import network

AVX2 = Options(machine=TARGETS["avx2"], measured=())
X = np.random.default_rng(1).standard_normal((4, 8)).astype(np.float32)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache that stays valid while the package is edited."""
    monkeypatch.setenv("POPGRAPH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv(program_cache.SWITCH, "1")
    monkeypatch.setattr(program_key, "sources", lambda: "the same")
    monkeypatch.setattr(install_fingerprint, "states", lambda: "the same")
    return tmp_path / "cache"


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the operations whose loops are emitted."""
    found: list[str] = []
    emitter_of = emitters.emitter_of

    def noted(op: Operation, target: Target) -> Emitter:
        found.append(op.name)
        return emitter_of(op, target)

    monkeypatch.setattr(emitters, "emitter_of", noted)
    return found


def printed(layers: int, known: KernelCache | None, options: Options = AVX2) -> list[str]:
    """The C of a network; new kernels are added to the cache."""
    module, compilation = compiler.load(network(layers))
    compilation.kernels = known
    compiler.lower(module, compilation, options)
    kernels = print_kernels(module, shared=True, known=known.texts if known else {})
    assert len(kernels) == sum(isinstance(op, func.FuncOp) for op in module.ops)
    units, _ = units_of(module, "main", kernels, "")
    if known is not None:
        known.keep(keyed(module, kernels))
    return [unit.text for unit in units]


def test_kernels_of_a_smaller_network_are_reused(written: list[str]) -> None:
    """The kernels of three of five layers are reused; the C is the same to the byte."""
    plain, whole = printed(5, None), len(written)
    alone, of_three = printed(3, kernel_cache()), len(written) - whole
    assert 0 < of_three < whole
    assert printed(3, kernel_cache()) == alone and len(written) == whole + of_three
    assert printed(5, kernel_cache()) == plain and len(written) == 2 * whole
    assert printed(5, kernel_cache()) == plain and len(written) == 2 * whole


@pytest.mark.parametrize(
    "other",
    [
        replace(AVX2, machine=TARGETS["sse2"]),
        replace(AVX2, tuning=replace(AVX2.tuning, partial_sums=16)),
    ],
    ids=["machine", "tuning"],
)
def test_another_target_has_other_kernels(other: Options, written: list[str]) -> None:
    printed(2, kernel_cache())
    count = len(written)
    printed(2, kernel_cache(), other)
    assert len(written) == 2 * count


def test_another_version_of_the_package_has_other_kernels(
    written: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    printed(2, kernel_cache())
    count = len(written)
    monkeypatch.setattr(program_key, "sources", lambda: "another")
    printed(2, kernel_cache())
    assert len(written) == 2 * count


def test_cached_kernels_compute_the_same(written: list[str]) -> None:
    popgraph.compile(network(3))
    written.clear()
    (found,) = popgraph.compile(network(4))(x=X).values()
    assert written.count("tile.reduce") == 1, "the last layer"
    (checked,) = popgraph.compile(network(4), backend="reference")(x=X).values()
    np.testing.assert_allclose(found, checked, rtol=1e-5, atol=1e-5)


def test_dumps_of_passes_show_all_loops(
    tmp_path: Path, written: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    popgraph.compile(network(2))
    written.clear()
    monkeypatch.setenv("POPGRAPH_DUMP", str(tmp_path / "dump"))
    popgraph.compile(network(2))
    assert written
    (after,) = (tmp_path / "dump").glob("*structured-to-loops*")
    assert "vector.fma" in after.read_text() or "scf.for" in after.read_text()


def test_custom_passes_may_change_kernels(written: list[str]) -> None:
    """A custom pass gets kernels with their loops, and changed kernels are not cached."""
    popgraph.compile(network(2))
    written.clear()
    popgraph.compile(network(2), options=Options(passes=("cse after structured-to-loops",)))
    assert written


def test_a_damaged_kernel_text_is_replaced(cache: Path, written: list[str]) -> None:
    expected = printed(2, kernel_cache())
    for path in (cache / "kernel_texts").glob("*/*"):
        cache_files.write_sealed(path, b'{"kernel": {}}')
    count = len(written)
    assert printed(2, kernel_cache()) == expected
    assert len(written) == 2 * count
    assert printed(2, kernel_cache()) == expected
    assert len(written) == 2 * count


def test_kernel_keys_distinguish_every_bit_of_floats() -> None:
    """Printed IR merges some floats, and attribute equality merges zeros of both signs."""
    odd, nan = 0.1 + 2**-50, unpack("<d", bytes.fromhex("010000000000f07f"))[0]
    numbers = [0.0, -0.0, 0.1, odd, float("inf"), float("nan"), nan]
    found = [spelled(FloatAttr(number, f64)) for number in numbers]
    assert len(set(found)) == len(numbers)
    assert spelled(FloatAttr(0.5, f32)) != spelled(FloatAttr(0.5, f64))
    pairs = [spelled(ArrayAttr([FloatAttr(one, f64)])) for one in (0.0, -0.0)]
    assert pairs[0] != pairs[1]


def convolutions() -> bytes:
    """Windows of 3x3 with strides one and two, and of 1x1."""
    builder = popgraph.Builder()
    value, channels = builder.addInputTensor("FLOAT", [1, 32, 28, 28], "x"), 32
    rng = np.random.default_rng(0)
    for filters, window, step in ((64, 3, 1), (24, 1, 1), (40, 3, 2)):
        weights = rng.standard_normal((filters, channels, window, window)).astype(np.float32)
        value = builder.aiOnnx.conv(
            [value, builder.addInitializedInputTensor(weights)],
            strides=[step, step],
            pads=[window // 2] * 4,
        )
        channels = filters
    builder.addOutputTensor(value)
    return bytes(builder.getModelProto())


@pytest.fixture
def estimated(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Contractions whose schedules the cost model compares."""
    found: list[str] = []

    def noted(op: tile.ReduceOp, fixed: tuple[bool, bool], target: Target) -> list[Candidate]:
        found.append(op.name)
        return candidates(op, fixed, target)

    candidates = schedule_contractions.candidates
    for module in (schedule_contractions, use_winograd):
        monkeypatch.setattr(module, "candidates", noted)
    return found


def decided(options: Options = AVX2, known: KnownKernels | None = None) -> str:
    """Convolutions after all passes that choose schedules."""
    module, compilation = compiler.load(convolutions())
    compilation.kernels = known
    compiler.lower(module, compilation, options, until="schedule-contractions")
    return str(module)


def kept(options: Options = AVX2) -> str:
    """Convolutions with the decisions of the cache, which keeps new ones."""
    known = kernel_cache()
    assert known is not None
    text = decided(options, known)
    known.keep([])
    return text


def test_cached_schedules_are_the_computed_ones(estimated: list[str]) -> None:
    afresh = decided()
    assert "tile.transform_tiles" in afresh and " schedule " in afresh and "tile.pack" in afresh
    estimated.clear()
    assert kept() == afresh and estimated
    estimated.clear()
    assert kept() == afresh and not estimated


@pytest.mark.parametrize(
    "other",
    [
        replace(AVX2, machine=TARGETS["sse2"]),
        replace(AVX2, tuning=replace(AVX2.tuning, window_overlap=0.5)),
    ],
    ids=["machine", "tuning"],
)
def test_another_target_has_other_schedules(other: Options, estimated: list[str]) -> None:
    kept()
    estimated.clear()
    assert kept(other) == decided(other)
    assert estimated


def test_schedule_candidates_are_read_back() -> None:
    """A candidate read back has the same loops, layouts, vectors and cycles."""
    checked = 0

    def check(op: tile.ReduceOp, found: Sequence[Candidate]) -> None:
        nonlocal checked
        for candidate in found:
            text = candidate_text(op, candidate, AVX2.target)
            assert parse_candidate(op, text, AVX2.target) == candidate
            checked += 1

    module, compilation = compiler.load(convolutions())
    compiler.lower(module, compilation, AVX2, until="settle-loops")
    choose_schedules(module, check, AVX2.target)
    assert checked > 20


def test_damaged_schedules_are_replaced(cache: Path, estimated: list[str]) -> None:
    expected = kept()
    (path,) = (cache / "decisions").glob("*/*")
    rows = json.loads(cache_files.read_sealed(path))
    for damaged in (b"[]", json.dumps(dict.fromkeys(rows, "rhs, nonsense")).encode()):
        cache_files.write_sealed(path, damaged)
        estimated.clear()
        assert kept() == expected and estimated
        estimated.clear()
        assert kept() == expected and not estimated


def test_the_latest_schedules_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_kernels, "MOST_DECISIONS", 2)
    for key in "abc":
        first = kernel_cache()
        assert first is not None
        first.note_decision(key, key)
        assert first.decision("a") == (None if key == "a" else "a")
        first.keep([])
    last = kernel_cache()
    assert last is not None
    assert [last.decision(key) for key in "abc"] == ["a", None, "c"]
