"""Tests C on Windows, run by wine, and that it compiles for macOS: `make targets`."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import popgraph
from popgraph.backends.c.build.system import MACOS, MINGW_FLAGS, WINDOWS, System
from popgraph.backends.c.build.toolchain import (
    GCC_FLAGS,
    WIDE,
    compile_flags,
    link_flags,
    unit_flags,
)
from popgraph.backends.c.print.unit import HERE as HEADERS
from popgraph.cli import app
from popgraph.support.arrays import Array
from popgraph.support.cache_files import write_sealed
from popgraph.support.memo import cached_property
from tests.backends.test_c_export import exported, made
from tests.backends.test_c_targets import ATTENTION, FUNCTIONS, NETWORK, has
from tests.sampling import WHOLE

pytestmark = pytest.mark.skipif(not WHOLE, reason="`make targets` runs it")

ZIG = [sys.executable, "-m", "ziglang", "cc"]
COMPILERS = {
    "zig": [*ZIG, "-target", "x86_64-windows-gnu", "-mcpu=x86_64_v3", WIDE["__AVX__"]],
    "mingw": ["x86_64-w64-mingw32-gcc", "-march=x86-64-v3", *GCC_FLAGS, *MINGW_FLAGS],
}
"""Compilers for Windows with AVX2."""
GRAPHS = {
    "lenet": NETWORK.replace("f32[2, 1", "f32[32, 1"),
    "attention": ATTENTION.replace("f32[2, 7", "f32[16, 40"),
    "functions": FUNCTIONS,
}
BYTES = {"f32": np.float32, "i32": np.int32, "bool": np.bool_, "i64": np.int64}

HOST = """
#include <fcntl.h>
#include <io.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <windows.h>

typedef void (*entry)(void *const *);
static void *load(const char *name, size_t bytes) {
    void *memory = _aligned_malloc(bytes + 64, 64);
    FILE *file = fopen(name, "rb");
    memset(memory, 0, bytes + 64);
    if (file) { if (fread(memory, 1, bytes, file) != bytes) exit(3); fclose(file); }
    return memory;
}
static void save(const char *name, const void *memory, size_t bytes) {
    FILE *file = fopen(name, "wb");
    fwrite(memory, 1, bytes, file);
    fclose(file);
}
static void *function(HMODULE library, const char *name) {
    void *found = (void *)GetProcAddress(library, name);
    if (!found) { fprintf(stderr, "no %s\\n", name); exit(2); }
    return found;
}
int main(int count, char **arguments) {
    (void)count;
    void *memory[SLOTS];
    const intptr_t threads = atoi(arguments[1]);
LOADS
    for (int round = 0; round < 2; round++) { /* The library is loaded again after it has gone. */
        HMODULE library = LoadLibraryA("main.dll");
        if (!library) { fprintf(stderr, "not loaded: %lu\\n", GetLastError()); return 1; }
        ((entry)function(library, "main_prepare"))(memory);
        for (int run = 0; run < 20; run++) ((entry)function(library, "main_run"))(memory);
        Sleep(20); /* Workers go to sleep, and are woken. */
        ((entry)function(library, "main_run"))(memory);
        ((void (*)(void))function(library, "main_stop"))();
        FreeLibrary(library);
        if (GetModuleHandleA("main.dll")) { fprintf(stderr, "not unloaded\\n"); return 1; }
    }
SAVES
    return 0;
}
"""
FILES = r"""
#include <fcntl.h>
#include <io.h>
#include <stdio.h>
#include <sys/stat.h>
#include <windows.h>

static void check(int line, int good) {
    if (!good) { fprintf(stderr, "line %d: error %lu\n", line, GetLastError()); ExitProcess(1); }
}
#define CHECK(good) check(__LINE__, (good))

