"""Tests the proofs of memory accesses: correct programs pass, and planted bugs are found."""

from __future__ import annotations

from collections.abc import Set
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp

import popgraph
from popgraph.cli.models import opened, with_step
from popgraph.compiler import lower
from popgraph.compiler.loading import load, parse_ir
from popgraph.compiler.sizes import specialise
from popgraph.passes.base import Compilation
from popgraph.passes.observer import Observer
from popgraph.passes.options import Options, Training
from popgraph.passes.validation.kernel_accesses import Violation, accesses_of
from popgraph.passes.validation.runs import Runs, united
from popgraph.passes.validation.sites import Setting
from popgraph.passes.validation.validate import EACH, cases_of, validate
from popgraph.support.debug import Settings
from popgraph.support.errors import ValidationError
from popgraph.support.sizes import Size
from popgraph.testing import (
    Constant,
    Network,
    Node,
    build_network,
    controlled,
    networks,
    training_controlled,
    training_networks,
)
from tests.passes.claims import LOSS
from tests.passes.control_mutants import CONTROL_MUTANTS
from tests.passes.mutants import MUTANTS, Mutant
from tests.passes.test_fuzz import RULE, Place, place_of, steps
from tests.passes.test_fuzz import small as small
from tests.sampling import examples

PROVEN = {"plan-memory", "split-kernels"}
"""The passes that a proof follows."""


def numbers(runs: Runs) -> set[int]:
    return {int(one) for one in runs.elements()}


sets = st.sets(st.integers(0, 40), max_size=12)


def runs_of(elements: Set[int]) -> Runs:
    return united(Runs.of(one, one + 1) for one in sorted(elements))


@given(sets, sets, st.integers(-4, 4), st.integers(0, 4))
def test_runs_are_sets(one: set[int], other: set[int], stride: int, times: int) -> None:
    left, right = runs_of(one), runs_of(other)
    assert numbers(left | right) == one | other
    assert numbers(left & right) == one & other
    assert numbers(left - right) == one - other
    assert left.count == len(one)
    expected = {element + stride * at for element in one for at in range(times)}
    assert numbers(left.repeated(stride, times)) == expected
    assert (left == right) == (one == other)


# Kernels by hand

KERNEL = """
func.func @kernel(%chunk: index, %x: memref<8xf32>, %y: memref<8xf32>) {{
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %two = arith.constant 2 : index
  %four = arith.constant 4 : index
  %eight = arith.constant 8 : index
  %value = arith.constant 0.0 : f32
  %local = memref.alloca() : memref<4xf32>
  {body}
  func.return
}}
"""
COPY = """
  scf.for %i = {lower} to {upper} step %one {{
    %v = memref.load {source}[%i] : memref<{size}xf32>
    memref.store %v, {target}[%{index}] : memref<8xf32>
  }}
"""


def kernel(body: str) -> func.FuncOp:
    module = parse_ir(KERNEL.format(body=body), Compilation(), "kernel.mlir")
    found = module.body.block.first_op
    assert isinstance(found, func.FuncOp)
    return found


def copy(
    lower: str = "%zero",
    upper: str = "%eight",
    source: str = "%x",
    target: str = "%y",
    index: str = "i",
    size: int = 8,
) -> str:
    return COPY.format(
        lower=lower, upper=upper, source=source, target=target, index=index, size=size
    )


HALVES = """
  %start = arith.muli %chunk, %four : index
  %end = arith.addi %start, {length} : index
"""
FILL = """
  scf.for %j = %zero to %eight step %one {
    memref.store %value, %y[%j] : memref<8xf32>
  }
"""
ACCUMULATE = """
  scf.for %k = %zero to %four step %one {
    scf.for %i = %zero to %eight step %one {
      %v = memref.load %y[%i] : memref<8xf32>
      %s = arith.addf %v, %v : f32
      memref.store %s, %y[%i] : memref<8xf32>
    }
  }
"""
REVERSED = """
  scf.for %i = %zero to %eight step %one {
    %seven = arith.subi %eight, %one : index
    %at = arith.subi %seven, %i : index
    %v = memref.load %x[%at] : memref<8xf32>
    memref.store %v, %y[%i] : memref<8xf32>
  }
"""
BY_DATA = """
  %v = memref.load %x[%zero] : memref<8xf32>
  %word = arith.fptosi %v : f32 to i64
  %at = arith.index_cast %word : i64 to index
  memref.store %v, %y[%at] : memref<8xf32>
"""
IN_PLACE = frozenset({(0, 1)})


def test_a_copy_reads_and_writes_all() -> None:
    found = accesses_of(kernel(copy()), Setting(1))
    whole = Runs.of(0, 8)
    assert (found.reads, found.writes, found.assumed) == ({0: whole}, {1: whole}, set())
    accesses_of(kernel(copy()), Setting(1, shared=IN_PLACE))
    halves = HALVES.format(length="%four") + copy("%start", "%end")
    assert accesses_of(kernel(halves), Setting(2)).writes == {1: whole}


