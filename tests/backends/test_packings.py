"""Tests packed weights that programs of one model share, in memory and in the cache."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from xdsl.dialects.builtin import ModuleOp

import popgraph
from popgraph import compiler
from popgraph.backends.c.build_program import build
from popgraph.backends.c.cache.program_cache import SAVES
from popgraph.backends.c.memory.table import PERSISTENT
from popgraph.backends.c.print import packings as sharing
from popgraph.backends.c.print.layout import Layout
from popgraph.backends.c.print.module import print_kernels
from popgraph.backends.c.run.executable import CExecutable
from popgraph.backends.reference.executable import ReferenceExecutable
from popgraph.compiler import parse_ir
from popgraph.dialects.program import WeightStore
from popgraph.dialects.tile import BufferOp
from popgraph.dialects.tile.program.ops import find_program
from popgraph.dialects.tile.program.work import size
from popgraph.passes.base import Compilation
from popgraph.support.arrays import Array, SharedArrays

WIDTH = 256
LENGTHS = 16, 32, 48


def model(seed: int = 0) -> bytes:
    """Two matmuls with a number of rows that is unknown until a call."""
    rng = np.random.default_rng(seed)
    weights = [
        numpy_helper.from_array(rng.standard_normal((WIDTH, WIDTH), np.float32) / 16, name)
        for name in ("v", "w")
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "v"], ["h"]),
        helper.make_node("MatMul", ["h", "w"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", WIDTH]) for name in "xy")
    graph = helper.make_graph(nodes, "products", [x], [y], weights)
    made: bytes = helper.make_model(graph, ir_version=8).SerializeToString()
    return made


def rows(count: int) -> Array:
    return np.random.default_rng(count).standard_normal((count, WIDTH), np.float32)


def expected(x: Array, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    for _ in range(2):
        x = x @ (rng.standard_normal((WIDTH, WIDTH), np.float32) / 16)
    return x


def check(run: popgraph.Runner, count: int) -> CExecutable:
    """The stored program for `count` rows, after a check of its result."""
    x = rows(count)
    np.testing.assert_allclose(run(x=x)["y"], expected(x), rtol=1e-4, atol=1e-4)
    assert run.open is not None
    program = run.open.program({"x": x})
    SAVES.wait()
    assert isinstance(program, CExecutable)
    return program


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("POPGRAPH_PROGRAM_CACHE", "1")
    monkeypatch.setenv("POPGRAPH_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "programs"


def sizes(cache: Path) -> list[int]:
    return sorted(file.stat().st_size for file in cache.glob("*/*"))


def test_lengths_share_packed_weights() -> None:
    run = popgraph.compile(model())
    programs = [check(run, count) for count in LENGTHS]
    seen = dict[str, Array]()
    for program in programs:
        for key, array in program.packings.items():
            assert seen.setdefault(key, array) is array
    assert len(seen) < sum(len(program.packings) for program in programs)
    for count in LENGTHS:
        check(run, count)


def test_unused_shared_arrays_are_freed() -> None:
    shared, array = SharedArrays(), np.zeros(4)
    assert shared.share("key", array) is array
    assert shared.share("key", np.ones(4)) is array and shared.get("key") is array
    del array
    gc.collect(0)
    assert shared.get("key") is None


def test_the_cache_stores_packed_weights_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = popgraph.compile(model())
    programs = [check(run, count) for count in LENGTHS]
    keys = {key: array.size for program in programs for key, array in program.packings.items()}
    assert sum(sizes(cache)) < sum(keys.values()) + len(LENGTHS) * 20_000

    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("a pass runs")

    monkeypatch.setattr(compiler.requests, "lower", forbidden)
    again = popgraph.compile(model())
    for count in LENGTHS:
        check(again, count)


def test_a_program_without_its_packed_weights_is_compiled_again(cache: Path) -> None:
    run = popgraph.compile(model())
    for count in LENGTHS:
        check(run, count)
    largest = max(cache.glob("*/*"), key=lambda file: file.stat().st_size)
    largest.unlink()
    again = popgraph.compile(model())
    for count in LENGTHS:
        check(again, count)
    content = largest.read_bytes()
    largest.write_bytes(content[: len(content) // 2])
    damaged = popgraph.compile(model())
    for count in LENGTHS:
        check(damaged, count)


def test_a_deleted_cache_file_is_not_referenced(cache: Path) -> None:
    run = popgraph.compile(model())
    check(run, LENGTHS[0])
    for file in cache.glob("*/*"):
        file.unlink()
    whole = check(run, LENGTHS[1])
    assert sizes(cache)[0] > sum(array.size for array in whole.packings.values())


def test_other_weights_are_packed_separately() -> None:
    first = check(popgraph.compile(model()), LENGTHS[0])
    run = popgraph.compile(model(seed=1))
    x = rows(LENGTHS[0])
    np.testing.assert_allclose(run(x=x)["y"], expected(x, 1), rtol=1e-4, atol=1e-4)
    assert run.open is not None
    second = run.open.program({"x": x})
    assert isinstance(second, CExecutable)
    assert not first.packings.keys() & second.packings.keys()


PIECE = 16
"""Floats in 64 bytes, the alignment of pieces."""
PIECES = 4


@dataclass(frozen=True)
class Plan:
    """The pieces that a program prepares, and the pieces that its step reads, by number."""

    fills: Sequence[tuple[bool, int, int]]
    """Whether the source is a constant or an earlier piece, its number, and the piece to fill."""
    reads: Sequence[tuple[int, int]]
    """The first piece, and the number of pieces."""

    @property
    def text(self) -> str:
        one = f"memref<{PIECE}xf32>"
        lines = []
        for number, (constant, source, target) in enumerate(self.fills):
            held = np.arange(PIECE, dtype="<f4") + 100 * source
            literal = f'#pg.data<"{held.tobytes().hex().upper()}" : tensor<{PIECE}xf32>>'
            place = (
                f'"constant" at 0 named <""> holding {literal}'
                if constant
                else f'"persistent" at {64 * source} named <"">'
            )
            lines += [
                f"%a{number} = tile.buffer {place} : {one}",
                f'%b{number} = tile.buffer "persistent" at {64 * target} named <""> : {one}',
                f"tile.call @double{PIECE} chunks 1 (%a{number}, %b{number}) : {one}, {one}",
            ]
        steps = []
        for number, (first, count) in enumerate(self.reads):
            type_ = f"memref<{count * PIECE}xf32>"
            steps += [
                f'%y{number} = tile.buffer "output" at 0 named <"y{number}"> : {type_}',
                f'%k{number} = tile.buffer "persistent" at {64 * first} named <""> : {type_}',
                f"tile.call @double{count * PIECE} chunks 1 (%k{number}, %y{number}) "
                f": {type_}, {type_}",
            ]
        kernels = "".join(doubling(PIECE * count) for count in (1, 2))
        prepare, body = "\n".join(lines), "\n".join(steps)
        bytes_ = 64 * PIECES
        head = f"tile.program @main arena 0 persistent {bytes_} lower_bound 0"
        return f"builtin.module {{ {kernels} {head} prepare {{ {prepare} }} body {{ {body} }} }}"

    def module(self) -> ModuleOp:
        return parse_ir(self.text, Compilation())


def doubling(count: int) -> str:
    type_ = f"memref<{count}xf32>"
    return f"""
  func.func private @double{count}(%chunk: index, %a: {type_}, %b: {type_}) {{
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %end = arith.constant {count} : index
    scf.for %i = %c0 to %end step %c1 {{
      %v = memref.load %a[%i] : {type_}
      %w = arith.addf %v, %v : f32
      memref.store %w, %b[%i] : {type_}
    }}
    func.return
  }}"""


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Programs that fill every piece, some twice, from constants or from earlier pieces."""
    fills: list[tuple[bool, int, int]] = []
    for target in [*range(PIECES), *draw(st.lists(st.integers(0, PIECES - 1), max_size=2))]:
        known = sorted({piece for *_, piece in fills} - {target})
        constant = not known or draw(st.booleans())
        source = draw(st.integers(0, 2)) if constant else draw(st.sampled_from(known))
        fills.append((constant, source, target))
    starts = st.integers(0, PIECES - 1)
    reads = draw(st.lists(st.tuples(starts, st.integers(1, 2)), min_size=1, max_size=5))
    return Plan(fills, [(first, min(count, PIECES - first)) for first, count in reads])


