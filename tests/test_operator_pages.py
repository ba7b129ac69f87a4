"""Tests the table of operators and the modules with their pages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import popgraph

SCRIPT = """
import pkgutil, sys
from importlib import import_module

record = import_module("popgraph.dialects.onnx.record")
real, found = record.enter, set()
BETWEEN = {
    "popgraph.dialects.onnx.record",
    "popgraph.operators.record",
    "popgraph.operators.microsoft.call",
}


def noting(domain, name):
    frame = sys._getframe(1)
    while frame.f_globals["__name__"] in BETWEEN:
        frame = frame.f_back
    page = frame.f_globals["__name__"]
    if page != "popgraph.operators.contents":
        found.add((page, domain, name))
    return real(domain, name)


record.enter = noting
contents = import_module("popgraph.operators.contents")
listed = {(one.page, *key) for key, one in record.RECORDS.items()}
rooms = [f"popgraph.operators{room}" for room in ("", ".microsoft", ".ml")]
for room in rooms:
    for one in pkgutil.iter_modules(import_module(room).__path__, f"{room}."):
        import_module(one.name)
wrong = found ^ listed
assert found and not wrong, sorted(wrong)
"""


def test_the_table_lists_the_operators_of_the_pages() -> None:
    """Runs in a separate process, since a page registers its operators on import."""
    root = Path(popgraph.__file__).parent.parent
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, capture_output=True, text=True, cwd=root)
    assert done.returncode == 0, done.stderr