def test_literals_may_come_first() -> None:
    found = accesses_of(kernel(FILL + copy()), Setting(1))
    assert found.writes == {1: Runs.of(0, 8)}


def test_accumulators_are_read_once_they_are_written() -> None:
    found = accesses_of(kernel(FILL + ACCUMULATE), Setting(1))
    assert found.reads == {}
    found = accesses_of(kernel(ACCUMULATE), Setting(1))
    assert found.reads == {1: Runs.of(0, 8)}


ROW_BY_DATA = """
  scf.for %i = %zero to %two step %one {
    %row = arith.muli %i, %four : index
    memref.store %value, %y[%row] : memref<8xf32>
    %v = memref.load %x[%row] : memref<8xf32>
    %word = arith.fptosi %v : f32 to i64
    %at = arith.index_cast %word : i64 to index
    %in_row = arith.addi %row, %at : index
    memref.store %v, %y[%in_row] : memref<8xf32>
    %w = memref.load %y[%in_row] : memref<8xf32>
    memref.store %w, %local[%zero] : memref<4xf32>
  }
"""


def test_elements_that_data_choose_are_assumed_to_be_written() -> None:
    """A heap in each row has such indices."""
    found = accesses_of(kernel(ROW_BY_DATA), Setting(1))
    assert found.assumed == {"indices", "writes"}
    assert (1 in found.reads, found.may_write) == (False, {1: Runs.of(0, 8)})


def test_indices_that_are_data_are_assumed() -> None:
    found = accesses_of(kernel(FILL + BY_DATA), Setting(1))
    assert found.assumed == {"indices"}
    assert (found.writes, found.may_write) == ({1: Runs.of(0, 8)},) * 2
    assert accesses_of(kernel(BY_DATA), Setting(1)).writes == {}


@pytest.mark.parametrize(
    ("body", "setting", "mistake", "argument", "element"),
    [
        (copy(source="%local", upper="%four", size=4), Setting(1), "read before", -1, 0),
        (copy() + copy("%four", "%eight"), Setting(1), "written twice", 1, 4),
        (copy(index="zero"), Setting(1), "written twice", 1, 0),
        (copy() + FILL, Setting(1), "filled with a literal after", 1, 0),
        (copy(source="%local", size=4), Setting(1), "read outside the 4", -1, 4),
        (copy(), Setting(2), "written by two chunks", 1, 0),
        (
            HALVES.format(length="%four")
            + "%longer = arith.addi %end, %one : index\n"
            + "%last = arith.minsi %longer, %eight : index\n"
            + copy("%start", "%last"),
            Setting(2),
            "written by two chunks",
            1,
            4,
        ),
        (REVERSED, Setting(1, shared=IN_PLACE), "overwritten by a result before", 0, 0),
        (
            HALVES.format(length="%four")
            + "scf.for %i = %start to %end step %one {\n"
            + "  %n = arith.addi %i, %four : index\n  %at = arith.remsi %n, %eight : index\n"
            + "  %v = memref.load %x[%at] : memref<8xf32>\n"
            + "  memref.store %v, %y[%i] : memref<8xf32>\n}\n",
            Setting(2, shared=IN_PLACE),
            "overwritten by a result",
            0,
            0,
        ),
    ],
)
def test_mistakes_of_kernels(
    body: str, setting: Setting, mistake: str, argument: int, element: int
) -> None:
    with pytest.raises(Violation, match=mistake) as raised:
        accesses_of(kernel(body), setting)
    assert (raised.value.argument, raised.value.element) == (argument, element)


# Planted bugs

CAUGHT = {
    "the last part of a loop is missing": "read before anything is written|never written",
    "chunks zero the first part of a halo only": "in the halo.* read before anything is written",
    "all iterations compute the first channels": "is written twice|written by two chunks",
    "the halo of a local image is not cleared": "local array is read before anything is written",
    "a split of a line buffer is not refilled": "local array is read before anything is written",
    "line buffers are not cleared after the image": "local array is read before",
    "the last panel is one lane short": "never written|read before anything is written",
    "totals with K outermost are not initialized": "read before anything is written",
    "the last blocks are left out": "never written|read before anything is written",
    "all blocks begin at the first row": "is written twice|read before anything is written",
    "an index is twice its first part": "outside the .* elements",
    "the last vector is left out": "read before anything is written",
    "the last iteration is left out": "read before anything is written|never written",
    "the remainder begins one element late": "read before anything is written|never written",
    "memory is free one launch early": "shares memory|its memory holds",
    "operands of a concatenation begin one element early": "shares memory|its memory holds",
    "memory is free after the first reader": "shares memory|its memory holds",
    "a variable changes before all have read it": "its memory holds",
    "the last part of a kernel is not called": "do not write all",
    "what is carried has one buffer": "overlaps other memory",
    "branches share the smaller arena": "of scratch memory|overlaps other memory",
    "the second buffer is free before the loop runs": "overlaps|holds",
}
"""Bugs of accesses and plans, with a pattern of the error that names them."""