@given(st.lists(plans(), min_size=2, max_size=3))
def test_programs_with_shared_packings_compute_the_same(drawn: list[Plan]) -> None:
    store = WeightStore()
    held = []
    for plan in drawn:
        made = build(plan.module(), store)
        held.append(made)
        alone = ReferenceExecutable(plan.module(), WeightStore()).run({})
        for name, array in made.run({}).items():
            np.testing.assert_array_equal(array, alone[name])
    for plan, made in zip(drawn, held, strict=True):
        alone = ReferenceExecutable(plan.module(), WeightStore()).run({})
        for name, array in made.run({}).items():
            np.testing.assert_array_equal(array, alone[name])


@given(plans())
def test_unshared_pieces_have_memory_of_their_own(plan: Plan) -> None:
    module = plan.module()
    program = find_program(module, "main")
    layout = Layout(program, sharing.packings(program, print_kernels(module), "gcc"))
    pieces = dict[int, int]()
    for op in program.walk():
        if isinstance(op, BufferOp) and op.space.data == "persistent":
            number, begin = layout.locate(op)
            if layout.table.slots[number] == PERSISTENT:
                assert 0 <= begin <= layout.table.persistent - size(op.results[0].type)
                assert pieces.setdefault(begin, op.offset.value.data) == op.offset.value.data