/* What os.open, os.dup, os.replace, os.unlink and os.link of Python call. */
int main(void) {
    const int flags = _O_WRONLY | _O_CREAT | _O_EXCL | _O_BINARY, mode = _S_IREAD | _S_IWRITE;
    const int one = _open("a.part", flags, mode);
    CHECK(one >= 0);
    const int lock = _dup(one);
    CHECK(_write(one, "a\nb", 3) == 3);
    CHECK(_close(one) == 0);
    CHECK(_open("a.part", flags, mode) < 0);
    CHECK(!DeleteFileA("a.part"));
    CHECK(!MoveFileExA("a.part", "target", MOVEFILE_REPLACE_EXISTING));
    CHECK(_close(lock) == 0);
    fclose(fopen("target", "wb"));
    CHECK(MoveFileExA("a.part", "target", MOVEFILE_REPLACE_EXISTING));
    CHECK(GetFileAttributesA("a.part") == INVALID_FILE_ATTRIBUTES);
    struct _stat64 now;
    CHECK(_stat64("target", &now) == 0 && now.st_size == 3);
    CHECK(CreateHardLinkA("link", "target", 0));
    CHECK(_stat64("link", &now) == 0 && now.st_size == 3);
    HMODULE library = LoadLibraryA("loaded.dll");
    CHECK(library != 0);
    CHECK(!MoveFileExA("target", "loaded.dll", MOVEFILE_REPLACE_EXISTING));
    CHECK(!DeleteFileA("loaded.dll"));
    FreeLibrary(library);
    CHECK(DeleteFileA("loaded.dll"));
    return 0;
}
"""


SEVERAL = """
#include <windows.h>
int main(void) {
    HMODULE library = LoadLibraryA("main.dll");
    void *(*one)(void) = (void *(*)(void))(void *)GetProcAddress(library, "one");
    void *(*two)(void) = (void *(*)(void))(void *)GetProcAddress(library, "two");
    void *end = (void *)GetProcAddress(library, "popgraph_end");
    return !(end && one() == end && two() == end && GetProcAddress(library, "popgraph_begin"));
}
"""


class Wine:
    """Runs programs of Windows, in an own folder of settings."""

    def __init__(self, prefix: Path) -> None:
        self._prefix = prefix

    @cached_property
    def program(self) -> str | None:
        here = Path("/usr/lib/wine/wine64")  # Debian puts only its package `wine` on the path.
        found = shutil.which("wine64") or shutil.which("wine")
        return found or (str(here) if here.exists() else None)

    @property
    def environment(self) -> dict[str, str]:
        silent = {"WINEDEBUG": "-all", "WINEDLLOVERRIDES": "mscoree,mshtml=", "DISPLAY": ""}
        return {**os.environ, **silent, "WINEPREFIX": str(self._prefix)}

    def run(self, *command: str, folder: Path) -> str:
        """The output of a program."""
        assert self.program is not None
        done = subprocess.run(
            [self.program, *command],
            cwd=folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def end(self) -> None:
        """Ends the server of this folder of settings."""
        server = Path("/usr/lib/wine/wineserver")
        command = shutil.which("wineserver") or (str(server) if server.exists() else None)
        if command and self._prefix.exists():
            subprocess.run([command, "-k"], env=self.environment, check=False)


@pytest.fixture(scope="module")
def wine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wine]:
    found = Wine(tmp_path_factory.mktemp("wine") / "settings")
    if found.program is None:
        pytest.skip("wine is not installed (Debian: wine64)")
    yield found
    found.end()


@pytest.fixture(params=COMPILERS)
def compiler(request: pytest.FixtureRequest) -> list[str]:
    command = COMPILERS[request.param]
    need_compiler(command)
    return command


def need_compiler(command: Sequence[str]) -> None:
    """Skips the test if a compiler is missing."""
    if command[0] == sys.executable and importlib.util.find_spec("ziglang") is None:
        pytest.skip("ziglang is not installed")
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")


def run(*command: object, folder: Path) -> None:
    """Runs a compiler."""
    done = subprocess.run(list(map(str, command)), cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def emitted(text: str, folder: Path) -> Path:
    """The C of a graph, as PopGraph compiles it."""
    (folder / "net.pgraph").write_text(text)
    arguments = ["emit", str(folder / "net.pgraph"), "-o", str(folder / "c"), "--threads", "4"]
    result = CliRunner().invoke(app, arguments, env={"POPGRAPH_TARGET": "avx2"})
    assert result.exit_code == 0, result.output
    return folder / "c"


def linked(folder: Path, command: Sequence[str], system: System) -> Path:
    """
    Builds the shared library of a program the way PopGraph does.

    Objects and library are sealed, as in a cache, and kernels are in two objects, as in a model
    that shares them with others.
    """
    flags = compile_flags(system)
    run(*command, *flags, "-c", "program.c", "-o", "program.o", folder=folder)
    objects = [folder / "program.o", folder / "one.o", folder / "other.o"]
    for target in objects[1:]:
        own = unit_flags(system, target.name)
        run(*command, *flags, *own, "-c", "kernels.c", "-o", "kernels.o", folder=folder)
        write_sealed(target, (folder / "kernels.o").read_bytes())
    library = folder / f"made{system.suffix}"
    options = [*link_flags(system), *map(str, objects), *system.libraries, "-o", library.name]
    run(*command, *options, folder=folder)
    write_sealed(folder / f"main{system.suffix}", library.read_bytes())
    return folder / f"main{system.suffix}"


def inputs(folder: Path) -> dict[str, Array]:
    found = json.loads((folder / "program.json").read_text())["memory"]
    (x,) = (slot for slot in found if slot["space"] == "input")
    return {"x": np.random.default_rng(0).standard_normal(x["shape"]).astype(np.float32)}


def host(folder: Path) -> dict[str, tuple[Path, type, list[int]]]:
    """Writes a program that loads and runs the library; returns the files of its outputs."""
    about = json.loads((folder / "program.json").read_text())
    loads, saves, outputs = list[str](), list[str](), {}
    for number, slot in enumerate(about["memory"]):
        if slot["space"] == "threads":
            loads.append(f"    memory[{number}] = (void *)threads;")
            continue
        size, file = about.get(slot["space"], 0), slot.get("file", "none")
        if "dtype" in slot:
            size = int(np.prod(slot["shape"], dtype=int)) * np.dtype(BYTES[slot["dtype"]]).itemsize
        if slot["space"] == "input":
            file = f"{number}.bin"
            (folder / file).write_bytes(inputs(folder)[slot["name"]].tobytes())
        loads.append(f'    memory[{number}] = load("{file}", {size});')
        if slot["space"] == "output":
            saves.append(f'    save("{number}.out", memory[{number}], {size});')
            outputs[slot["name"]] = folder / f"{number}.out", BYTES[slot["dtype"]], slot["shape"]
    text = HOST.replace("SLOTS", str(len(about["memory"]))).replace("LOADS", "\n".join(loads))
    (folder / "host.c").write_text(text.replace("SAVES", "\n".join(saves)))
    return outputs


@pytest.mark.skipif(not has("avx2"), reason="no AVX2 here")
@pytest.mark.parametrize("graph", GRAPHS)
def test_libraries_of_windows_compute_what_those_here_do(
    graph: str,
    compiler: list[str],
    wine: Wine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The number of threads changes no bit."""
    folder = emitted(GRAPHS[graph], tmp_path)
    assert graph == "functions" or '"pool.h"' in (folder / "program.c").read_text()
    linked(folder, compiler, WINDOWS)
    files = host(folder)
    run(*compiler, "-O1", "host.c", "-o", "host.exe", folder=folder)
    monkeypatch.setenv("POPGRAPH_TARGET", "avx2")
    wanted = popgraph.compile(tmp_path / "net.pgraph")(inputs(folder))
    alone = dict[str, bytes]()
    for threads in (1, 4):
        wine.run("host.exe", str(threads), folder=folder)
        for name, (file, dtype, shape) in files.items():
            found = np.frombuffer(file.read_bytes(), dtype).reshape(shape)
            np.testing.assert_allclose(found, wanted[name], 2e-6, 2e-6, err_msg=name)
            assert alone.setdefault(name, file.read_bytes()) == file.read_bytes()