READ_AGAIN = Network(
    ((4, 6),),
    (
        *(Node("MatMul", (number, Constant((6, 6), "f64"))) for number in range(4)),
        Node("Add", (1, 4)),
    ),
    "f64",
)
"""The first product is read at once and at the end, after memory is reused in between."""
PLANTED: dict[str, Mutant] = {
    mutant.bug: mutant
    for mutant in (*MUTANTS, *(one.mutant for one in CONTROL_MUTANTS))
    if mutant.bug in CAUGHT
}


PADDED = Network(
    ((2, 4, 6, 6),),
    (
        Node("Exp", (0,)),
        Node("Conv", (1, Constant((4, 4, 3, 3), "f64")), (("pads", [1, 1, 1, 1]),)),
    ),
    "f64",
)
CHOSEN = {
    "memory is free after the first reader": READ_AGAIN,
    "chunks zero the first part of a halo only": PADDED,
    "the last part of a loop is missing": PADDED,
}
"""Networks for bugs that show in few random ones."""


def networks_of(mutant: Mutant) -> SearchStrategy[Network]:
    """Networks in which a bug shows."""
    if mutant.bug in CHOSEN:
        return st.just(CHOSEN[mutant.bug])
    if mutant not in MUTANTS:
        return controlled(dtype="f64")
    if mutant.shows_in is not None:
        return mutant.shows_in(dtype="f64")
    return place_of(mutant).networks(slow=False)


def proven(place: Place, network: Network, mutant: Mutant | None = None) -> None:
    """Lowers a network with a bug planted, and proves the program."""
    compilation = Compilation()
    module = build_network(network, compilation.weights, last=LOSS if place.training else None)
    for step in steps(place, network):
        before = module.clone() if step.name in PROVEN else None
        bad = mutant is not None and step.name == mutant.pass_name
        with mutant.planted() if bad and mutant is not None else nullcontext():
            step.run(compilation, module)
        if before is not None:
            validate(step.name, before, module)


@pytest.mark.budget(8)
@pytest.mark.parametrize("bug", CAUGHT)
def test_planted_bugs_are_found(bug: str) -> None:
    """All bugs of accesses and plans that the fuzz of passes plants, without a run."""
    mutant = PLANTED[bug]
    place = place_of(mutant)

    @seed(3)
    @settings(max_examples=400, phases=[Phase.generate], report_multiple_bugs=False)
    @given(networks_of(mutant))
    def holds(network: Network) -> None:
        if mutant.needs <= {node.op for node in network.nodes}:
            proven(place, replace(network, gradients=()), mutant)

    with pytest.raises(ValidationError, match=CAUGHT[bug]):
        holds()


# Whole compilations


def test_chunks_share_no_loop_of_interleaved_channels() -> None:
    """Each chunk used to compute all three channels."""
    nodes = (Node("Transpose", (0,), (("perm", [0, 2, 3, 1]),)), Node("Exp", (1,)))
    proven(place_of(PLANTED["the last panel is one lane short"]), Network(((1, 3, 5, 8),), nodes))


def compiled(network: Network, training: Training | None = None, threads: int = 3) -> None:
    compilation = Compilation()
    last = None if training is None else LOSS
    module = build_network(network, compilation.weights, last)
    options = Options(threads=threads, training=training)
    lower(module, compilation, options, observer=Observer(Settings(prove=True)))


@given(networks(dtype="f32") | controlled(dtype="f32"))
@settings(max_examples=examples(12))
def test_random_networks_are_proven(network: Network) -> None:
    compiled(network)


@given(training_networks(dtype="f32", max_nodes=4) | training_controlled(dtype="f32"))
@settings(max_examples=examples(6))
def test_random_training_steps_are_proven(network: Network) -> None:
    compiled(network, Training(LOSS, RULE))


@given(place_of(PLANTED["the last panel is one lane short"]).networks())
@settings(max_examples=examples(6))
def test_small_blocks_are_proven(network: Network) -> None:
    """With thresholds so low that line buffers, panels and chunks occur in small networks."""
    proven(place_of(PLANTED["the last panel is one lane short"]), replace(network, gradients=()))


