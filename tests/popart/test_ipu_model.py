"""Tests sessions on the model of an IPU: memory limits, cycles, tile mappings."""

from __future__ import annotations

import numpy as np
import pytest

import popgraph.popart as popart
from popgraph.compiler import lower
from popgraph.compiler.loading import load
from popgraph.engine.program_code import ProgramCode
from popgraph.ipu.machine import MK2
from popgraph.passes.options import Options
from popgraph.popart.exceptions import OutOfMemoryException


def session(
    rows: int, tiles: int, options: popart.SessionOptions | None = None
) -> tuple[popart.InferenceSession, str, str]:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [rows, 512], "x")
    w = builder.addInitializedInputTensor(np.full((512, 512), 0.5, np.float32), "w")
    y = builder.aiOnnx.matmul([x, w])
    device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 1, "tilesPerIPU": tiles})
    flow = popart.DataFlow(3, [y])
    made = popart.InferenceSession(builder.getModelProto(), flow, device, userOptions=options)
    return made, x, y


PEAKS = {
    "y = Neg(Exp(Neg(x)))": 3,  # x, the operand and the result of a step
    "a = Neg(x)\n y = Exp(a) + a": 4,
    "a = x * w\n y = a * w": 4,  # the weight is always live
    "y = loop turn in n with y = x { y = Exp(y) * y }": 4,  # x, y, two intermediates
}


@pytest.mark.parametrize(("text", "tensors"), PEAKS.items())
def test_peak_memory(text: str, tensors: int) -> None:
    module, compilation = load(
        f"""
        graph net(x: f32[1024]) -> (y: f32[1024]) {{
            weight w: f32[1024] = normal
            const n: i64[3] = [0, 1, 2]
            {text}
        }}
        """
    )
    lower(module, compilation, level="graphcore")
    found = ProgramCode(module, compilation, Options(), period=1).peak_bytes
    assert round(found / 4096) == tensors


def test_a_model_that_does_not_fit_is_not_compiled() -> None:
    made, _, _ = session(rows=4096, tiles=4)
    with pytest.raises(
        OutOfMemoryException, match=r"Out of memory on tile \d+: \d+ bytes"
    ) as caught:
        made.prepareDevice()
    assert f"tiles only have {MK2.tile_bytes} bytes of memory" in str(caught.value)
    assert "tilesPerIPU" in caught.value.hint and "of 4 tiles overflow" in caught.value.hint
    assert not caught.value.error.isSuccessful()
    with pytest.raises(popart.popart_exception, match="Need to set the 'debug"):
        caught.value.getSummaryReport()


def test_the_error_has_a_summary_on_request() -> None:
    options = popart.SessionOptions()
    options.engineOptions = {"debug.allowOutOfMemory": "true"}
    made, _, _ = session(4096, 4, options)
    with pytest.raises(OutOfMemoryException) as caught:
        made.prepareDevice()
    assert "OUT OF MEMORY: tile " in caught.value.getSummaryReport()


def test_the_same_model_fits_onto_more_tiles_and_onto_a_cpu() -> None:
    made, x, y = session(rows=64, tiles=16)
    made.prepareDevice()
    anchors = made.initAnchorArrays()
    made.run(popart.PyStepIO({x: np.ones((3, 64, 512), np.float32)}, anchors))
    np.testing.assert_allclose(anchors[y], np.full((3, 64, 512), 256.0))


def test_cycles_are_those_of_the_model_for_every_micro_batch() -> None:
    options = popart.SessionOptions()
    options.instrumentWithHardwareCycleCounter = True
    made, x, _ = session(64, 16, options)
    made.prepareDevice()
    made.run(popart.PyStepIO({x: np.ones((3, 64, 512), np.float32)}, made.initAnchorArrays()))
    cycles = made.getCycleCount()
    assert cycles > 0 and cycles % 3 == 0
    with pytest.raises(popart.popart_runtime_error, match="Invalid id for cycle counter, 'x'"):
        made.getCycleCount("x")
    fewer, x, _ = session(64, 4, options)
    fewer.prepareDevice()
    fewer.run(popart.PyStepIO({x: np.ones((3, 64, 512), np.float32)}, fewer.initAnchorArrays()))
    assert fewer.getCycleCount() > 2 * cycles


def test_a_device_has_the_tiles_and_the_generation_that_it_was_asked_for() -> None:
    create = popart.DeviceManager().createIpuModelDevice
    device = create({"numIPUs": 2, "tilesPerIPU": 1216, "ipuVersion": "ipu1"})
    ipu = device.ipu
    assert ipu is not None
    assert (ipu.name, ipu.count, ipu.tiles, ipu.tile_bytes) == ("ipu1", 2, 1216, 256 * 1024)
    assert popart.DeviceManager().createCpuDevice().ipu is None
