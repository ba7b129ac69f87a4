"""Tests the notebooks of docs/notebooks, and their cell magic."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import popgraph
from popgraph.notebook import define, load_ipython_extension
from popgraph.support.errors import ParseError
from tests import notebooks

RAMP = "graph ramp(x: f32[N]) -> (y) {\n    y = Relu(x)\n}"


def given(book: Any) -> list[list[tuple[str, list[str]]]]:
    """The kinds of each cell's outputs, with their MIME types."""
    return [
        [(one.output_type, sorted(one.get("data", {}))) for one in cell.outputs]
        for cell in book.cells
        if cell.cell_type == "code"
    ]


def source(book: Any) -> list[str]:
    return [cell.source for cell in book.cells]


@pytest.mark.parametrize("path", notebooks.paths(), ids=lambda path: path.stem)
def test_a_notebook_reproduces_its_outputs(path: Path, tmp_path: Path) -> None:
    """`make notebooks` updates the stored outputs."""
    kept, run = notebooks.read(path), notebooks.run(path, tmp_path)
    assert source(run) == source(kept)
    assert given(run) == given(kept)
    assert "error" not in [kind for cell in given(run) for kind, _ in cell]


def shell() -> Any:
    magics: dict[str, Any] = {}

    def register(function: Any, kind: str, name: str) -> None:
        magics[f"{kind} {name}"] = function

    return SimpleNamespace(user_ns={}, magics=magics, register_magic_function=register)


def test_the_cell_magic_defines_a_model() -> None:
    made = shell()
    popgraph.load_ipython_extension(made)
    assert popgraph.load_ipython_extension is load_ipython_extension
    shown = made.magics["cell pgraph"]("", RAMP)
    assert "ramp" in shown._repr_html_()
    run = popgraph.compile(made.user_ns["ramp"])
    np.testing.assert_array_equal(run(x=np.float32([-1, 2]))["y"], [0, 2])


def test_the_cell_magic_takes_a_name() -> None:
    made = shell()
    define(made, " mine ", RAMP)
    assert list(made.user_ns) == ["mine"]


def test_an_error_in_a_cell_has_no_traceback() -> None:
    made = shell()
    with pytest.raises(ParseError) as caught:
        define(made, "", RAMP.replace("Relu", "Rulu"))
    (shown,) = caught.value._render_traceback_()  # type: ignore[attr-defined]
    assert "<cell>:2:9" in shown and "Traceback" not in shown
    assert not made.user_ns
