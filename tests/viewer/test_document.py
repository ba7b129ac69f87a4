"""Tests the document of a model: structure, links both ways, marks that change nothing."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import popgraph
from popgraph.backends.c.print.layout import find_program
from popgraph.backends.c.print.module import print_kernels
from popgraph.cli import models
from popgraph.compiler import for_this_machine, lower
from popgraph.dialects.tile.program.lifetimes import bytes_in_use, calls, lifetimes
from popgraph.dialects.tile.program.work import Counter
from popgraph.passes.options import Options
from popgraph.support.errors import ModelError
from popgraph.viewer.document import Document

EXAMPLES = Path(__file__).parents[2] / "examples"
SIZES = {"digits_cnn.pgraph": {"N": 2}, "transformer.pgraph": {"N": 1, "length": 8}}
FREE = ("Constant", "Flatten", "Gather", "Range", "Reshape", "Shape", "Transpose")
"""What becomes a constant, or part of how others read."""
LEVELS = ("onnx", "graphcore", "structured")


def document(name: str, *, train: bool = False, rounds: int = 0, **sizes: int) -> Document:
    path = EXAMPLES / name
    given = [f"{dim}={size}" for dim, size in sizes.items()]
    module, compilation, training = models.opened(path, given, train=train, static=False)
    made = replace(for_this_machine(Options()), training=training)
    return Document(name, module, compilation, made, rounds, origin=path)


@pytest.fixture(scope="module")
def digits() -> Document:
    return document("digits_cnn.pgraph", N=2)


def test_the_graph_is_the_model_as_it_was_written(digits: Document) -> None:
    found = digits.part("model")
    kinds = [node["kind"] for node in found["graph"]]
    assert kinds[:4] == ["input", "Conv", "Relu", "MaxPool"] and kinds[-1] == "output"
    convolution = found["graph"][1]
    assert convolution["line"] == 13 and convolution["file"] == "digits_cnn.pgraph"
    assert [(one["name"], one["node"], one["held"]) for one in convolution["inputs"]] == [
        ("x", 0, False),
        ("w1", None, True),
        ("b1", None, True),
    ]
    assert convolution["outputs"][0]["type"] == "f32[2, 8, 8, 8]"
    line = found["sources"]["digits_cnn.pgraph"].splitlines()[convolution["line"] - 1]
    assert "Conv(x, w1, b1" in line


@pytest.mark.parametrize(
    ("name", "train"),
    [("digits_cnn.pgraph", False), ("digits_cnn.pgraph", True), ("transformer.pgraph", False)],
)
def test_every_kernel_is_linked_with_the_model_both_ways(name: str, train: bool) -> None:
    viewed = document(name, train=train, **SIZES[name])
    nodes = viewed.part("model")["graph"]
    lowered = viewed.part("lowered")
    graphs = {"onnx": nodes, **lowered["graphs"]}
    for above, level in pairwise(LEVELS):
        for node in graphs[level]:
            assert all(0 <= one < len(graphs[above]) for one in node["sources"])
    kernels = {one["name"]: one for one in lowered["kernels"]}
    for call in lowered["calls"]:
        assert call["structured"], call["label"]
        assert kernels[call["kernel"]]["c"].startswith(f"void {kernels[call['kernel']]['symbol']}(")
        for level in LEVELS:
            assert all(0 <= one < len(graphs[level]) for one in call[level])
    computed = {one for call in lowered["calls"] for one in call["onnx"]}
    without = {node["kind"] for node in nodes if node["id"] not in computed}
    assert without <= {"input", "output", *FREE}


def test_a_fused_kernel_tells_of_all_that_it_computes(digits: Document) -> None:
    lowered, nodes = digits.part("lowered"), digits.part("model")["graph"]
    computed = [[nodes[one]["kind"] for one in call["onnx"]] for call in lowered["calls"]]
    assert ["Conv", "Relu"] in computed


def test_marks_change_nothing_of_what_is_compiled(digits: Document) -> None:
    module, compilation, _ = models.opened(EXAMPLES / "digits_cnn.pgraph", ["N=2"])
    lower(module, compilation, digits.options)
    plain = [kernel.text for kernel in print_kernels(module)]
    assert [kernel["c"] for kernel in digits.part("lowered")["kernels"]] == plain


def test_the_taken_schedule_comes_first(digits: Document) -> None:
    """It is that of the operation, and with the others it says what it would cost."""
    lowered = digits.part("lowered")
    matched = 0
    for call in lowered["calls"]:
        (node,) = (lowered["graphs"]["structured"][one] for one in call["structured"])
        if call["schedules"] is None:
            assert node["kind"] != "contract"
            continue
        first, *others = call["schedules"]["candidates"]
        assert others and all(one["cycles"] > 0 for one in others)
        wanted = first["schedule"].partition("#tile.schedule")[2]
        if node["kind"] == "contract" and wanted:
            assert f"schedule {wanted}" in node["text"]
            matched += 1
    assert matched


def test_passes_are_told_in_order_with_their_reasons(digits: Document) -> None:
    rows = digits.part("passes")["passes"]
    assert rows[0]["name"] == "infer-shapes" and rows[-1]["name"] == "split-kernels"
    lowering = next(row for row in rows if row["name"] == "onnx-to-graphcore")
    assert lowering["changed"] and lowering["to"] == "graphcore" and lowering["reason"]
    assert "+    %h2 = graphcore.max_pool" in lowering["diff"]
    assert all(bool(row["diff"]) == row["changed"] for row in rows)


def test_weights_have_statistics_of_their_finite_numbers() -> None:
    builder = popgraph.Builder()
    x = builder.addInputTensor(popgraph.TensorInfo("FLOAT", [4]))
    w = builder.addInitializedInputTensor(np.array([1, 3, np.inf, 0], np.float32), "w")
    builder.addOutputTensor(builder.aiOnnx.add([x, w]))
    found = popgraph.view(builder).document.part("weights")["weights"]["w"]
    assert found["type"] == "f32[4]" and found["not_finite"] == 1 and found["zeros"] == 1
    assert found["mean"] == pytest.approx(4 / 3) and found["edges"] == [0, 3]
    assert sum(found["histogram"]) == 3 and found["values"] == ["1.0", "3.0", "inf", "0.0"]


def test_what_cannot_be_lowered_is_told_in_the_part(tmp_path: Path) -> None:
    path = tmp_path / "open.pgraph"
    path.write_text("opset 21\ngraph g(x: f32[3], n: i64[1]) -> (y) {\n  y = Expand(x, n)\n}\n")
    viewed = popgraph.view(path).document
    kinds = [node["kind"] for node in viewed.part("model")["graph"]]
    assert kinds == ["input", "input", "Expand", "output"]
    error = viewed.part("lowered")["error"]
    assert "the shape of Expand must be constant" in error["what"] and "'y'" in error["where"]


def test_a_module_of_a_lower_level_is_refused() -> None:
    module, compilation, _ = models.opened(EXAMPLES / "mlp.pgraph", ["N=1"])
    lower(module, compilation, level="graphcore")
    with pytest.raises(ModelError, match="graphcore level is not viewed"):
        popgraph.view(module)


@pytest.mark.parametrize("name", SIZES)
def test_lifetimes_cover_the_bytes_in_use(name: str) -> None:
    """At each call, the union of the pieces that are alive; nothing twice but where it writes."""
    module, compilation, _ = models.opened(
        EXAMPLES / name, [f"{dim}={size}" for dim, size in SIZES[name].items()]
    )
    lower(module, compilation, for_this_machine(Options()))
    program, counter = find_program(module, "main"), Counter(module)
    pieces = lifetimes(program, counter)
    assert max(piece.last for piece in pieces) < len(calls(program))
    for step, used in enumerate(bytes_in_use(program, counter)):
        alive = np.zeros(program.arena.value.data + 64, np.int64)
        for piece in pieces:
            if piece.first <= step <= piece.last:
                alive[piece.offset : piece.offset + piece.size] += 1
        assert np.count_nonzero(alive) == used
        assert alive.max(initial=0) <= 2


def test_measured_times_stand_beside_the_calls_of_a_step() -> None:
    lowered = document("mlp.pgraph", rounds=1, N=2).part("lowered")
    steps = [call for call in lowered["calls"] if call["step"] is not None]
    assert len(lowered["times"]) == len(steps) and lowered["total"] > 0
    assert 1 < lowered["roof"]["gflops"] < 1e4 and 0.1 < lowered["roof"]["gigabytes"] < 1e4
