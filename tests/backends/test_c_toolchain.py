"""Tests the toolchain: missing and broken compilers, flags, library caches."""

from __future__ import annotations

import errno
import importlib.util
import os
import shlex
import stat
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xdsl.dialects import arith, memref
from xdsl.dialects.builtin import FileLineColLoc, IntAttr, MemRefType, ModuleOp, StringAttr, f32
from xdsl.ir import SSAValue

import tests.backends.c_kernels as kernels
from popgraph.backends.c.build import compiling, target, toolchain
from popgraph.backends.c.build_program import build
from popgraph.backends.c.cache import folder as cache_folder
from popgraph.backends.c.print import print_kernel
from popgraph.backends.c.print.unit import Kernel, Unit, kernel_unit, split
from popgraph.backends.c.run.library import load, machine_of
from popgraph.dialects.program import WeightStore
from popgraph.support import cache_files
from popgraph.support.errors import BackendError, UnsupportedError


def doubling() -> ModuleOp:
    def body(_: SSAValue, x: SSAValue, y: SSAValue) -> None:
        def one(i: SSAValue) -> None:
            element = memref.LoadOp.get(x, [i])
            memref.StoreOp.get(arith.AddfOp(element, element), y, [i])

        kernels.loop(4, 1, one)

    op = kernels.function("double", [MemRefType(f32, [4])] * 2, body)
    return kernels.program([(op, ["x"], "y")])


