"""Tests the document of a model: structure, links both ways, marks that change nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import popgraph
from popgraph.backends.c.print.module import print_kernels
from popgraph.cli import models
from popgraph.compiler import for_this_machine, lower
from popgraph.dialects.tile.program.lifetimes import bytes_in_use, calls, lifetimes
from popgraph.dialects.tile.program.ops import find_program
from popgraph.dialects.tile.program.work import Counter
from popgraph.passes.options import Options
from popgraph.support.errors import ModelError
from popgraph.viewer.document import Document, Part
from popgraph.viewer.flame import Box
from popgraph.viewer.nodes import NAME_SCOPES, modules_of
from tests.viewer.exported import MODULES, exported

EXAMPLES = Path(__file__).parents[2] / "examples"
SIZES = {"digits_cnn.pgraph": {"N": 2}, "transformer.pgraph": {"N": 1, "length": 8}}
FREE = ("Constant", "Flatten", "Gather", "Range", "Reshape", "Shape", "Transpose")
"""Operators that become constants or access patterns, and need no kernel."""
LEVELS = ("onnx", "graphcore", "structured")


def document(name: str, *, train: bool = False, rounds: int = 0, **sizes: int) -> Document:
    path = EXAMPLES / name
    given = [f"{dim}={size}" for dim, size in sizes.items()]
    module, compilation, step = models.opened(path, given, train=train, static=False)
    made = models.with_step(for_this_machine(Options()), step)
    return Document(name, module, compilation, made, rounds, origin=path)


@pytest.fixture(scope="module")
def digits() -> Document:
    return document("digits_cnn.pgraph", N=2)


def test_the_graph_is_the_model_before_passes(digits: Document) -> None:
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


def test_a_node_that_is_folded_into_another_is_computed_by_its_kernel(tmp_path: Path) -> None:
    path = tmp_path / "net.pgraph"
    path.write_text(
        "graph net(x: f32[1, 3, 8, 8]) -> (y) {\n    weight w: f32[4, 3, 3, 3] = normal\n"
        "    weight s: f32[4] = normal\n    weight b: f32[4] = normal\n"
        "    h = Conv(x, w, pads=[1, 1, 1, 1])\n"
        "    n = BatchNormalization(h, s, b, b, Abs(s))\n"
        "    y = Relu(n)\n}\n"
    )
    viewed = popgraph.view(path).document
    kinds = {node["id"]: node["kind"] for node in viewed.part("model")["graph"]}
    computed = {kinds[one] for call in viewed.part("lowered")["calls"] for one in call["onnx"]}
    assert {"Conv", "BatchNormalization", "Relu"} <= computed


def test_modules_of_metadata_are_scopes_at_every_level() -> None:
    """Names without slashes, as PyTorch's exporter writes them, get scopes from metadata."""
    viewed = popgraph.view(exported()).document
    nodes = viewed.part("model")["graph"]
    scopes = {node["name"]: node["scope"] for node in nodes}
    assert (
        scopes["node_product0"] == "layers.0/attn/q" and scopes["node_scores0"] == "layers.0/attn"
    )
    assert scopes["node_h0"] == "layers.0" and scopes["x"] == scopes["node_shared"] == ""
    for level, rows in viewed.part("lowered")["graphs"].items():
        assert {"layers.0/attn/q"} <= {node["scope"] for node in rows} <= {"", *MODULES}, level
        for node in rows:
            above = (
                {nodes[one]["scope"] for one in node["sources"]} if level != "structured" else ()
            )
            assert not above or node["scope"] in above


@pytest.mark.parametrize(
    ("text", "modules"),
    [
        ("['', 'layers.0', 'layers.0.attn', 'add_3']", "layers.0/attn"),
        ("['', 'add_3']", ""),
        ("['', 'a', 'b.c', 'add']", "a/b.c"),
        ("""["it's", 'x/y', 'node']""", "it's/x/y"),
        ("[]", ""),
        ("", None),
        ("['a'", None),
        ("[['a'], 'b']", None),
        ("print('a')", None),
        (r"['\x', 'a']", "x"),
    ],
)
def test_a_list_of_scopes_is_read_as_text(text: str, modules: str | None) -> None:
    assert modules_of([(NAME_SCOPES, text)]) == modules


