"""Tests the sketch of a model: the document's graph, shown before the document is ready."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import onnx
import pytest

import popgraph
from popgraph import compiler
from popgraph.compiler.saving import save_model
from popgraph.dialects.levels import ONNX
from popgraph.support.errors import ModelError
from popgraph.viewer.graphs import graph_of
from popgraph.viewer.server import Awaited, Server
from popgraph.viewer.sketch import sketch_of
from tests.viewer.exported import MODULES, exported

EXAMPLES = Path(__file__).parents[2] / "examples"
DATA = Path(onnx.__file__).parent / "backend/test/data"
LIGHT = ("light_squeezenet", "light_resnet50")
NESTED = """
graph nested(x: f32[4], deep: bool, turns: i64) -> (y, rows) {
    (y, rows) = loop i in 0..turns with y = x {
        y = if deep {
            y = Relu(y) + x
        } else {
            y = Tanh(y)
        }
        rows = y
    }
}
"""


def edges(node: dict[str, Any]) -> tuple[Any, ...]:
    read = [(one["node"], one["held"]) for one in node["inputs"]]
    given = len(node["outputs"])
    return node["id"], node["kind"], node["name"], node["scope"], node["folded"], read, given


def nodes_of(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(sketch_of(path) or "")["graph"]
    return found


def assert_sketched(path: Path) -> None:
    sketch = nodes_of(path)
    whole = graph_of(compiler.load(path)[0], ONNX).nodes
    assert list(map(edges, sketch)) == list(map(edges, whole))
    for seen, known in zip(sketch, whole, strict=True):
        for side in ("inputs", "outputs"):
            for one, other in zip(seen[side], known[side], strict=True):
                assert one["type"] in ("", other["type"])


@pytest.mark.parametrize("name", LIGHT)
def test_the_sketch_of_a_network_is_its_graph(name: str) -> None:
    assert_sketched(DATA / "light" / f"{name}.onnx")


def saved_as_onnx(model: str | Path, folder: Path) -> Path:
    path = folder / "model.onnx"
    save_model(path, *compiler.load(model))
    return path


def test_graphs_inside_nodes_are_sketched(tmp_path: Path) -> None:
    path = saved_as_onnx(NESTED, tmp_path)
    assert_sketched(path)
    scopes = {node["scope"] for node in nodes_of(path)}
    assert any(scope.count("(") == 2 for scope in scopes), scopes


def test_modules_and_forms_of_weights_are_sketched(tmp_path: Path) -> None:
    path = tmp_path / "exported.onnx"
    onnx.save(exported(), path)
    assert_sketched(path)
    assert {node["scope"] for node in nodes_of(path)} == {"", *MODULES}
    assert any(node["folded"] for node in nodes_of(path))


def test_names_types_and_symbols_are_sketched(tmp_path: Path) -> None:
    path = saved_as_onnx(EXAMPLES / "transformer.pgraph", tmp_path)
    assert_sketched(path)
    first = nodes_of(path)[0]
    assert first["outputs"] == [
        {"name": "tokens", "type": "i64[N, length]", "node": None, "held": False}
    ]


def test_bytes_that_are_not_a_model_have_no_sketch(tmp_path: Path) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    with pytest.raises(ModelError, match="not an ONNX model"):
        sketch_of(tmp_path / "broken.onnx")


def test_names_that_are_not_utf8_are_refused_by_the_reader(tmp_path: Path) -> None:
    path = saved_as_onnx("graph g(x: f32[2]) -> (odd_name) {\n  odd_name = Relu(x)\n}\n", tmp_path)
    path.write_bytes(path.read_bytes().replace(b"odd_name", b"odd\xffname"))
    assert sketch_of(path) is None
    with pytest.raises(ModelError, match="not UTF-8"):
        compiler.load(path)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return saved_as_onnx(EXAMPLES / "digits_cnn.pgraph", tmp_path)


def test_the_sketch_is_shown_while_the_model_is_read(browser: Any, saved: Path) -> None:
    awaited = Awaited()
    server = Server(awaited, sketch_of(saved))
    with server.running():
        tab = browser.new_page(viewport={"width": 1300, "height": 800})
        said: list[str] = []
        tab.on("pageerror", lambda error: said.append(str(error)))
        tab.goto(server.address)
        tab.wait_for_selector("text=The model is being read")
        views = tab.query_selector_all("#views button")
        assert [one.get_attribute("data-view") for one in views] == ["onnx"]
        tab.fill("#search", "maxpool")
        tab.click("#tree button")
        assert tab.inner_text("#right h2") == "MaxPool"
        assert "kernel_shape" not in tab.inner_text("#right")
        awaited.made.set_result(popgraph.view(saved, sizes={"N": 1}).document)
        tab.wait_for_selector("#status:has-text('kernel')")
        assert tab.inner_text("#right h2") == "MaxPool"
        assert "kernel_shape" in tab.inner_text("#right")
        assert len(tab.query_selector_all("#views button")) == 6
        assert not said
        tab.close()


def test_the_command_shows_the_sketch_first(saved: Path) -> None:
    command = [sys.executable, "-m", "popgraph", "view", str(saved), "--no-browser"]
    with ExitStack() as ending:
        process = ending.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        ending.callback(process.terminate)  # A background process may ignore SIGINT.
        assert process.stdout is not None
        address = process.stdout.readline().split()[0]

        def part(name: str) -> dict[str, Any]:
            with urllib.request.urlopen(f"{address}part/{name}", timeout=60) as got:
                return dict(json.loads(got.read()))

        sketch, model = part("sketch"), part("model")
        assert len(sketch["graph"]) == len(model["graph"]) and "facts" not in sketch
        process.terminate()
        assert process.wait(30) in (0, -signal.SIGTERM, 128 + signal.SIGTERM)
