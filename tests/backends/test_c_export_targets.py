"""Tests that C exported for other machines builds, and computes the same where an emulator is."""

from __future__ import annotations

import importlib.util
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from popgraph.backends.c.export.targets import NAMES, target_of
from tests.backends.test_c_export import exported, made

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("ziglang") is None, reason="ziglang is not installed"
)
ZIG = f"{sys.executable} -m ziglang cc"

WASI = """
import { WASI } from "node:wasi";
import { readFile } from "node:fs/promises";
const wasi = new WASI({ version: "preview1", args: ["check"] });
const program = await readFile(process.argv[2]);
const { instance } = await WebAssembly.instantiate(program, wasi.getImportObject());
process.exitCode = wasi.start(instance);
"""
FLAGS = {"x86-64-v2": "sse4_2", "x86-64-v3": "avx2", "x86-64-v4": "avx512vl"}


def runner(name: str, folder: Path) -> str | None:
    """The command that runs programs of a target on this machine, if there is one."""
    if name in FLAGS:
        cpuinfo = Path("/proc/cpuinfo")
        here = platform.machine() == "x86_64" and cpuinfo.exists()
        return "env" if here and FLAGS[name] in cpuinfo.read_text().split() else None
    if name == "wasm32":
        (folder / "wasi.mjs").write_text(WASI)
        return f"node --no-warnings {folder / 'wasi.mjs'}" if shutil.which("node") else None
    emulator = {"armv7e-m": "qemu-arm"}.get(name, f"qemu-{name}")
    if platform.machine() == name:
        return "env"
    return shutil.which(emulator) or shutil.which(f"{emulator}-static")


@pytest.mark.parametrize("name", NAMES[1:])
def test_exported_c_for_other_targets(name: str, tmp_path: Path) -> None:
    assert "good" in checked(name, tmp_path)


@pytest.mark.parametrize("name", NAMES[1:])
def test_portable_c_gives_the_same_bits_on_other_targets(name: str, tmp_path: Path) -> None:
    """SSE2 and WebAssembly have no instruction for multiply-adds."""
    (here := tmp_path / "here").mkdir()
    wanted = made(exported(here, "--dim", "N=1", "--portable"))
    (there := tmp_path / "there").mkdir()
    assert bits(checked(name, there, "--portable")) == bits(wanted)


def bits(printed: str) -> str:
    """The hash of all results that a check prints."""
    (line,) = (line for line in printed.splitlines() if line.startswith("bits "))
    return line


def checked(name: str, tmp_path: Path, *options: str) -> str:
    """The output of the check of an export for a target, where something here runs it."""
    folder = exported(tmp_path, "--dim", "N=1", "--target", name, *options)
    zig = target_of(name).zig
    compiler = {"CC": f"{ZIG} {' '.join(zig[:2])}", "ARCH": " ".join(zig[2:])}
    assert f"make CC='zig cc {' '.join(zig[:2])}'" in (folder / "Makefile").read_text()
    made(folder, "model.o", **compiler)
    made(folder, "model_weights.o", **compiler)
    if name == "armv7e-m":  # armv7e-m has no operating system, but the check program needs Linux.
        compiler = {"CC": f"{ZIG} -target arm-linux-musleabihf", "ARCH": ""}
    made(folder, "check_model", **compiler)
    runs = runner(name, tmp_path)
    if runs is None:
        pytest.skip(f"built; nothing here runs programs for {name}")
    done = subprocess.run(
        [*runs.split(), "./check_model"], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