def test_forms_of_weights_are_folded_unless_they_are_results() -> None:
    nodes = popgraph.view(exported()).document.part("model")["graph"]
    assert {node["name"] for node in nodes if node["folded"]} == {"node_shared", "node_turned"}


def test_loop_carried_values_are_not_weights(tmp_path: Path) -> None:
    """The results of a branch are not weights either: they stay nodes of its graph."""
    path = tmp_path / "net.pgraph"
    path.write_text(
        "graph net(x: f32[2, 2], deep: bool) -> (y, z) {\n    weight w: f32[2, 2] = normal\n"
        "    y = loop i in 0..3 with y = x {\n        y = Transpose(y) @ Transpose(w)\n    }\n"
        "    z = if deep {\n        z = Transpose(w)\n    } else {\n        z = Identity(w)\n"
        "    }\n}\n"
    )
    nodes = popgraph.view(path).document.part("model")["graph"]
    forms = {"Transpose", "Identity"}
    shown = [node for node in nodes if node["kind"] in forms and not node["folded"]]
    assert [node["inputs"][0]["held"] for node in shown] == [False, True, True]
    (folded,) = [node for node in nodes if node["folded"] and node["kind"] in forms]
    assert folded["inputs"][0]["held"] and folded["inputs"][0]["node"] is None


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
        assert f"void {kernels[call['kernel']]['symbol']}(" in kernels[call["kernel"]]["c"]
        for level in LEVELS:
            assert all(0 <= one < len(graphs[level]) for one in call[level])
    computed = {one for call in lowered["calls"] for one in call["onnx"]}
    without = {node["kind"] for node in nodes if node["id"] not in computed}
    assert without <= {"input", "output", *FREE}


def test_a_fused_kernel_lists_all_its_operations(digits: Document) -> None:
    lowered, nodes = digits.part("lowered"), digits.part("model")["graph"]
    computed = [[nodes[one]["kind"] for one in call["onnx"]] for call in lowered["calls"]]
    assert ["Conv", "Relu"] in computed


def test_marks_do_not_change_the_compiled_program(digits: Document) -> None:
    module, compilation, _ = models.opened(EXAMPLES / "digits_cnn.pgraph", ["N=2"])
    lower(module, compilation, digits.options)
    plain = [kernel.text for kernel in print_kernels(module)]
    assert [kernel["c"] for kernel in digits.part("lowered")["kernels"]] == plain


def test_the_taken_schedule_comes_first(digits: Document) -> None:
    """The first schedule is that of the operation; all have their modelled cost."""
    lowered = digits.part("lowered")
    matched = 0
    for call in lowered["calls"]:
        (node,) = (lowered["graphs"]["structured"][one] for one in call["structured"])
        if call["schedules"] is None:
            assert " product " not in node["text"]
            continue
        first, *others = call["schedules"]["candidates"]
        assert others and all(one["cycles"] > 0 for one in others)
        wanted = first["schedule"].partition("#tile.schedule")[2]
        if " product " in node["text"] and wanted:
            assert f"schedule {wanted}" in node["text"]
            matched += 1
    assert matched


def test_passes_are_listed_in_order_with_reasons(digits: Document) -> None:
    rows = digits.part("passes")["passes"]
    assert rows[0]["name"] == "evaluate-constants" and rows[-1]["name"] == "hand-numbers"
    lowering = next(row for row in rows if row["name"] == "onnx-to-graphcore")
    assert lowering["changed"] and lowering["to"] == "graphcore" and lowering["reason"]
    assert "+    %h2 = graphcore.max_pool" in lowering["diff"]
    assert all(bool(row["diff"]) == row["changed"] for row in rows)


def test_loop_passes_are_listed_with_their_changes() -> None:
    builder = popgraph.Builder()
    x = builder.addInputTensor("FLOAT", [24, 256], "x")
    w = builder.addInitializedInputTensor(np.ones((256, 512), np.float32), "w")
    builder.addOutputTensor(builder.aiOnnx.matmul([x, w]))
    rows = popgraph.view(builder).document.part("passes")["passes"]
    names = [row["name"] for row in rows if row["level"] == "loops"]
    assert names == [
        *("split-loops", "interchange-loops", "vectorize-loops", "unroll-loops"),
        *("prefetch-panels", "plan-memory"),
    ]
    row = next(row for row in rows if row["name"] == "prefetch-panels")
    lines = [line for line in row["diff"].split("\n") if line.startswith("+")]
    assert 0 < sum("tile.prefetch" in line for line in lines) < len(lines) < 60


