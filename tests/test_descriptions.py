"""Tests descriptions of compiled models: inputs, outputs, parameters, as text and as a table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import popgraph
from popgraph.passes.optimizer_spec import SGD
from popgraph.passes.options import Training
from popgraph.runner import Runner
from popgraph.support import files
from popgraph.support.amounts import bytes_text
from popgraph.support.description import MAX_LISTED, Description, TensorSpec
from popgraph.support.errors import RunError

OPEN = """opset 21
graph net(x: f32[N, 4], n: i64) -> (y) {
    weight w: f32[4, 3] = ones
    y = x @ w
}
"""
SHAPED = """opset 21
graph net(x: f32[N, 4], shape: i64[2]) -> (y) {
    y = Reshape(x, shape)
}
"""
HOSTED = """opset 18
graph host(x: f32[3, 4]) -> (places) {
    places = NonZero(x)
}
"""
SEQUENCE = """opset 18
graph parts(x: f32[6, 4]) -> (y) {
    y = SplitToSequence(x, axis=0, keepdims=0)
}
"""
IR = """
pg.graph @main inputs [#pg.bytes<"x">] {
^bb0(%x: tensor<2xf32>):
  %w = pg.variable #pg.bytes<"w"> = #pg.data<"0000000000000000" : tensor<2xf32>>
  %y = graphcore.add %x, %w : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  pg.return [#pg.bytes<"y">], %y : tensor<2xf32>
}
"""


def compiled(text: str, folder: Path, name: str = "net.pgraph", **more: object) -> Runner:
    (folder / name).write_text(text)
    return popgraph.compile(folder / name, **more)


def test_description_of_an_open_model(tmp_path: Path) -> None:
    run = compiled(OPEN, tmp_path)
    assert list(run.inputs) == ["x", "n"] and list(run.outputs) == ["y"]
    assert run.inputs["x"] == TensorSpec("x", "f32[N, 4]", np.dtype("f4"), ("N", 4))
    assert run.inputs["x"].size is None and run.inputs["x"].nbytes is None
    assert run.inputs["n"].shape == () and run.inputs["n"].nbytes == 8
    assert run.outputs["y"].shape == ("N", 3)
    assert run.parameters["w"].nbytes == 48 and run.parameters["w"].dtype == np.float32


@pytest.mark.parametrize("backend", ["c", "reference"])
def test_description_of_a_static_model(tmp_path: Path, backend: str) -> None:
    text = (
        OPEN.replace("N, 4", "2, 4").replace(", n: i64", "").replace("-> (y)", "-> (y: f32[?, ?])")
    )
    run = compiled(text, tmp_path, backend=backend)
    assert [str(one) for one in run.outputs.values()] == ["y: f32[2, 3]"]
    assert [str(one) for one in run.parameters.values()] == ["w: f32[4, 3]"]
    assert repr(run).splitlines() == [
        "<popgraph.Runner of net.pgraph>",
        "  input       x: f32[2, 4]",
        "  output      y: f32[2, 3]",
        "  parameters  1 tensor, 12 numbers, 48 bytes",
    ]


def test_repr_of_an_open_model_shows_structure_and_programs(tmp_path: Path) -> None:
    run = compiled(SHAPED, tmp_path)
    run(x=np.zeros((3, 4), np.float32), shape=np.array([2, 6]))
    lines = repr(run).splitlines()
    assert "  structure   is decided by the values of shape" in lines
    assert "  programs    1 compiled" in lines
    assert "  parameters  none" in lines


def test_descriptions_of_hosted_models(tmp_path: Path) -> None:
    assert "output      places: i64[2, ?]" in repr(compiled(HOSTED, tmp_path))
    (output,) = compiled(SEQUENCE, tmp_path).outputs.values()
    assert output.type.startswith("sequence(f32") and output.dtype is None


def test_description_of_ir_of_lower_levels(tmp_path: Path) -> None:
    run = compiled(IR, tmp_path, "net.mlir")
    assert str(run.inputs["x"]) == "x: f32[2]" and str(run.outputs["y"]) == "y: f32[2]"
    assert list(run.parameters) == ["w"]


def test_requested_outputs_are_described(tmp_path: Path) -> None:
    text = OPEN.replace(", n: i64", "").replace(
        "y = x @ w", "h = x @ w\n    y = ReduceSum(h, keepdims=0)"
    )
    asked = popgraph.Options(extra_outputs=("h",))
    assert str(compiled(text, tmp_path, options=asked).outputs["h"]) == "h: f32[N, 3]"
    training = Training("y", SGD(), gradients=("w",))
    found = compiled(text, tmp_path, options=popgraph.Options(training=training)).outputs
    assert str(found["Gradient___w"]) == "Gradient___w: f32[4, 3]"


def test_a_cached_program_reads_the_file_for_its_description(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POPGRAPH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("POPGRAPH_PROGRAM_CACHE", raising=False)
    monkeypatch.setattr(files, "SETTLED", -1.0)
    x = np.zeros((2, 4), np.float32)
    compiled(OPEN.replace(", n: i64", ""), tmp_path)(x=x)
    path = tmp_path / "net.pgraph"
    warm, late = popgraph.compile(path), popgraph.compile(path)
    assert str(warm.inputs["x"]) == "x: f32[N, 4]" and list(warm.parameters) == ["w"]
    path.write_text(OPEN)
    assert list(warm.inputs) == ["x"], "a description is cached"
    with pytest.raises(RunError, match="changed"):
        _ = late.parameters
    assert list(late.inputs) == ["x"], "they are kept with the programs"
    assert "is unknown" in repr(late), "repr does not raise"


def test_a_notebook_shows_a_table(tmp_path: Path) -> None:
    page = compiled(OPEN.replace("net(", "a_net("), tmp_path)._repr_html_()
    assert page.startswith("<table><caption>popgraph.Runner of net.pgraph</caption>")
    assert "<code>x: f32[N, 4]</code>" in page and "48 bytes" in page


def test_tables_escape_names(tmp_path: Path) -> None:
    name = "<script>"
    run = Runner.__new__(Runner)
    run.describe, run.static, run.open = lambda: Description(name), None, None
    assert name not in run._repr_html_() and "&lt;script&gt;" in run._repr_html_()


def test_long_lists_are_shortened() -> None:
    many = {f"x{n}": TensorSpec(f"x{n}", "f32[]", np.dtype("f4"), ()) for n in range(20)}
    rows = Description("m", many, {}, {}).rows()
    assert rows[MAX_LISTED] == ("input", f"... and {20 - MAX_LISTED} more")
    assert ("output", "none") in rows


def test_sizes_have_units() -> None:
    assert [bytes_text(n) for n in (1, 999, 1500, 102_400_000, 3 * 10**9)] == [
        "1 byte", "999 bytes", "1.5 kB", "102.4 MB", "3.0 GB",
    ]  # fmt: skip