def doubles() -> bool:
    x = np.arange(4, dtype=np.float32)
    return np.array_equal(build(doubling(), WeightStore()).run({"x": x})["y"], 2 * x)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an empty cache."""
    monkeypatch.setenv("POPGRAPH_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def libraries(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.so"))


def test_one_build_leaves_one_library(cache: Path) -> None:
    """Its short kernel is compiled with it, and not kept for other programs."""
    assert doubles()
    files = [path for path in cache.rglob("*") if path.is_file()]
    assert files == libraries(cache) and len(files) == 1


def test_a_second_process_needs_no_compiler(cache: Path) -> None:
    assert doubles()
    code = "import tests.backends.test_c_toolchain as t; assert t.doubles()"
    environment = {**os.environ, "CC": "/bin/false"}
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_a_cached_library_needs_no_compiler_run(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert doubles()

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a compiler was run")

    monkeypatch.setattr(subprocess, "run", refuse)
    assert doubles()


def test_without_a_compiler_the_error_lists_what_was_tried(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "/nowhere/cc")
    with pytest.raises(BackendError) as caught:
        doubles()
    assert caught.value.what == (
        "no C compiler works; tried /nowhere/cc (No such file or directory)"
    )
    assert "pip install ziglang" in caught.value.hint


def test_an_empty_path_has_no_compiler(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BackendError, match="tried cc, gcc, clang"):
        doubles()


def test_the_message_of_a_failing_compiler_is_quoted(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", script(tmp_path / "mycc", "echo the licence is gone >&2; exit 3"))
    with pytest.raises(BackendError, match=r"mycc \(the licence is gone\)"):
        doubles()


def test_refused_c_names_the_kernel_and_its_origin(cache: Path) -> None:
    good = print_kernel(next(iter(doubling().body.block.ops)))  # type: ignore[arg-type]
    bad = Kernel(
        "broken",
        "kernel_broken",
        "void kernel_broken(void) {\n    nonsense;\n}\n",
        "",
        "model.pgraph:7:3",
    )
    units = [kernel_unit([good]), kernel_unit([good, bad])]
    with pytest.raises(BackendError) as caught:
        compiling.library(units)
    assert caught.value.where == "kernel broken, from model.pgraph:7:3"
    assert "nonsense" in caught.value.what
    assert not libraries(cache)


def test_unsupported_operations_name_the_kernel_and_its_origin() -> None:
    def body(_: SSAValue, x: SSAValue) -> None:
        element = memref.LoadOp.get(x, [kernels.index(0)])
        kernels.make("math.cbrt", [element.res], f32)

    op = kernels.function("root", [MemRefType(f32, [1])], body)
    op.location = FileLineColLoc(StringAttr("net.pgraph"), IntAttr(3), IntAttr(5))
    with pytest.raises(UnsupportedError) as caught:
        print_kernel(op)
    assert caught.value.what == "C has no expression for math.cbrt on f32"
    assert caught.value.where.startswith("kernel root, from ")
    assert "net.pgraph" in caught.value.where


def test_broken_link_is_reported(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = 'case "$*" in *-shared*) echo "ld: error: no space" >&2; exit 1;; *) exec cc "$@";; esac'
    monkeypatch.setenv("CC", script(tmp_path / "nolink", text))
    with pytest.raises(BackendError, match="could not link: ld: error: no space"):
        doubles()


def test_a_cache_that_cannot_be_written_warns_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file in place of the folder: not even root can write below it."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("POPGRAPH_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with pytest.warns(RuntimeWarning, match="cannot be written") as caught:
        assert doubles()
        assert doubles()
    assert len([each for each in caught if "cannot be written" in str(each.message)]) == 1


def test_a_read_only_cache_is_still_read(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert doubles()
    monkeypatch.setattr(cache_folder, "refusal", lambda path: "cannot be written")
    monkeypatch.setenv("CC", "/bin/false")
    with pytest.warns(RuntimeWarning, match="cannot be written"):
        assert doubles()


def test_a_damaged_library_names_its_path(cache: Path) -> None:
    unit = Unit("int damaged_library;\n")
    path = compiling.library([unit])
    path.write_bytes(b"not a library")
    with pytest.raises(BackendError, match="could not be loaded") as caught:
        load(path, "main")
    assert caught.value.where == str(path)


def elf(width: int, order: int, machine: int) -> bytes:
    """
    The head of an ELF file: `width` 1 or 2 for 32 or 64 bits, `order` 1 or 2 for little or big
    endian.
    """
    number = machine.to_bytes(2, "little" if order == 1 else "big")
    return b"\x7fELF" + bytes([width, order, 1]) + bytes(9) + bytes(2) + number + bytes(100)


@pytest.mark.parametrize(
    ("head", "name"),
    [
        ((2, 1, 183), "aarch64"),
        ((1, 1, 40), "arm"),
        ((2, 2, 22), "s390x"),
        ((2, 2, 183), "aarch64, big-endian"),
        ((2, 1, 4711), "machine 4711 of ELF"),
    ],
)
def test_a_library_for_another_machine_is_refused(
    tmp_path: Path, head: tuple[int, int, int], name: str
) -> None:
    (tmp_path / "library.so").write_bytes(elf(*head))
    if machine_of(Path("/proc/self/exe")) in ("", name):
        pytest.skip("this machine is one of those, or has no /proc")
    with pytest.raises(BackendError, match=f"the compiled library is for {name}, but") as caught:
        load(tmp_path / "library.so", "main")
    assert "POPGRAPH_TARGET" in caught.value.hint and "delete" not in caught.value.hint


def test_many_objects_are_linked_from_a_list(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows limits a command to 32,767 characters."""
    passed: list[str] = []
    run = toolchain.Compiler.run

    def watched(
        self: toolchain.Compiler, arguments: Sequence[str], *more: Any, **named: Any
    ) -> Any:
        passed.extend(arguments)
        return run(self, arguments, *more, **named)

    monkeypatch.setattr(compiling, "LONGEST_COMMAND", 0)
    monkeypatch.setattr(toolchain.Compiler, "run", watched)
    assert doubles()
    (listed,) = (one for one in passed if one.startswith("@"))
    assert listed.endswith("objects.txt")