def test_weights_have_statistics_of_their_finite_numbers() -> None:
    builder = popgraph.Builder()
    x = builder.addInputTensor(popgraph.TensorInfo("FLOAT", [4]))
    w = builder.addInitializedInputTensor(np.array([1, 3, np.inf, 0], np.float32), "w")
    builder.addOutputTensor(builder.aiOnnx.add([x, w]))
    found = popgraph.view(builder).document.part("weights")["weights"]["w"]
    assert found["type"] == "f32[4]" and found["not_finite"] == 1 and found["zeros"] == 1
    assert found["mean"] == pytest.approx(4 / 3) and found["edges"] == [0, 3]
    assert sum(found["histogram"]) == 3 and found["values"] == ["1.0", "3.0", "inf", "0.0"]


def test_lowering_errors_are_in_the_document(tmp_path: Path) -> None:
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
    """At each call, live slices cover `bytes`; two overlap only where the call is in place."""
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


def view(path: Path) -> Document:
    module, compilation, _ = models.opened(path, [], static=False)
    return Document(path.stem, module, compilation, for_this_machine(Options()), 1, origin=path)


def boxes(box: Box) -> Iterator[Box]:
    yield box
    for inner in box.below:
        yield from boxes(inner)


def test_calls_of_a_step_have_measured_times() -> None:
    lowered = document("mlp.pgraph", rounds=1, N=2).part("lowered")
    steps = [call for call in lowered["calls"] if call["step"] is not None]
    assert steps and all(call["time"] >= 0 for call in steps) and lowered["total"] > 0
    assert all("time" not in call for call in lowered["calls"] if call["prepared"])
    assert 1 < lowered["roof"]["gflops"] < 1e4 and 0.1 < lowered["roof"]["gigabytes"] < 1e4


@pytest.mark.parametrize("name", SIZES)
def test_the_flame_graph_splits_all_time_by_level(name: str) -> None:
    viewed = document(name, rounds=1, **SIZES[name])
    lowered, nodes = viewed.part("lowered"), viewed.part("model")["graph"]
    root = viewed.times()
    assert asdict(root) == lowered["flame"]
    steps = [call for call in lowered["calls"] if call["step"] is not None]
    assert root.microseconds == rounded_sum(call["time"] for call in steps)
    assert root.calls == len(steps) and root.share == (root.microseconds > 0)
    kernels = [box.places for box in boxes(root) if box.level == "kernel"]
    assert sorted(kernels) == sorted([call["id"]] for call in ids(lowered["calls"], steps))
    for box in boxes(root):
        if box.below:
            assert box.microseconds == rounded_sum(one.microseconds for one in box.below)
            assert box.calls == sum(one.calls for one in box.below)
        if box.level == "onnx":
            assert all(nodes[place]["kind"] in box.name for place in box.places)
            assert {one.level for one in box.below} == {"graphcore"}
    if name == "transformer.pgraph":
        layers = {f"layer{number}" for number in range(12)}
        assert layers <= {box.name for box in root.below if box.level == "scope"}


def rounded_sum(parts: Iterable[float]) -> Any:
    """The sum of numbers rounded to six digits, up to that rounding."""
    return pytest.approx(sum(parts), rel=1e-5)


def ids(calls: list[Part], chosen: list[Part]) -> list[Part]:
    return [{"id": number} for number, call in enumerate(calls) if call in chosen]


def test_a_fused_kernel_is_one_box_of_the_flame_graph(tmp_path: Path) -> None:
    path = tmp_path / "scopes.pgraph"
    path.write_text(
        "opset 21\ngraph g(x: f32[64, 64]) -> (y) {\n  h = Relu(x) * x\n  y = h @ h\n}\n"
    )
    root = view(path).times()
    ways = {box.name: [one.name for one in box.below] for box in boxes(root)}
    assert ways["scopes"] == ["Relu + Mul", "MatMul y"]
    assert ways["Relu + Mul"] == ["relu + mul"]


