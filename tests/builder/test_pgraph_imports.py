"""Tests imports: names, the search path, error messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from popgraph import compiler
from popgraph.builder.pgraph import Document, load, parse
from popgraph.dialects.onnx import Initializer, model_of
from popgraph.passes.options import Options
from popgraph.support.errors import ErrorGroup, PopgraphError

LAYERS = """
let width = 3

def dense(x: f32[B, inputs], outputs) -> y {
    weight w: f32[inputs, outputs] = normal
    y = x @ w
}

def twice(x: f32[...], f) -> y {
    y = f(f(x))
}
"""


def files(folder: Path, **texts: str) -> Path:
    """Writes texts to files of these names, and returns the path of `main`."""
    for name, text in texts.items():
        (folder / f"{name}.pgraph").write_text(text)
    return folder / "main.pgraph"


def main(imports: str, body: str = "y = dense(x, width)") -> str:
    return f"{imports}\ngraph g(x: f32[N, 4]) -> y {{\n{body}\n}}"


def op_types(document: Document) -> list[str]:
    return [node.op_type for node in model_of(document.module).graph.nodes]


def message(path: Path, **options: Any) -> str:
    with pytest.raises((PopgraphError, ErrorGroup)) as caught:
        load(path, **options)
    return str(caught.value).replace(str(path.parent), "folder")


def test_all_of_a_file_is_imported_without_a_list(tmp_path: Path) -> None:
    path = files(tmp_path, layers=LAYERS, main=main('import "layers.pgraph"'))
    document = load(path)
    assert op_types(document) == ["MatMul"]
    (weight,) = model_of(document.module).graph.initializers
    assert isinstance(weight, Initializer)
    assert weight.array(document.weights).shape == (4, 3)


def test_a_list_imports_only_what_it_names(tmp_path: Path) -> None:
    text = 'import "layers.pgraph" (dense,)'
    path = files(tmp_path, layers=LAYERS, main=main(text, "y = dense(x, 2)"))
    assert op_types(load(path)) == ["MatMul"]
    path = files(tmp_path, main=main(text))
    assert "there is no value `width`" in message(path)


def test_imports_are_not_transitive(tmp_path: Path) -> None:
    middle = 'import "layers.pgraph"\ndef two(x: f32[...]) -> y {\n y = dense(x, width)\n}'
    texts = {"layers": LAYERS, "middle": middle}
    path = files(tmp_path, **texts, main=main('import "middle.pgraph"', "y = two(x)"))
    assert op_types(load(path)) == ["MatMul"]
    path = files(tmp_path, main=main('import "middle.pgraph" (dense)'))
    assert "'middle.pgraph' does not define `dense`" in message(path)


def test_graphs_of_imported_files_are_not_compiled(tmp_path: Path) -> None:
    layers = LAYERS + "graph other(x: f32[2]) -> y {\n y = Mistake(x)\n}"
    path = files(tmp_path, layers=layers, main=main('import "layers.pgraph"'))
    assert list(load(path).graphs) == ["g"]


def test_two_paths_to_one_file_are_one_import(tmp_path: Path) -> None:
    middle = 'import "layers.pgraph"\nlet more = width + 1'
    text = main('import "middle.pgraph"\nimport "layers.pgraph"\nimport "layers.pgraph" (dense)')
    path = files(tmp_path, layers=LAYERS, middle=middle, main=text)
    assert op_types(load(path)) == ["MatMul"]


def test_templates_are_arguments_across_files(tmp_path: Path) -> None:
    text = 'import "layers.pgraph"\ndef mine(x: f32[...]) -> y {\n y = -Relu(x)\n}'
    path = files(tmp_path, layers=LAYERS, main=main(text, "y = twice(x, mine)"))
    assert op_types(load(path)) == ["Relu", "Neg", "Relu", "Neg"]


def test_imports_are_looked_for_in_the_search_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    (tmp_path / "main").mkdir()
    files(tmp_path / "first", layers="def f(x: f32[...]) -> y {\n y = Relu(x)\n}")
    files(tmp_path / "second", layers="def f(x: f32[...]) -> y {\n y = Neg(x)\n}")
    path = files(tmp_path / "main", main=main('import "layers.pgraph"', "y = f(x)"))
    monkeypatch.delenv("POPGRAPH_PATH", raising=False)
    assert "there is no file 'layers.pgraph'" in message(path)
    monkeypatch.setenv("POPGRAPH_PATH", str(tmp_path / "second"))
    assert op_types(load(path)) == ["Neg"]
    assert op_types(load(path, [tmp_path / "first"])) == ["Relu"]
    runner = compiler.compile(
        path, backend="reference", options=Options(search=(str(tmp_path / "first"),))
    )
    x = np.full((1, 4), -2, np.float32)
    assert np.array_equal(runner(x=x)["y"], np.maximum(x, 0))
    files(tmp_path / "main", layers="def f(x: f32[...]) -> y {\n y = Abs(x)\n}")
    assert op_types(load(path)) == ["Abs"]


def test_only_texts_can_be_imported(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"\x08\x07")
    (tmp_path / "layers.pgraph").write_bytes(b"\xff\xfe\x00")
    path = files(tmp_path, main=main('import "model.onnx"'))
    assert "model.onnx is not a .pgraph file" in message(path)
    assert "model.pgraph` makes one" in message(path)
    path = files(tmp_path, main=main('import "layers.pgraph"'))
    assert "not UTF-8 text" in message(path)


def test_files_outside_of_the_search_path_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    files(tmp_path, layers=LAYERS)
    path = files(tmp_path / "inner", main=main('import "../layers.pgraph"'))
    assert "'../layers.pgraph' is not below the folder of this text" in message(path)


def test_weights_are_loaded_from_the_folder_of_the_imported_file(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    held = np.arange(4, dtype=np.float32)
    np.savez(tmp_path / "lib" / "w.npz", w=held)
    layers = 'def scaled(x: f32[...]) -> y {\n weight w: f32[4] = load("w.npz", "w")\n y = x * w\n}'
    files(tmp_path / "lib", layers=layers)
    path = files(tmp_path, main=main('import "lib/layers.pgraph"', "y = scaled(x)"))
    document = load(path)
    (weight,) = model_of(document.module).graph.initializers
    assert np.array_equal(weight.array(document.weights), held)


def test_circular_imports_are_refused(tmp_path: Path) -> None:
    texts = {"a": 'import "b.pgraph"', "b": 'import "a.pgraph"'}
    path = files(tmp_path, **texts, main=main('import "a.pgraph"', "y = x"))
    shown = message(path)
    assert "circular import: a.pgraph -> b.pgraph -> a.pgraph" in shown
    assert "folder/b.pgraph:1:8" in shown
    path = files(tmp_path, main=main('import "main.pgraph"', "y = x"))
    assert "main.pgraph -> main.pgraph" in message(path)


def test_a_mistake_in_an_imported_file_is_shown_there(tmp_path: Path) -> None:
    layers = "def f(x: f32[...]) -> y {\n    y = Reluu(x)\n}"
    path = files(tmp_path, layers=layers, main=main('import "layers.pgraph"', "y = f(x)"))
    shown = message(path)
    assert "folder/layers.pgraph:2:9\n     2 |     y = Reluu(x)" in shown
    assert "called in folder/main.pgraph:3:5\n     3 | y = f(x)" in shown


def test_an_error_in_a_template_is_reported_once(tmp_path: Path) -> None:
    text = (
        "def f(x: f32[...]) -> y {\n y = Reluu(x)\n}\n"
        "graph g(x: f32[2]) -> (y, z) {\n y = f(x)\n z = f(x)\n}"
    )
    with pytest.raises(PopgraphError) as caught:
        parse(text, "t.pgraph")
    assert not isinstance(caught.value, ErrorGroup)
    assert "called in t.pgraph:5:6" in str(caught.value)


def test_errors_are_ordered_by_file_and_line(tmp_path: Path) -> None:
    layers = "let a = 1 / 0\nlet b = 2 / 0"
    text = main('import "layers.pgraph"\nlet c = 3 / 0', "y = x")
    path = files(tmp_path, layers=layers, main=text)
    with pytest.raises(ErrorGroup) as caught:
        load(path)
    places = [error.where.split("\n")[0].rpartition("/")[2] for error in caught.value.errors]
    assert places == ["main.pgraph:2:11", "layers.pgraph:1:11", "layers.pgraph:2:11"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import \"layers.pgraph\"\ndef dense(x) -> y {\n y = x\n}", "`dense` is defined twice"),
        ("import \"layers.pgraph\"\nlet width = 4", "`width` is defined twice"),
        ("import \"layers.pgraph\"\nlet dense = 4", "`dense` is defined twice"),
        ("let dense = 4\nimport \"layers.pgraph\"", "`dense` is defined twice"),
        ("def width(x) -> y {\n y = x\n}\nimport \"layers.pgraph\"", "`width` is defined twice"),
        ("import \"layers.pgraph\" (dens)", "did you mean `dense`?"),
        ("import \"layers.pgraph\" (z)", "it defines dense, twice, width"),
        ("import \"layer.pgraph\"", "there is no file 'layer.pgraph'"),
        ("opset 20\nimport \"old.pgraph\"", "is written in opset 13 of `ai.onnx`, this text in 20"),
    ],
)  # fmt: skip
def test_invalid_imports(text: str, said: str, tmp_path: Path) -> None:
    texts = {"layers": LAYERS, "old": "opset 13\nlet a = 1"}
    assert said in message(files(tmp_path, **texts, main=main(text, "y = x")))


def test_the_operator_sets_of_imports_are_added(tmp_path: Path) -> None:
    layers = "opset ai.onnx.ml 3\ndef f(x: f32[...]) -> y {\n y = ml.Normalizer(x)\n}"
    path = files(tmp_path, layers=layers, main=main('import "layers.pgraph"', "y = f(x)"))
    assert model_of(load(path).module).opset_versions["ai.onnx.ml"] == 3


def test_a_file_may_hold_definitions_only() -> None:
    document = parse(LAYERS, "layers.pgraph")
    assert document.graphs == {}
    assert document.training is None
    with pytest.raises(PopgraphError, match="this text has no graph"):
        assert document.module


UNCALLED = """
def f(x: f32[N, size], heads, activation=Relu) -> y {
    let deep = size / heads
    weight w: f32[size, size] = normal(std=0.02)
    h = activation(x @ w) |> Reshape([0, heads, deep])
    for i in 0..heads {
        h = h + i
    }
    y = if deep > 3 {
        y = Cast(h, to=f16)
    } else {
        y = Loop(heads, true, h, body=graph (i: i64, go: bool, v: f32) -> (go, n) {
            n = v + h
        })
    }
}
"""


def test_uncalled_templates_are_checked() -> None:
    assert parse(UNCALLED).graphs == {}


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("x @ w", "x @ v", "there is no value `v`"),
        ("[0, heads, deep]", "[0, head, deep]", "did you mean `heads`?"),
        ("Cast(h", "Caste(h", "Caste"),
        ("h = h + i", "h = h + j", "there is no value `j`"),
        ("n = v + h", "n = v + q", "there is no value `q`"),
        ("y = if", "z = if", "y"),
    ],
)
def test_misspelt_names_in_uncalled_templates(right: str, wrong: str, said: str) -> None:
    with pytest.raises(PopgraphError) as caught:
        parse(UNCALLED.replace(right, wrong), "t.pgraph")
    assert said in str(caught.value)
