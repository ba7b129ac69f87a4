"""Tests the tables that say which module has the function of an operator."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import popgraph

SCRIPT = """
import pkgutil, sys
from importlib import import_module

package, home, decorator = sys.argv[1:]
contents = import_module(f"{package}.contents").PAGES
module = import_module(f"{package}.{home}")
real, found = getattr(module, decorator), {}


def noting(*names, domain=None, **others):
    # `defines` takes one operator and the names of its inputs, `lowers` takes operators.
    given = {} if domain is None else {"domain": domain}
    operators = names[:1] if decorator == "defines" else names
    page = sys._getframe(1).f_globals["__name__"]
    default = "com.microsoft" if decorator == "defines" else ""
    for name in operators:
        found[default if domain is None else domain, name] = page
    return real(*names, **given, **others)


setattr(module, decorator, noting)
for one in pkgutil.iter_modules(import_module(package).__path__, f"{package}."):
    import_module(one.name)
listed = {key: page.page for key, page in contents.items()}
wrong = dict(found.items() ^ listed.items())
assert found and not wrong, wrong
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ("popgraph.passes.onnx.to_graphcore", "registry", "lowers"),
        ("popgraph.operators.microsoft", "call", "defines"),
        ("popgraph.operators.evaluation", "registry", "computes"),
    ],
    ids=["lowerings", "definitions", "functions"],
)
def test_a_table_lists_what_the_modules_register(arguments: tuple[str, str, str]) -> None:
    """In a process of its own, since a module registers its functions when it is imported."""
    command = [sys.executable, "-c", SCRIPT, *arguments]
    root = Path(popgraph.__file__).parent.parent
    done = subprocess.run(command, capture_output=True, text=True, cwd=root)
    assert done.returncode == 0, done.stderr