def test_a_loop_shows_the_times_of_its_iterations(tmp_path: Path) -> None:
    path = tmp_path / "loop.pgraph"
    path.write_text(
        "opset 21\ngraph g(x: f32[5, 8, 8], w: f32[8, 8]) -> (h) {\n"
        "  h = loop row in x with h = w {\n    h = Tanh(h @ row)\n  }\n}\n"
    )
    root = view(path).times()
    kernels = [box for box in boxes(root) if box.level == "kernel"]
    assert [box.calls for box in kernels if box.name == "the loop itself"] == [1]
    assert [box.calls for box in kernels if "tanh" in box.name] == [5]
    ways = {box.name: [one.name for one in box.below] for box in boxes(root)}
    assert ways["loop"] == ["h (body)", "Scan h"] and ways["Scan h"] == ["loop h"]
    assert ways["MatMul + Tanh"] == ["mat_mul + tanh"]


HOSTED = """
opset 21
graph g(x: f32[3, 4]) -> (y, z) {
  a = Relu(x) * x
  i = Cast(a, to=8)
  s = Cast(i, to=f32)
  y = ReduceSum(s + 1.0, keepdims=0)
  u = NonZero(s)
  z = Exp(Cast(u, to=f32))
}
"""


@pytest.fixture(scope="module")
def hosted(tmp_path_factory: pytest.TempPathFactory) -> Document:
    path = tmp_path_factory.mktemp("models") / "hosted.pgraph"
    path.write_text(HOSTED)
    return view(path)


def test_host_steps_are_between_compiled_segments(hosted: Document) -> None:
    lowered = hosted.part("lowered")
    steps = lowered["steps"]
    assert [bool(step["why"]) for step in steps] == [False, True, True, False, False]
    assert steps[1]["why"] == "'i' is string[3, 4]"
    for before, after in pairwise(steps):
        gives = {one["name"]: one["type"] for one in before["gives"]}
        taken = {one["name"]: one["type"] for one in after["takes"]}
        assert taken and taken.keys() <= gives.keys()
        # NonZero computes positions up to a bound; the host cuts them to their number.
        cut = {"u": "i64[2, 12]"} if "u" in taken else taken
        assert cut.items() <= gives.items()
    labels = [lowered["calls"][step["calls"][0]]["label"] for step in steps if step["why"]]
    assert labels == ["Cast in Python", "Cast in Python"]


def test_steps_are_one_graph_at_each_level(hosted: Document) -> None:
    """Every step is reachable from the input, and every kernel is linked with the model."""
    lowered = hosted.part("lowered")
    graphs = {"onnx": hosted.part("model")["graph"], **lowered["graphs"]}
    for above, level in pairwise(LEVELS):
        nodes = graphs[level]
        assert [node["id"] for node in nodes] == list(range(len(nodes)))
        (first, *others) = [node for node in nodes if node["kind"] == "input"]
        assert first["name"] == "x" and not first["inputs"]
        assert all(one["inputs"][0]["node"] is not None for one in others)
        for node in nodes:
            assert all(0 <= one < len(graphs[above]) for one in node["sources"])
            assert all((one["node"] or 0) < node["id"] for one in node["inputs"])
    assert {node["scope"] for node in graphs["structured"]} == {"", "step 1", "step 4", "step 5"}
    kernels = {one["name"] for one in lowered["kernels"]}
    for call in lowered["calls"]:
        kinds = {graphs["onnx"][number]["kind"] for number in call["onnx"]}
        assert call["kernel"] in kernels or kinds <= {"Cast"}
    assert [call["step"] for call in lowered["calls"]] == list(range(len(lowered["calls"])))
    assert hosted.times().microseconds == rounded_sum(call["time"] for call in lowered["calls"])
    memories = [one["title"] for one in lowered["memories"]]
    assert memories == ["step 1", "step 4", "step 5"]
    assert {row["step"] for row in hosted.part("passes")["passes"]} == {1, 4, 5}


def test_host_steps_require_known_input_sizes(tmp_path: Path) -> None:
    path = tmp_path / "open.pgraph"
    path.write_text("opset 21\ngraph g(x: f32[N]) -> (y) {\n  y = NonZero(x)\n}\n")
    viewed = popgraph.view(path).document
    assert "input 'x' is f32[N]" in viewed.part("lowered")["error"]["what"]
