"""Tests ONNX's node cases as exported C, under sanitizers and without a warning."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from popgraph import compiler
from popgraph.backends.c.export.exporting import export
from popgraph.backends.c.export.interface import Form
from popgraph.backends.c.export.targets import target_of
from popgraph.backends.tools import Vector
from popgraph.passes.options import Options
from tests.passes.test_onnx_to_graphcore import node_cases
from tests.sampling import share
from tests.test_node_cases import Part, batches, parts, together

SHARES = 40
"""A run takes every 40th case, `make test-all` all of them."""
WARNINGS = "-std=c11 -Wall -Wextra -pedantic -Werror"
COMPILERS = {
    "gcc": {
        "CC": "gcc",
        "ARCH": "-march=native -fsanitize=address,undefined -fno-sanitize-recover=all",
        "CFLAGS": f"{WARNINGS} -O0 -Wno-psabi",
    },
    "zig": {
        "CC": f"{sys.executable} -m ziglang cc",
        "ARCH": "-march=native -fsanitize=undefined -fno-sanitize-recover=all",
        "CFLAGS": f"{WARNINGS} -O1",
    },
}
"""Variables of `make`. Zig's clang has no address sanitizer."""


def wrong_in(place: Path, batch: Sequence[Part], variables: Mapping[str, str]) -> list[str]:
    """The output of `make check` for one model of many cases if it fails."""
    model, given = together(batch)
    module, compilation = compiler.load(model)
    options = compiler.for_this_machine(Options(measured=()))
    request = compiler.BuildRequest(module, compilation, options, "reference", 1).copy()
    executable = request.executable()
    inputs = {name: given[name] for name in executable.inputs}
    vector = Vector(inputs, executable.run(inputs))
    compiler.lower(module, compilation, options)
    made = export(module, compilation.weights, Form(target_of("native")), [vector])
    place.mkdir()
    for name, content in made.files.items():
        (place / name).write_bytes(b"".join(content))
    flags = [f"{name}={value}" for name, value in variables.items()]
    done = subprocess.run(["make", "check", *flags], cwd=place, capture_output=True, text=True)
    return [] if done.returncode == 0 else [done.stdout[-2000:] + done.stderr[-2000:]]


@pytest.mark.parametrize("compiler", COMPILERS)
def test_node_cases_as_exported_c(compiler: str, tmp_path: Path) -> None:
    if compiler == "zig" and importlib.util.find_spec("ziglang") is None:
        pytest.skip("ziglang is not installed")
    name = "ONNX's node cases as exported C"
    cases = share(name, node_cases(), SHARES)
    wrong = [
        text
        for number, batch in enumerate(batches(list(parts(cases, Counter()))))
        for text in wrong_in(tmp_path / str(number), batch, COMPILERS[compiler])
    ]
    assert not wrong, "\n".join(wrong)
