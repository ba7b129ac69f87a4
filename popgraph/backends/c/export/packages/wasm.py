"""Compiles exported C to WebAssembly modules, by zig or by clang with WASI's C library."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from popgraph.backends.c.build.toolchain import ZIG, Compiler, Result, identity
from popgraph.backends.tools import Files
from popgraph.support.errors import BackendError
from popgraph.support.writing import write_atomically

PAGE = 1 << 16
"""Bytes of a page of memory."""

STACK_BYTES = 4 << 20
"""Local arrays of kernels are tiles that fit into caches; untouched pages cost nothing."""


@dataclass(frozen=True)
class Variant:
    """A way to compile a module, by the instructions that it may use."""

    name: str
    """The end of the names of its files."""
    flags: tuple[str, ...] = ()
    link: tuple[str, ...] = ()
    """The flags of the linker."""
    pages: int = 0
    """The pages of memory that all threads share; 0: the module has memory of its own."""


PLAIN, SIMD = Variant(""), Variant("_simd", ("-msimd128",))


def with_threads(data_bytes: int) -> Variant:
    """SIMD and threads: workers are instances of the module with the same memory, of fixed size."""
    flags = ("-matomics", "-mbulk-memory")
    pages = -(-(data_bytes + STACK_BYTES) // PAGE)
    memory = (f"-Wl,--initial-memory={pages * PAGE}", f"-Wl,--max-memory={pages * PAGE}")
    # The C library needs these flags, too.
    link = (*flags, "-Wl,--shared-memory", "-Wl,--import-memory", *memory)
    return Variant("_threads", (*SIMD.flags, *flags), link, pages)


_LINK = (
    *("-O2", "-mexec-model=reactor", "-Wl,--strip-all"),
    f"-Wl,-z,stack-size={STACK_BYTES}",
)
_STACK_FIRST = "-Wl,--stack-first"
"""The stack is below all data: an overflow is a trap, and overwrites nothing. zig implies it."""


def compilers() -> Iterator[Compiler]:
    """The commands that may compile for WebAssembly: zig from PyPI, an installed one, clang."""
    commands = list[tuple[str, ...]]()
    if importlib.util.find_spec(ZIG) is not None:
        commands.append((sys.executable, "-m", ZIG, "cc"))
    if zig := shutil.which("zig"):
        commands.append((zig, "cc"))
    if clang := shutil.which("clang"):
        commands.append((clang,))
    for command in commands:
        yield Compiler((*command, "-target", "wasm32-wasi"), identity(command))


def compile_modules(
    files: Files, sources: Sequence[str], flags: Sequence[str], variants: Sequence[Variant]
) -> list[bytes]:
    """A module for each variant, without functions to import; BackendError if none compiles."""
    tried = []
    for compiler in compilers():
        with TemporaryDirectory(prefix="popgraph-wasm-") as name:
            folder = Path(name)
            for file, parts in files.items():
                write_atomically(folder / file, parts)
            built = [_build(compiler, folder, sources, flags, own) for own in variants]
            if all(one.good for one in built):
                return [(folder / one.output).read_bytes() for one in built]
        reason = next(one.reason for one in built if not one.good)
        lines = reason.splitlines()
        tried.append(f"{compiler.name}: {next((one for one in lines if 'error' in one), reason)}")
    raise BackendError(
        "no compiler for WebAssembly works" + "".join(f"\n  {one}" for one in tried),
        "--package npm",
        "run `pip install ziglang`; for programs without threads, clang with lld, WASI's C library "
        "and compiler-rt will do (Debian: clang lld wasi-libc libclang-rt-dev-wasm32)",
    )


def _build(
    compiler: Compiler,
    folder: Path,
    sources: Sequence[str],
    flags: Sequence[str],
    variant: Variant,
) -> Result:
    """Compiles and links one module; the output of a good result is its file name."""
    objects = list[str]()
    for source in sources:
        objects.append(str(folder / f"{source}{variant.name}.o"))
        path = str(folder / source)
        result = compiler.run([*flags, *variant.flags, "-c", path, "-o", objects[-1]])
        if not result.good:
            return result
    # Without the compiler's flags: zig builds its C library once, not once per variant.
    stack = [] if "cc" in compiler.command else [_STACK_FIRST]
    module = f"module{variant.name}.wasm"
    command = [*_LINK, *stack, *variant.link, *objects, "-o", str(folder / module)]
    result = compiler.run(command)
    return Result(result.good, module, result.reason)
