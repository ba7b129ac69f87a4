"""
Runs tests under the address and undefined behaviour sanitizers: `python -m tests.sanitize`.

Kernels and the runtime are sanitized. The libraries are cached under separate keys, so the next
run is short.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
FLAGS = "-fsanitize=address,undefined"
WHOLE = (
    "tests/dialects/test_graphcore_c.py",
    "tests/backends/test_c_kernels.py",
    "tests/backends/test_c_executable.py",
    "tests/backends/test_c_expressions.py",
    "tests/test_accuracy.py",
    "tests/test_scatter_rows.py",
    "tests/test_threads.py",
    "tests/popart/test_training.py",
    "tests/backends/test_control.py",
    "tests/backends/test_control_fuzz.py::test_c_means_the_same",
    "tests/passes/test_recurrent.py::test_recurrent_layers_train_in_c",
)
"""
Tests of every operation in every type, all kinds of kernels, whole programs, threads and training.

Branches and loops are nested, empty, reversed, ended early, with rows, and differentiated.
"""
SAMPLED = ("tests/dialects/test_graphcore_c.py", "tests/backends/test_control.py", "-k")
SAMPLES = {
    "values": "graphcore.log or rem or ends_early",
    "numbers": "random or cast",
    "windows": "max_pool or conv_input",
    "places": "gather or branch_in_a_loop",
}
"""Selections of tests, by the kind of error that they may show."""

MARKS = ("runtime error:", "ERROR: AddressSanitizer")
"""Texts that mark a finding in the output."""


class Report(NamedTuple):
    """The outcome of a run, the findings, and the number of sanitized programs."""

    good: bool
    output: str
    findings: list[str]
    programs: int
    """The number of sanitized programs of a test run; 0 for other runs."""


def obstacle() -> str:
    """Reason why this machine cannot sanitize, or an empty text."""
    library = runtime()
    if not library:
        return "cc is not GCC with the sanitizers' libraries"
    with tempfile.TemporaryDirectory() as folder:
        built = subprocess.run(
            ["cc", *FLAGS.split(), "-shared", "-fPIC", "-x", "c", "-", "-o", f"{folder}/x.so"],
            input="int popgraph_nothing;",
            text=True,
            capture_output=True,
        )
        tried = [sys.executable, "-c", f"import ctypes; ctypes.CDLL('{folder}/x.so')"]
        loads = (
            built.returncode == 0
            and not subprocess.run(tried, env=environment(), capture_output=True).returncode
        )
    return "" if loads else "what the sanitizers make cannot be loaded into Python here"


def runtime() -> str:
    """The ASan library, which must be preloaded; empty if there is none."""
    if shutil.which("cc") is None:
        return ""
    asked = subprocess.run(["cc", "-print-file-name=libasan.so"], capture_output=True, text=True)
    found = asked.stdout.strip()
    return found if os.path.isabs(found) else ""


def environment() -> Mapping[str, str]:
    """
    Environment variables for a process that sanitizes everything it compiles, and runs all cases.

    Leaks are not detected, since they would be Python's own.
    """
    return {
        **os.environ,
        "CC": f"cc {FLAGS}",
        "LD_PRELOAD": runtime(),
        "ASAN_OPTIONS": "detect_leaks=0",
        "POPGRAPH_PROFILE": "all",
    }


def run(command: Sequence[str]) -> Report:
    """Runs Python with these arguments, and sanitizes everything that it compiles."""
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    lines = [line.lstrip(".") for line in done.stdout.splitlines()]
    findings = {line for line in lines if any(mark in line for mark in MARKS)}
    count = re.search(rf"^(\d+) {COUNTED}$", done.stdout, re.MULTILINE)
    programs = int(count[1]) if count else 0
    return Report(done.returncode == 0, done.stdout, sorted(findings), programs)


def run_tests(arguments: Sequence[str]) -> Report:
    """Runs pytest with `-s`, since findings are printed to the current stderr."""
    options = ["-q", "-x", "-s", "-p", "no:cacheprovider", "-p", __spec__.name]
    return run(["-m", "pytest", *options, *arguments])


# Hooks of pytest: this module is a plugin

COUNTED = "programs were sanitized"
LIBRARIES = pytest.StashKey[set[str]]()


def pytest_configure(config: pytest.Config) -> None:
    """Records every library that is loaded."""
    loaded = config.stash[LIBRARIES] = set()

    def note(event: str, arguments: tuple[object, ...]) -> None:
        if event == "ctypes.dlopen" and isinstance(arguments[0], str):
            loaded.add(arguments[0])

    sys.addaudithook(note)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    terminalreporter.write_line(f"{count_sanitized(config.stash[LIBRARIES])} {COUNTED}")


def count_sanitized(libraries: Iterable[str]) -> int:
    """The number of these files that are compiled with both sanitizers."""
    files = [Path(name) for name in libraries]
    texts = [file.read_bytes() for file in files if file.is_file()]
    return sum(b"__asan_init" in text and b"__ubsan_handle" in text for text in texts)


def main() -> int:
    reason = obstacle()
    if reason:
        print(f"nothing was sanitized: {reason}")
        return 1
    report = run_tests(sys.argv[1:] or WHOLE)
    print(report.output, *report.findings, sep="\n")
    print(f"{report.programs} programs, {len(report.findings)} findings")
    return not report.good or bool(report.findings) or not report.programs


if __name__ == "__main__":
    sys.exit(main())