@pytest.mark.skipif(not has("avx2"), reason="no AVX2 here")
@pytest.mark.parametrize("threads", [1, 4])
def test_exported_c_runs_on_windows(
    threads: int, compiler: list[str], wine: Wine, tmp_path: Path
) -> None:
    options = ("--dim", "N=24", "--target", "x86-64-v3", "--threads", threads)
    folder = exported(tmp_path, *options)
    if compiler[0] == sys.executable:
        program, variables = "check_model", {"CC": " ".join(ZIG), "ARCH": " ".join(compiler[4:])}
    else:
        program, variables = "check_model.exe", {"CC": compiler[0]}
    made(folder, program, **variables)
    printed = wine.run(program, "10", folder=folder)
    assert "good" in printed and "ms a run" in printed


def test_files_on_windows_are_locked_while_they_are_open(
    compiler: list[str], wine: Wine, tmp_path: Path
) -> None:
    """Atomic writes rely on it: `popgraph/support/writing.py`."""
    (tmp_path / "files.c").write_text(FILES)
    (tmp_path / "loaded.c").write_text("__declspec(dllexport) int one(void) { return 1; }\n")
    run(*compiler, "files.c", "-o", "files.exe", folder=tmp_path)
    run(*compiler, *link_flags(WINDOWS), "loaded.c", "-o", "loaded.dll", folder=tmp_path)
    wine.run("files.exe", folder=tmp_path)