def shared_pieces(plan: Plan) -> list[int]:
    module = plan.module()
    found = sharing.packings(find_program(module, "main"), print_kernels(module), "gcc")
    return [packing.begin // 64 for packing in found]


ALONE = (True, 0, 0), (True, 1, 1), (True, 2, 2), (True, 0, 3)


def test_only_pieces_filled_once_from_constants_are_shared() -> None:
    each = [(piece, 1) for piece in range(PIECES)]
    assert shared_pieces(Plan(ALONE, each)) == [0, 1, 2, 3]
    assert shared_pieces(Plan(ALONE, [*each, (1, 2)])) == [0, 3]
    assert shared_pieces(Plan([*ALONE, (True, 1, 3)], each)) == [0, 1, 2]
    assert shared_pieces(Plan([*ALONE[:3], (False, 2, 3)], each)) == [0, 1]


@pytest.mark.parametrize("part", ["kernel", "number", "compiled", "constant", "nothing"])
def test_packing_keys_cover_all_inputs_of_a_packing(part: str) -> None:
    def key(text: str, compiled: str, *numbers: int) -> str:
        module = parse_ir(text, Compilation())
        program = find_program(module, "main")
        kernels = [replace(kernel, numbers=numbers) for kernel in print_kernels(module)]
        (packing, *_) = sharing.packings(program, kernels, compiled)
        return packing.key

    text = Plan(ALONE, [(0, 1)]).text
    other, compiled, numbers = text, "gcc", (1, 2)
    if part == "kernel":
        other = text.replace("arith.addf", "arith.mulf")
    elif part == "number":
        numbers = 1, 3
    elif part == "compiled":
        compiled = "clang"
    elif part == "constant":
        other = Plan([(True, 1, 0), *ALONE[1:]], [(0, 1)]).text
    assert (key(text, "gcc", 1, 2) == key(other, compiled, *numbers)) == (part == "nothing")
