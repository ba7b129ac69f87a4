"""Tests ONNX's node cases as exported C, under sanitizers and without a warning."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from popgraph import compiler
from popgraph.backends.c.export.check_program import Vector
from popgraph.backends.c.export.exporting import export
from popgraph.backends.c.export.interface import Form
from popgraph.backends.c.export.targets import target_of
from popgraph.passes.options import Options
from tests.passes.test_onnx_to_graphcore import node_cases
from tests.sampling import share
from tests.test_node_cases import Part, batches, parts, titled, together

SHARES = 16
"""A run takes every sixteenth model, `make test-all` all of them."""
CHECKED = {
    "ARCH": "-march=native -fsanitize=address,undefined -fno-sanitize-recover=all",
    "CFLAGS": "-std=c11 -O0 -Wall -Wextra -pedantic -Werror -Wno-psabi",
}


def wrong_in(number: int, batch: Sequence[Part], folder: Path) -> list[str]:
    """What make says of one model of many cases, if that is not good."""
    model, given = together(batch)
    module, compilation = compiler.load(model)
    options = compiler.for_this_machine(Options(measured=()))
    request = compiler.BuildRequest(module, compilation, options, "reference", 1).copied()
    executable = request.executable()
    inputs = {name: given[name] for name in executable.inputs}
    vector = Vector(inputs, executable.run(inputs))
    compiler.lower(module, compilation, options)
    made = export(module, compilation.weights, Form(target_of("native")), vector)
    place = folder / str(number)
    place.mkdir()
    for name, content in made.files.items():
        (place / name).write_bytes(b"".join(content))
    flags = [f"{name}={value}" for name, value in CHECKED.items()]
    done = subprocess.run(["make", "check", *flags], cwd=place, capture_output=True, text=True)
    return [] if done.returncode == 0 else [done.stdout[-2000:] + done.stderr[-2000:]]


def test_node_cases_as_exported_c(tmp_path: Path) -> None:
    found = list(batches(list(parts(node_cases(), Counter()))))
    models = share("ONNX's node cases as exported C", found, SHARES, titled)
    wrong = [
        text for number, batch in enumerate(models) for text in wrong_in(number, batch, tmp_path)
    ]
    assert not wrong, "\n".join(wrong)
