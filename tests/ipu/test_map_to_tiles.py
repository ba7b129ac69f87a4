"""Tests the mapping onto tiles: mappings of fused operations, partitioned contractions, one IPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pkgutil import resolve_name
from typing import Any, TypeVar

import numpy as np
import pytest

from popgraph.builder.pgraph import Document, parse
from popgraph.compiler.lowering import lower
from popgraph.dialects.program import graphs_of
from popgraph.dialects.tile import MapOp, MappingAttr, ReduceOp, is_contraction
from popgraph.ipu.machine import MK1, MK2, Ipu
from popgraph.ipu.map_to_tiles import on_ipus
from popgraph.ipu.mapping import Boxes, Pieces, counts_by_tile, pieces_of, tile_count
from popgraph.ipu.stages import mapping_of, own_mapping, stages
from popgraph.passes.base import Compilation
from popgraph.passes.options import Options
from popgraph.passes.pipeline import planned
from popgraph.support.shapes import prod
from popgraph.testing import assert_same_meaning

Op = TypeVar("Op", MapOp, ReduceOp)
ROWS = """graph rows(x: f32[256, 512]) -> (y) {{
    weight w: f32[512, 128] = normal
    y = {}
}}"""


class Mapped:
    """A network mapped onto the tiles of an IPU."""

    def __init__(self, text: str, ipu: Ipu) -> None:
        document = parse("opset 21\n" + text)
        self.weights, self.module = document.weights, document.module
        compilation = Compilation(document.weights)
        lower(self.module, compilation, on_ipus(Options(), ipu))

    def ops(self, kind: type[Op]) -> Iterator[Op]:
        return (op for op in graphs_of(self.module)[0].block.ops if isinstance(op, kind))

    def contractions(self) -> Iterator[ReduceOp]:
        return filter(is_contraction, self.ops(ReduceOp))


def test_contractions_are_partitioned_and_weights_are_local() -> None:
    mapped = Mapped(ROWS.format("x @ w"), MK2.of(tiles=64))
    (product,) = mapped.contractions()
    own = own_mapping(product)
    assert 32 < tile_count(own) <= 64
    assert prod(own.parts[:2]) > 1, "rows or columns are partitioned"
    (weights,) = [read for read in stages(product)[0].reads if read.operand == 1]
    partial = stages(product)[0].pieces
    missing = weights.missing(partial, mapping_of(product.operands[1])).sum()
    shared = own.parts[0]
    assert missing == 512 * 128 * (shared - 1), "each weight is on one of the tiles that use it"


def test_elementwise_operations_take_the_mapping_of_their_operand() -> None:
    """Sums of 16 terms are too short to partition, so each tile has a block of the product."""
    text = ROWS.replace("512", "16").format("Exp(Softmax(x @ w, axis=-1))")
    mapped = Mapped(text, MK2.of(tiles=64))
    (product,) = mapped.contractions()
    result = mapping_of(product.outputs[0])
    followers = [op for op in mapped.ops(MapOp) if op.sizes == (256, 128)]
    assert followers
    for op in followers:
        if any(mapping_of(value) == result for value in op.inputs):
            assert own_mapping(op) == result
    sums = [op for op in mapped.ops(ReduceOp) if op is not product]
    assert sums
    for op in sums:
        (stage, _) = stages(op)
        held = mapping_of(op.inputs[0])
        assert not stage.reads[0].missing(stage.pieces, held).any(), "sums begin where they are"


def test_long_sums_are_partitioned() -> None:
    mapped = Mapped(
        "graph long(x: f32[4, 65536]) -> (y) {\n    weight w: f32[65536, 4] = normal\n"
        "    y = x @ w\n}",
        MK2.of(tiles=64),
    )
    (product,) = mapped.contractions()
    assert stages(product)[1].joined > 8


def test_a_small_network_stays_on_one_ipu() -> None:
    small = "graph small(x: f32[2, 4]) -> (y) {\n    y = Relu(x) * x\n}"
    mapped = Mapped(small, MK2.of(count=2, tiles=4))
    for graph in graphs_of(mapped.module):
        for op in graph.block.ops:
            for value in op.results:
                assert counts_by_tile(mapping_of(value), 8)[4:].sum() == 0


def test_custom_passes_run_before_map_to_tiles() -> None:
    asked = Options(passes=("cse after fuse-epilogue", "dce before map-to-tiles"))
    names = [made.name for _, made in planned(on_ipus(asked, MK2))]
    assert names[-4:] == ["fuse-epilogue", "cse", "dce", "map-to-tiles"]
    assert not {"contract-quantized", "contract-in-words", "scale-sums"} & set(names)


NET = """graph net(x: f32[2, 3, 11, 11]) -> (y) {
    weight w: f32[4, 3, 3, 3] = normal
    weight v: f32[100, 3] = normal
    h = Relu(Conv(x, w, pads=[1, 1, 1, 1]))
    y = Softmax(Flatten(MaxPool(h, kernel_shape=[2, 2], strides=[2, 2])) @ v)
}"""


def both(text: str, tiles: int) -> tuple[Mapped, Document]:
    """A network mapped onto tiles, and unmapped; small steps are worth a tile."""
    document = parse("opset 21\n" + text)
    lower(document.module, Compilation(document.weights), Options(), until="fuse-epilogue")
    return Mapped(text, replace(MK2.of(tiles=tiles), least_tile_bytes=8)), document


@pytest.mark.parametrize("tiles", [1, 5, 64])
def test_a_mapped_program_means_the_same(tiles: int) -> None:
    mapped, plain = both(NET, tiles)
    assert_same_meaning(plain.module, mapped.module, plain.weights, tolerance=1e-5)


def test_tiles_are_balanced() -> None:
    """The fullest tile has at most 10 % more elements than the mean."""
    mapped = Mapped(ROWS.format("Gelu(x) @ w"), MK1.of(tiles=32))
    for op in (*mapped.ops(MapOp), *mapped.contractions()):
        counts = counts_by_tile(mapping_of(op.results[0]), 32)
        assert counts.max() <= 1.1 * np.ceil(counts.sum() / 32)


@dataclass(frozen=True)
class Fault:
    """A bug in what tiles hold or receive, which must change the results of a mapped program."""

    bug: str
    target: str
    wrong: Callable[[Any], Any]

    def __str__(self) -> str:
        return self.bug


def last_not_sent(original: Any) -> Any:
    """Boxes of elements read end one element early."""

    def wrong(*arguments: Any) -> Any:
        found = original(*arguments)
        return Boxes(found.low, np.maximum(found.low, found.high - 1))

    return wrong


def one_more_each(original: Any) -> Any:
    """Each block overlaps the next one by one element."""

    def wrong(mapping: MappingAttr) -> Any:
        found = original(mapping)
        limit = np.array(mapping.sizes, np.int64)
        boxes = (Boxes(box.low, np.minimum(box.high + 1, limit)) for box in found.boxes)
        return Pieces(found.tiles, tuple(boxes))

    return wrong


def whole_rows_only(original: Any) -> Any:
    """Drops the partial rows at both ends of an interval."""
    return lambda *arguments: [*original(*arguments)][-1:]


FAULTS = (
    Fault(
        "the last element along a dimension is not sent",
        "popgraph.ipu.stages:region_of",
        last_not_sent,
    ),
    Fault(
        "neighbouring blocks have an element in common",
        "popgraph.ipu.stages:pieces_of",
        one_more_each,
    ),
    Fault(
        "partial rows of a run are on no tile",
        "popgraph.ipu.mapping:interval_boxes",
        whole_rows_only,
    ),
)


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_faults_of_tiles_are_found(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    """A convolution of 11 x 11 images on five tiles exposes each of them."""
    mapped, plain = both(NET, 5)
    assert_same_meaning(plain.module, mapped.module, plain.weights, tolerance=1e-5)
    module, _, name = fault.target.partition(":")
    owner = resolve_name(module)
    pieces_of.cache_clear()
    monkeypatch.setattr(owner, name, fault.wrong(getattr(owner, name)))
    with pytest.raises(AssertionError):
        assert_same_meaning(plain.module, mapped.module, plain.weights, tolerance=1e-5)
    monkeypatch.undo()
    pieces_of.cache_clear()