FOLDER = Path(__file__).parent.parent.parent
MODELS = {
    "examples/digits_cnn.pgraph": {"N": 2},
    "examples/mlp.pgraph": {"N": 4},
    "examples/quantized.pgraph": {"N": 2},
    "examples/text_classifier.pgraph": {"N": 2, "length": 5},
    "examples/transformer.pgraph": {"N": 1, "length": 4},
    "examples/vae.pgraph": {"N": 2},
    "popgraph/zoo/bert.pgraph": {"N": 1, "length": 4},
    "popgraph/zoo/gpt.pgraph": {"N": 1, "length": 4},
    "popgraph/zoo/lenet.pgraph": {"N": 1},
    "popgraph/zoo/lstm_tagger.pgraph": {"N": 2, "length": 3},
    "popgraph/zoo/mobilenet_v2.pgraph": {"N": 1, "H": 64, "W": 64},
    "popgraph/zoo/resnet.pgraph": {"N": 1, "H": 64, "W": 64},
    "popgraph/zoo/unet.pgraph": {"N": 1, "H": 32, "W": 32},
    "popgraph/zoo/vit.pgraph": {"N": 1},
}


@pytest.mark.parametrize("model", MODELS)
def test_models_are_proven(model: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The certificates of all models of this tree, of inference with two threads."""
    monkeypatch.setenv("POPGRAPH_CHECK", "2")
    monkeypatch.setenv("POPGRAPH_DUMP", str(tmp_path))
    module, compilation = load(FOLDER / model)
    specialise(module, compilation, MODELS[model])
    lower(module, compilation, Options(threads=2))
    (file,) = tmp_path.glob("*plan-memory.certificate.txt")
    text = file.read_text()
    assert "every index is inside its memory" in text
    assert "- program main: arena" in text


TRAINED = {"examples/mlp.pgraph": 4, "examples/digits_cnn.pgraph": 2}


@pytest.mark.parametrize("model", TRAINED)
def test_training_steps_are_proven(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POPGRAPH_CHECK", "2")
    module, compilation, step = opened(FOLDER / model, [f"N={TRAINED[model]}"], train=True)
    lower(module, compilation, with_step(Options(threads=2), step))


NET = """
graph net(x: f32[N, 8]) -> (y: f32[N, 16]) {
    weight w: f32[8, 16] = ones
    y = Softmax(Relu(x @ w), axis=-1)
}
"""


def test_a_compilation_is_proven_for_each_size(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "net.pgraph"
    file.write_text(NET)
    monkeypatch.setenv("POPGRAPH_CHECK", "2")
    monkeypatch.setenv("POPGRAPH_DUMP", str(tmp_path / "dump"))
    run = popgraph.compile(file, bounds={"N": 8})
    assert run(x=np.ones((3, 8), np.float32))["y"].shape == (3, 16)
    (certificate,) = (tmp_path / "dump").glob("*.certificate.txt")
    text = certificate.read_text()
    assert "Holds for each of N 1..8 (8 cases)." in text
    assert "input x 0..255" in text and "output y 0..511" in text


ODD = """
graph odd(x: f32[3, 17]) -> (y: f32[3, 17]) {
    y = Exp(x)
}
"""


def test_a_planted_bug_ends_a_compilation(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The error names the elements, and the operation with its line."""
    file = tmp_path / "odd.pgraph"
    file.write_text(ODD)
    monkeypatch.setenv("POPGRAPH_CHECK", "2")
    x = np.ones((3, 17), np.float32)
    assert np.allclose(popgraph.compile(file)(x=x)["y"], np.e)
    bug = PLANTED["the remainder begins one element late"]
    with bug.planted(), pytest.raises(ValidationError) as raised:
        popgraph.compile(file)(x=x)
    assert raised.value.what == "element [2, 14] of %y is never written"
    assert "odd.pgraph:3" in raised.value.where


def test_many_sizes_are_proven_at_their_ends() -> None:
    few, many = Size("N", EACH, ()), Size("M", 1000, (), least=2)
    cases, words = cases_of([few])
    assert cases[0] == {0: EACH} and len(cases) == EACH
    assert words == f"each of N 1..{EACH} ({EACH} cases)"
    cases, words = cases_of([few, many])
    ends = [(EACH, 1000), (EACH, 2), (1, 1000), (1, 2)]
    assert cases == [dict(enumerate(numbers)) for numbers in ends]
    assert "in between are not proven" in words
    assert cases_of([]) == ([{}], "")


def test_settings_of_the_check() -> None:
    chosen = {
        value: Settings.from_environment({"POPGRAPH_CHECK": value}) for value in ("1", "2", "3")
    }
    assert chosen == {
        "1": Settings(check=True),
        "2": Settings(prove=True),
        "3": Settings(check=True, prove=True),
    }


def test_other_modules_have_nothing_to_prove() -> None:
    assert validate("cse", ModuleOp([]), ModuleOp([])) is None
