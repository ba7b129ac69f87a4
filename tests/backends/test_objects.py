"""Tests that kernels shared by programs are compiled once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import popgraph
from popgraph.backends.c.build import objects, toolchain
from popgraph.backends.c.build.objects import Objects
from popgraph.backends.c.print.unit import SHORT_TEXT, Kernel, Unit, kernel_unit, merge_short
from popgraph.support import cache_files


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("POPGRAPH_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of all kernels that are compiled during the test."""
    seen: list[str] = []
    run = toolchain.Compiler.run

    def watched(
        self: toolchain.Compiler, arguments: Sequence[str], *more: Any, **named: Any
    ) -> Any:
        for argument in arguments:
            if argument.endswith(".c"):
                source = Path(argument).read_text()
                seen.extend(re.findall(r"^POPGRAPH_WEAK void (\w+)", source, re.M))
        return run(self, arguments, *more, **named)

    monkeypatch.setattr(toolchain.Compiler, "run", watched)
    return seen


def network(layers: int) -> bytes:
    """
    Dense layers of different widths; a longer network begins with the layers of a shorter one.
    """
    builder = popgraph.Builder()
    value = builder.addInputTensor("FLOAT", [4, 8], "x")
    rng = np.random.default_rng(0)
    for number in range(layers):
        before, behind = 8 + 8 * number, 16 + 8 * number
        weights = rng.standard_normal((before, behind)).astype(np.float32)
        value = builder.aiOnnx.matmul([value, builder.addInitializedInputTensor(weights)])
        value = builder.aiOnnx.relu([value])
    builder.addOutputTensor(value)
    return bytes(builder.getModelProto())


def run(layers: int) -> np.ndarray:
    x = np.random.default_rng(1).standard_normal((4, 8)).astype(np.float32)
    (found,) = popgraph.compile(network(layers))(x=x).values()
    return np.asarray(found)


def test_kernels_of_two_networks_are_compiled_once(cache: Path, compiled: list[str]) -> None:
    run(3)
    first = set(compiled)
    assert len(first) >= 3 and len(first) == len(compiled)
    compiled.clear()
    longer = run(4)
    assert compiled and not first & set(compiled)
    reference = popgraph.compile(network(4), backend="reference")
    x = np.random.default_rng(1).standard_normal((4, 8)).astype(np.float32)
    np.testing.assert_allclose(longer, next(iter(reference(x=x).values())), rtol=1e-5)


def test_damaged_objects_are_compiled_again(cache: Path, compiled: list[str]) -> None:
    expected = run(3)
    first = set(compiled)
    for path in (cache / "objects").glob("*/*.o"):
        path.write_bytes(b"no object")
    for path in (cache / "kernels").glob("*/*/*.so"):
        path.unlink()
    compiled.clear()
    np.testing.assert_array_equal(run(3), expected)
    assert set(compiled) == first


def test_objects_are_kept_by_key(tmp_path: Path) -> None:
    kernel = Kernel("k", "kernel_k", "void kernel_k(void) {}\n", "void kernel_k(void)", "")
    unit = kernel_unit([kernel])
    (tmp_path / "unit.o").write_bytes(b"object")
    here, there = (Objects([tmp_path / "cache"], name) for name in ("here", "there"))
    here.keep(unit, tmp_path / "unit.o")
    assert here.lacking([kernel])[0] == [] and len(here.lacking([kernel])[1]) == 1
    assert there.lacking([kernel]) == ([kernel], [])
    here.remove(here.lacking([kernel])[1])
    assert here.lacking([kernel]) == ([kernel], [])


def test_equal_kernels_are_one_function() -> None:
    """Their names in the IR may differ."""
    text = "void kernel_k(void) {}\n"
    twice = [Kernel(name, "kernel_k", text, "void kernel_k(void)", "") for name in ("a", "b")]
    assert kernel_unit(twice).text.count("void kernel_k") == 1


@pytest.mark.parametrize("length, count", [(0, 1), (SHORT_TEXT, 2)])
def test_a_program_and_its_short_kernels_are_one_unit(length: int, count: int) -> None:
    text = f"void kernel_k(void) {{}}\n/* {'.' * length} */\n"
    unit = kernel_unit([Kernel("k", "kernel_k", text, "void kernel_k(void)", "")])
    program = Unit("void main_run(void) {}\n")
    merged = merge_short([program, unit])
    assert len(merged) == count
    assert sum("main_run" in one.text for one in merged) == 1
    (kernel,) = (one for one in merged if one.kernels)
    line = kernel.text.splitlines().index("POPGRAPH_WEAK void kernel_k(void) {}") + 1
    found = kernel.kernel_at(line)
    assert found and found.name == "k"
    assert merge_short([program]) == [program] and merge_short([unit, unit]) == [unit, unit]


def test_some_builds_trim_the_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first build of a process trims it, and then every CALLS_PER_TRIM-th."""
    monkeypatch.setattr(objects, "LIMIT", 0)
    kept, file = Objects([cache], "key"), cache / "objects/ab/abc"
    removed = []
    for _ in range(cache_files.CALLS_PER_TRIM + 1):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"object")
        kept.trim()
        removed.append(not file.exists())
    assert removed == [True, *[False] * (cache_files.CALLS_PER_TRIM - 1), True]
