"""Tests quantized networks on a Cortex-M4: bytes between layers, integer sums, the benchmark."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto
from xdsl.dialects.builtin import ModuleOp

import popgraph
from popgraph.backends.reference.meaning import assert_same_meaning
from popgraph.compiler import load, lower
from popgraph.dialects import tile
from popgraph.dialects.element_types import element_bytes
from popgraph.dialects.tile.program.lifetimes import arena_bytes
from popgraph.dialects.tile.program.ops import find_program
from popgraph.passes.base import Compilation
from popgraph.passes.options import Options
from popgraph.support.machine import EMBEDDED

FOLDER = Path(__file__).parent.parent / "benchmarks"
sys.path.append(str(FOLDER))
SMALL = {
    "ds_cnn": {"width": 8, "blocks": 1, "times": 16},
    "resnet8": {"width": 4, "size": 8},
    "autoencoder": {"features": 24, "width": 16, "layers": 1},
}
OPTIONS = Options(machine=EMBEDDED["armv7e-m"], measured=())


@cache
def network(name: str, kind: str) -> ModelProto:
    """A small network of the benchmark."""
    from embedded import network as made

    return made(name, kind, **SMALL[name])


def lowered(name: str, kind: str, level: str) -> tuple[ModuleOp, Compilation]:
    module, compilation = load(network(name, kind))
    return lower(module, compilation, OPTIONS, level=level), compilation


@pytest.mark.parametrize("name", SMALL)
def test_a_quantized_network_has_bytes_between_layers(name: str) -> None:
    """Every contraction reads words of bytes or bytes, and writes bytes, except the last one."""
    module, _ = lowered(name, "int8", "structured")
    found = [op for op in module.walk() if isinstance(op, tile.ReduceOp) and op.contracts]
    assert len(found) > 3
    for op in found:
        assert op.words is not None or {element_bytes(one.type) for one in op.inputs} == {1}
        assert op.sum_type == op.body.block.args[-1].type and "i32" in str(op.sum_type)
    assert [element_bytes(op.results[0].type) for op in found] == [1] * (len(found) - 1) + [4]


@pytest.mark.parametrize("name", SMALL)
def test_integers_take_a_quarter_of_the_memory(name: str) -> None:
    sizes = []
    for kind in ("f32", "int8"):
        module, _ = lowered(name, kind, "program")
        sizes.append(arena_bytes(find_program(module, "main")))
    assert sizes[1] <= 0.3 * sizes[0] + 256  # Every tensor is aligned to 64 bytes.


@pytest.mark.parametrize("name", SMALL)
def test_integers_have_the_meaning_of_the_model(name: str) -> None:
    module, compilation = lowered(name, "int8", "graphcore")
    loops = lower(module.clone(), compilation, OPTIONS, level="loops")
    assert_same_meaning(module, loops, compilation.weights, tolerance=1e-6)


def test_the_portable_form_computes_the_same() -> None:
    """Without SMLAD, on this machine, each word is multiplied byte by byte."""
    from embedded import inputs_of

    model = network("ds_cnn", "int8")
    given = inputs_of(model, np.random.default_rng(1))
    (found,) = popgraph.compile(model, options=OPTIONS)(**given).values()
    (wanted,) = popgraph.compile(model)(**given).values()
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_the_benchmark_measures_a_network(tmp_path: Path) -> None:
    """A Cortex-M4 in QEMU computes the same; an empty model has no code, memory or instructions."""
    import embedded

    if why := embedded.obstacle():
        pytest.skip(why)
    path = tmp_path / "ds_cnn.onnx"
    onnx.save(network("ds_cnn", "int8"), path)
    found = embedded.figures(lambda *given: embedded.ours("speed", *given), path, "-O2")
    wanted = embedded.expected(path)
    np.testing.assert_allclose(found.result, wanted, rtol=1e-6)
    products = 8 * 8 * 5 * (40 + 9 + 8) + 8 * 12
    assert products < found.instructions < 6 * products
    assert 0 < found.code < 10_000 and 0 < found.constants < 10_000 and 0 < found.ram < 10_000