@pytest.mark.parametrize("wrote", [True, False])
def test_a_library_in_use_stays(wrote: bool, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows replaces no library that another process, which built it meanwhile, has loaded."""
    write = cache_files.write_sealed

    def refuse(path: Path, content: bytes) -> None:
        if wrote:
            write(path, content)
        raise PermissionError(errno.EACCES, "the file is in use", str(path))

    monkeypatch.setattr(compiling, "write_sealed", refuse)
    cache_folder.forget()
    if wrote:
        assert doubles()
        return
    with (
        pytest.warns(RuntimeWarning, match="the file is in use"),
        pytest.raises(BackendError, match="no place for compiled code: the file is in use"),
    ):
        doubles()


def test_paths_of_windows_in_cc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "name", "nt")
    monkeypatch.setenv("CC", r'"C:\Program Files\LLVM\bin\clang.exe" -m64')
    (compiler,) = toolchain.candidates()
    assert compiler.command == ("C:/Program Files/LLVM/bin/clang.exe", "-m64")


@pytest.mark.parametrize(("system", "place"), [("nt", 0), ("posix", -1)])
def test_zig_is_tried_first_on_windows(
    system: str, place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "name", system)
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(toolchain, "identity", lambda command: "")
    found = [compiler.command for compiler in toolchain.candidates()]
    assert len(found) > 1 and found[place] == (sys.executable, "-m", "ziglang", "cc")


def test_concurrent_builds(cache: Path) -> None:
    code = "import tests.backends.test_c_toolchain as t; assert t.doubles()"
    root = Path(__file__).parents[2]

    def start(_: int) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", code], cwd=root, capture_output=True, text=True
        )

    with ThreadPoolExecutor(3) as pool:
        for done in pool.map(start, range(3)):
            assert done.returncode == 0, done.stderr
    assert len(libraries(cache)) == 1


def test_each_compiler_has_its_own_build(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert doubles()
    monkeypatch.setenv("CC", script(tmp_path / "othercc", 'exec cc "$@"'))
    assert doubles()
    assert len(libraries(cache)) == 2


@pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="ziglang is not installed")
def test_zig_is_a_compiler(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", shlex.join([sys.executable, "-m", "ziglang", "cc"]))
    assert doubles()


@pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="ziglang is not installed")
def test_zig_is_found_without_other_compilers(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", "")
    assert [compiler.command[-2:] for compiler in toolchain.candidates()] == [("ziglang", "cc")]


@pytest.mark.parametrize(
    ("macros", "wanted"),
    [
        ("#define __AVX__ 1\n#define __AVX512F__ 1\n#define __SSE2__ 1\n", (64, 32)),
        ("#define __SSE2__ 1\n#define __AVX__ 1\n", (32, 16)),
        ("#define __SSE2__ 1\n", (16, 16)),
        ("#define __ARM_NEON 1\n", (16, 32)),
        ("#define __riscv 1\n", (16, 16)),
    ],
)
def test_targets_follow_the_compilers_macros(macros: str, wanted: tuple[int, int]) -> None:
    found = target.from_macros(macros)
    assert (found.vector_bytes, found.registers) == wanted


@pytest.mark.parametrize(
    ("macros", "words"),
    [
        (
            "#define __SSE2__ 1\n#define __AVX2__ 1\n",
            ("u8i8_i16", "u8i7", "i8u7", "i16", "i8i8_127"),
        ),
        ("#define __AVX512F__ 1\n#define __AVX512VNNI__ 1\n", ("u8i8", "i8u8", "i16")),
        ("#define __AVX2__ 1\n#define __AVXVNNI__ 1\n", ("u8i8", "i8u8", "i16")),
        (
            "#define __AVX512F__ 1\n#define __AVX512VNNI__ 1\n#define __AVX512BF16__ 1\n",
            ("u8i8", "i8u8", "i16", "bf16"),
        ),
        ("#define __AVX__ 1\n", ()),
        ("#define __ARM_NEON 1\n", ()),
        ("#define __ARM_NEON 1\n#define __ARM_FEATURE_DOTPROD 1\n", ("i8i8",)),
    ],
)
def test_packed_words_follow_the_compilers_macros(macros: str, words: tuple[str, ...]) -> None:
    assert target.from_macros(macros).words == words


def test_the_target_is_cached(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = target.host_target()
    toolchain.probe.cache_clear()
    monkeypatch.setenv("CC", "/bin/false")
    assert target.host_target() == first


def test_without_a_compiler_the_target_is_the_baseline(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "/bin/false")
    assert target.host_target() == target.BASELINE


@pytest.mark.parametrize(
    ("count", "cores", "program", "groups"),
    [
        *[(1, 2, 0, [1]), (12, 2, 0, [6, 6]), (60, 1, 0, [60]), (900, 2, 0, [150] * 6)],
        *[(12, 2, 30_000, [12]), (40, 2, 30_000, [13, 27]), (40, 64, 0, [6, 6, 7, 7, 7, 7])],
    ],
)
def test_kernels_are_compiled_in_groups(
    count: int, cores: int, program: int, groups: list[int]
) -> None:
    """Cores get nearly equal lengths; a few kernels need few compiler runs."""
    kernels = [
        Kernel(f"k{number}", f"kernel_k{number}", "x" * 2500, "", "") for number in range(count)
    ]
    found = split(kernels, cores, program)
    assert sorted(map(len, found)) == groups
    assert sorted(one.name for group in found for one in group) == sorted(k.name for k in kernels)
