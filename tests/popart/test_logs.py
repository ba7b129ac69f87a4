"""Tests logging: modules, levels, formats, destinations."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import popgraph.popart as popart
from popgraph.support.logs import Pattern

PROGRAM = """
import numpy as np
import popgraph.popart as popart

builder = popart.Builder()
x = builder.addInputTensor("FLOAT", [2])
y = builder.aiOnnx.abs([x])
device = popart.DeviceManager().createCpuDevice(backend="reference")
options = popart.SessionOptions()
options.convolutionOptions["availableMemoryProportion"] = "0.2"
flow = popart.DataFlow(1, [y])
session = popart.InferenceSession(builder.getModelProto(), flow, device, userOptions=options)
session.prepareDevice()
session.run(popart.PyStepIO({x: np.ones(2, np.float32)}, session.initAnchorArrays()), "first")
"""


def logged(environment: dict[str, str]) -> tuple[str, str]:
    """The stdout and stderr of the program."""
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    return ran.stdout, ran.stderr


def test_only_warnings_are_logged_by_default() -> None:
    assert logged({}) == ("", "")
    assert logged({"POPART_LOG_LEVEL": "loud"}) == ("", "")


def test_environment_variables_have_old_names() -> None:
    out, err = logged({"POPONNX_LOG_LEVEL": "INFO", "POPONNX_LOG_DEST": "stdout"})
    assert "Graph compiled" in out
    assert err == ""
    assert logged({"POPONNX_LOG_LEVEL": "INFO", "POPART_LOG_LEVEL": "OFF"}) == ("", "")


def test_a_level_is_for_all_modules() -> None:
    out, err = logged({"POPART_LOG_LEVEL": "TRACE", "POPART_LOG_DEST": "stdout"})
    assert err == ""
    stamp = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z"
    for line in out.splitlines():
        assert re.match(rf"{stamp} popart:\w+ \d+\.\d+ [TDIWEC]: ", line)
    for words in (
        "Adding ai.onnx.Abs:6 to builder opset:10",
        "Starting compilation for cpu",
        "Compilation took",
        "Graph compiled",
        "Engine loaded",
        "onnx-to-graphcore took",
        "Session::run(first)",
        "convolutionOptions['availableMemoryProportion'] = '0.2' has no effect",
    ):
        assert words in out


def test_levels_and_format_of_a_log_file(tmp_path: Path) -> None:
    config, log = tmp_path / "levels.json", tmp_path / "popart.log"
    config.write_text('{"all": "OFF", "popart:devicex": "INFO"}')
    environment = {
        "POPART_LOG_CONFIG": str(config),
        "POPART_LOG_DEST": str(log),
        "POPART_LOG_FORMAT": "%l 100%% [%n] %v",
    }
    assert logged(environment) == ("", "")
    lines = log.read_text().splitlines()
    assert lines[0].startswith("info 100% [popart:devicex] Starting compilation")
    assert len(lines) == 2


def test_a_logger_of_a_module(quiet: None, capsys: pytest.CaptureFixture[str]) -> None:
    log = popart.getLogger("session")
    log.info("unheard")
    log.setLevel("INFO")
    log.info("100% heard")
    popart.getLogger("ir").info("unheard")
    popart.getLogger().setLevel("OFF")
    log.critical("unheard")
    written = capsys.readouterr().err.splitlines()
    assert [line.split(": ", 1)[1] for line in written] == ["100% heard"]


def test_a_format_keeps_unknown_fields() -> None:
    record = logging.LogRecord("popart.ir", logging.WARNING, "", 0, "%s", ("text",), None)
    record.created, record.msecs = 0.0, 12.0
    assert Pattern("%^%Y %H:%M:%S.%e %L%$ %v").format(record) == "1970 00:00:00.012 W text"


def test_user_texts_are_not_format_strings(quiet: None) -> None:
    popart.getLogger("session").setLevel("TRACE")
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2])
    flow = popart.DataFlow(1, [y := builder.aiOnnx.abs([x])])
    session = popart.InferenceSession(builder.getModelProto(), flow)
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({x: -np.ones(2, np.float32)}, anchors), "100%s")
    assert anchors[y].tolist() == [1, 1]
