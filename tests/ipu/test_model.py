"""Tests the model of IPUs: growth of cycles, memory of tiles, names of devices."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from popgraph.builder.pgraph import parse
from popgraph.ipu.machine import ESTIMATES, IPUS, MK1, MK2, Ipu, device_named
from popgraph.ipu.model import Call, IpuModel
from popgraph.ipu.report import content, rate, text
from popgraph.passes.base import Compilation
from popgraph.passes.options import Options


@cache
def model(source: str, ipu: Ipu) -> IpuModel:
    document = parse("opset 21\n" + source)
    return IpuModel.of(document.module, Compilation(document.weights), Options(), ipu)


@cache
def product(rows: int, ipu: Ipu, kind: str = "f32", terms: int = 512) -> IpuModel:
    return model(
        f"graph product(a: {kind}[{rows}, {terms}], b: {kind}[{terms}, 512]) -> (y) {{\n"
        "    y = a @ b\n}",
        ipu,
    )


def test_the_machines_have_the_peaks_that_are_published() -> None:
    assert MK1.peak_flops["f16"] == pytest.approx(124.5e12, rel=0.001)
    assert MK1.peak_flops["f32"] == pytest.approx(31.1e12, rel=0.002)
    assert MK2.peak_flops["f16"] == pytest.approx(250e12, rel=0.002)
    assert MK2.peak_flops["f32"] == pytest.approx(62.5e12, rel=0.002)
    assert MK1.tiles * MK1.tile_bytes == 304 << 20
    assert MK2.tiles * MK2.tile_bytes == 897 << 20
    assert set(ESTIMATES) <= set(vars(MK1))


def test_devices_have_names() -> None:
    assert device_named("ipu") == MK2
    assert device_named("ipu1:4") == MK1.of(4)
    assert device_named("ipu:2:64") == MK2.of(2, 64)
    for wrong in ("cpu", "ipu:", "ipu:0", "ipu:1:2:3", "ipu:x"):
        with pytest.raises(ValueError, match="device"):
            device_named(wrong)


def test_cycles_grow_with_work_and_shrink_with_tiles() -> None:
    cycles = [product(rows, MK2.of(tiles=64)).cycles for rows in (128, 256, 512, 1024)]
    assert cycles == sorted(cycles) and cycles[-1] > 4 * cycles[0]
    by_tiles = [product(512, MK2.of(tiles=tiles)).cycles for tiles in (4, 16, 64, 256)]
    assert by_tiles == sorted(by_tiles, reverse=True)
    assert by_tiles[0] > 3 * by_tiles[1]


def test_halves_are_faster_and_smaller_than_single_precision() -> None:
    half, single = (product(1024, MK2, kind) for kind in ("f16", "f32"))
    assert half.cycles < single.cycles
    assert half.memory.by_tile.max() < single.memory.by_tile.max()


def test_no_matmul_is_faster_than_the_peak() -> None:
    for ipu in IPUS.values():
        for kind in ("f16", "f32"):
            assert rate(product(1024, ipu, kind)) < ipu.peak_flops[kind]


def test_a_step_is_compute_exchange_and_sync() -> None:
    found = product(512, MK2.of(tiles=64))
    split = found.split()
    assert sum(split.values()) == found.cycles == sum(step.cycles for step in found.steps)
    assert min(split.values()) > 0
    assert found.flops == 2 * 512**3
    assert max(step.exchanged for step in found.steps) > 0


def test_an_element_wise_chain_exchanges_nothing() -> None:
    chain = model("graph chain(x: f32[64, 64]) -> (y) {\n    y = Exp(Relu(x) + x)\n}", MK2)
    assert chain.split()["exchange"] == 0
    assert chain.split()["compute"] > 0


def test_two_ipus_exchange_over_links() -> None:
    one, two = (product(2048, MK2.of(count, 64), terms=2048) for count in (1, 2))
    assert sum(step.linked for step in one.steps) == 0
    assert sum(step.linked for step in two.steps) > 0
    assert two.cycles < one.cycles


def test_memory_is_weights_and_live_values() -> None:
    found = model(
        "graph net(x: f32[64, 256]) -> (y) {\n    weight w: f32[256, 128] = normal\n"
        "    y = Relu(x @ w)\n}",
        MK2.of(tiles=16),
    ).memory
    assert found.by_category["constants"].sum() == 256 * 128 * 4
    largest = max(found.moments, key=lambda moment: moment.total)
    assert largest.total >= (64 * 256 + 64 * 128) * 4
    assert found.peak.max() >= largest.largest
    assert (found.by_tile == found.persistent + found.peak).all()
    assert not found.overflowing


def test_tiles_overflow_when_there_are_too_few() -> None:
    few, many = (product(2048, MK2.of(tiles=tiles), terms=2048) for tiles in (8, 512))
    assert few.memory.fullest in few.memory.overflowing
    assert "OUT OF MEMORY: tile " in text(few, 3)
    assert not many.memory.overflowing
    assert "OUT OF MEMORY" not in text(many, 3)


def test_memory_of_dead_values_is_reused() -> None:
    chain = "".join(f"    h{n + 1} = Exp(Relu(h{n} @ w))\n" for n in range(6))
    head = "graph deep(h0: f32[128, 128]) -> (h6) {\n    weight w: f32[128, 128] = normal\n"
    moments = model(head + chain + "}", MK2.of(tiles=16)).memory.moments
    assert max(one.total for one in moments[-4:]) < 1.5 * max(one.total for one in moments[:6])


def test_table_lookups_exchange_their_rows() -> None:
    found = model(
        "graph words(i: i64[4, 16]) -> (y) {\n    weight w: f32[100, 32] = normal\n    y = w[i]\n}",
        MK2.of(tiles=8),
    )
    assert found.split()["compute"] > 0
    assert sum(step.exchanged for step in found.steps) >= 4 * 16 * 32 * 4


def test_tensors_add_up_to_the_live_bytes_of_every_moment() -> None:
    memory = product(512, MK2.of(tiles=64)).memory
    meanwhile = [held for held in memory.tensors if not held.category]
    for number, moment in enumerate(memory.moments):
        alive = [held.on(64) for held in meanwhile if held.first <= number <= held.last]
        assert sum(alive, moment.temporary).sum() == moment.total


def test_cycles_of_loops_multiply_by_the_trip_count() -> None:
    def loop_of(turns: int) -> IpuModel:
        return model(
            f"graph turning(x: f32[32, 32]) -> (y) {{\n    y = loop i in 0..{turns} with y = x "
            "{\n        y = Tanh(y @ x)\n    }\n}",
            MK2.of(tiles=8),
        )

    few, many = loop_of(70), loop_of(140)
    (loop,) = [part for part in few.parts if isinstance(part, Call)]
    assert loop.turns == 70
    assert many.cycles == pytest.approx(2 * few.cycles, rel=0.1)


def test_the_report_is_plain_data() -> None:
    found = content(product(512, MK2.of(tiles=64)))
    assert found["machine"]["workers"] == 6
    assert found["cycles"]["total"] == sum(step["cycles"] for step in found["steps"])
    assert len(found["memory"]["byTile"]) == 64
    assert (
        np.max(found["memory"]["byTile"])
        == found["memory"]["byTile"][found["memory"]["fullestTile"]]
    )
