"""Tests the properties of modules: each can fail, and passes that lose one are found."""

from __future__ import annotations

from pathlib import Path

import pytest
from xdsl.dialects.builtin import ModuleOp

from popgraph.builder.pgraph import parse
from popgraph.compiler import lower
from popgraph.dialects.program import graphs_of
from popgraph.dialects.tile.cut import NAME, CutAttr, Part
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.graphcore.cse import EliminateCommonSubexpressions
from popgraph.passes.graphcore.expand import Expand
from popgraph.passes.order import check_promises
from popgraph.passes.pipeline import PASSES, check_needs
from popgraph.passes.properties import (
    BOUND,
    CHECKED,
    DENSE,
    ENCLOSED,
    EXPANDED,
    INLINED,
    LAUNCHED,
    ONE_GRAPH,
    PROPERTIES,
    SPREAD,
    UNCUT,
    UNHANDED,
    UNREPORTED,
    UNSCHEDULED,
    WORDLESS,
    Property,
)
from popgraph.passes.structured.view_words import ViewWords
from popgraph.support.errors import PassError
from tests.passes import case_text
from tests.passes.mutants import Mutant, with_a_composite

CASES = Path(__file__).parent / "cases"

GIVEN = {
    INLINED: "normalize/onnx-functions",
    ONE_GRAPH: "onnx-to-graphcore/gemm",
    EXPANDED: "expand/quantize",
    SPREAD: "spread-replicas/all-reduce-of-replicas",
    CHECKED: "check-indices/bounds",
    BOUND: "bind-sizes/map-and-sum-of-rows",
    LAUNCHED: "structured-to-loops/chunks-of-a-long-sum",
}
LOST = {
    EXPANDED: "round-stochastically/products-and-selections-of-float16",
    UNREPORTED: "check-indices/bounds",
    WORDLESS: "contract-in-words/bytes-in-pairs",
    DENSE: "assign-halos/max-pool-after-relu",
    UNSCHEDULED: "schedule-contractions/decided-schedule",
    UNCUT: "parallelize-loops/panels-larger-than-l2",
    UNHANDED: "hand-numbers/bounds-of-outer-loops",
}
"""Cases of passes that give, or lose, each property."""

GRADIENT = """opset 21
opset ai.onnx.preview.training 1
graph g(x: f32[2]) -> d {
    y = x * x
    d = ai.onnx.preview.training.Gradient(x, xs=["x"], y="y")
}
"""


def around(case: str) -> tuple[Pass, ModuleOp, ModuleOp]:
    """A pass, and the module of a case before and after it."""
    path = CASES / f"{case}.mlir"
    source, _, _ = path.read_text().partition("// -----\n")
    compilation = Compilation()
    before = case_text.parse(compilation, source)
    (step,) = case_text.pipeline(source, path.parent.name).passes
    assert isinstance(step, Pass)
    after = before.clone()
    step.run(compilation, after)
    return step, before, after


@pytest.mark.parametrize("given", GIVEN, ids=str)
def test_properties_are_given(given: Property) -> None:
    step, before, after = around(GIVEN[given])
    assert given in step.GIVES
    assert given.breach(before)
    assert given.breach(after) is None


@pytest.mark.parametrize("lost", LOST, ids=str)
def test_properties_are_lost(lost: Property) -> None:
    step, before, after = around(LOST[lost])
    assert lost in step.LOSES
    assert lost.breach(before) is None
    assert lost.breach(after)


def test_gradients_are_enclosed() -> None:
    module, compilation = parse(GRADIENT).module, Compilation()
    assert ENCLOSED.breach(module) == "onnx_training.Gradient.v1, node 'd'"
    with pytest.raises(PassError, match="run evaluate-constants or normalize first"):
        check_needs(PASSES["share-nodes"](), module)
    PASSES["evaluate-constants"]().run(compilation, module)
    assert ENCLOSED.breach(module) is None


def test_each_property_can_fail() -> None:
    assert {*GIVEN, *LOST, ENCLOSED} == {*PROPERTIES}


def with_a_cut(original: object) -> object:
    """Cuts the loops of a kernel."""

    def wrong(self: object, compilation: Compilation, module: ModuleOp) -> None:
        for graph in graphs_of(module):
            for op in graph.block.ops:
                if op.name == "tile.map":
                    op.attributes[NAME] = CutAttr.of([Part(0, 2, 1)])

    return wrong


@pytest.mark.parametrize(
    ("mutant", "message"),
    [
        (
            Mutant(
                "cse", "", f"{EliminateCommonSubexpressions.__module__}:"
                "EliminateCommonSubexpressions.run", with_a_composite,
            ),
            "cse ends expanded (no composite is left, such as softmax: each operation has a kind "
            "that lowering knows), which is not in its LOSES: graphcore.detach",
        ),
        (
            Mutant("view-words", "", f"{ViewWords.__module__}:ViewWords.run", with_a_cut),
            "view-words ends uncut-loops (no loops are cut into chunks, which refer to the loops "
            "of the final kernels by number), which is not in its LOSES: tile.map, node 'y'",
        ),
    ],
    ids=lambda given: given.pass_name if isinstance(given, Mutant) else "",
)  # fmt: skip
def test_a_pass_that_loses_a_property_silently_is_found(
    mutant: Mutant, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The meaning stays the same, so only the property shows the bug."""
    monkeypatch.setenv("POPGRAPH_CHECK", "1")
    module = parse("graph g(x: f32[2, 3]) -> y { y = Relu(x) }").module
    with mutant.planted(), pytest.raises(AssertionError) as caught:
        lower(module, Compilation(), level="structured")
    assert str(caught.value) == message


def test_a_pass_that_does_not_give_what_it_promises_is_found() -> None:
    step, before, _ = around("expand/quantize")
    with pytest.raises(AssertionError, match=r"expand does not give expanded .*: graphcore.quant"):
        check_promises(step, before, before)
    check_promises(Expand(keep=("quantize",)), before, before)