def test_variables_of_several_objects_are_one(
    compiler: list[str], wine: Wine, tmp_path: Path
) -> None:
    """The pointers of `exchange.h`, which Python sets, are visible in a library."""
    for name in ("one", "two"):
        text = f"POPGRAPH_EXPORT void *{name}(void) {{ return &popgraph_end; }}\n"
        (tmp_path / f"{name}.c").write_text(f'#include "exchange.h"\n{text}')
        command = [*compiler, *compile_flags(WINDOWS), *unit_flags(WINDOWS, name), f"-I{HEADERS}"]
        run(*command, "-c", f"{name}.c", "-o", f"{name}.o", folder=tmp_path)
    run(*compiler, *link_flags(WINDOWS), "one.o", "two.o", "-o", "main.dll", folder=tmp_path)
    (tmp_path / "host.c").write_text(SEVERAL)
    run(*compiler, "host.c", "-o", "host.exe", folder=tmp_path)
    wine.run("host.exe", folder=tmp_path)


@pytest.mark.parametrize("machine", ["aarch64", "x86_64"])
def test_c_compiles_for_macos(machine: str, tmp_path: Path) -> None:
    """Nothing here runs it."""
    command = [*ZIG, "-target", f"{machine}-macos"]
    need_compiler(command)
    target = {"aarch64": "aarch64", "x86_64": "x86-64-v2"}[machine]
    folder = exported(tmp_path, "--dim", "N=24", "--target", target, "--threads", 4)
    made(folder, "check_model", CC=" ".join(command), ARCH="")
    library = linked(emitted_for(target, tmp_path), command, MACOS)
    assert library.read_bytes()[:4] == b"\xcf\xfa\xed\xfe"


def emitted_for(target: str, folder: Path) -> Path:
    """The C of a graph for the vectors of an export target."""
    (folder / "whole").mkdir()
    text = GRAPHS["lenet"]
    (folder / "whole/net.pgraph").write_text(text)
    vectors = {"aarch64": "neon", "x86-64-v2": "sse2"}[target]
    arguments = ["emit", str(folder / "whole/net.pgraph"), "-o", str(folder / "whole/c")]
    result = CliRunner().invoke(app, arguments, env={"POPGRAPH_TARGET": vectors})
    assert result.exit_code == 0, result.output
    return folder / "whole/c"
