"""Tests links between kernels and the lines of a Python program that call the Builder."""

from __future__ import annotations

from inspect import getsource
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import popgraph
from popgraph.backends.c.cache.program_cache import SWITCH
from popgraph.backends.c.cache.program_key import program_key
from popgraph.backends.c.print.module import print_kernels
from popgraph.compiler import for_this_machine, load, lower
from popgraph.dialects.levels import ONNX
from popgraph.measure.profile import report
from popgraph.passes.options import Options
from popgraph.passes.pipeline import planned

HERE = Path(__file__)


def built() -> popgraph.Builder:
    builder = popgraph.Builder()
    x = builder.addInputTensor("FLOAT", [4, 8])
    w = builder.addInitializedInputTensor(np.ones((8, 8), np.float32), "w")
    y = builder.aiOnnx.matmul([x, w])
    y = builder.aiOnnx.tanh([y])
    y = builder.aiGraphcore.gelu([y])
    builder.addOutputTensor(y)
    return builder


def line_of(text: str) -> int:
    lines = HERE.read_text().splitlines()
    return 1 + next(at for at, line in enumerate(lines) if text in line and "line_of" not in line)


def test_nodes_have_source_lines() -> None:
    document = popgraph.view(built()).document
    model, lowered = document.part("model"), document.part("lowered")
    places = {node["kind"]: (node["file"], node["line"]) for node in model["graph"]}
    assert places["MatMul"] == (HERE.name, line_of("aiOnnx.matmul([x, w])"))
    assert places["Tanh"] == (HERE.name, line_of("aiOnnx.tanh([y])"))
    assert places["ai.graphcore::Gelu"] == (HERE.name, line_of("aiGraphcore.gelu([y])"))
    assert getsource(built) in model["sources"][HERE.name]
    computed = {number for call in lowered["calls"] for number in call["onnx"]}
    assert {node["id"] for node in model["graph"] if node["line"]} == computed


def test_source_lines_change_neither_models_nor_cache_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same calls on other lines build the same model, kernels and program."""
    monkeypatch.setenv(SWITCH, "1")
    first, second = built(), built_elsewhere()
    assert first.getModelProto() == second.getModelProto()
    assert str(first.getModelProto()).count(HERE.name) == 0
    options = for_this_machine(Options())
    passes = [step for step, _ in planned(options, ONNX)]
    texts, keys = [], []
    for builder in (first, second):
        module, compilation = load(builder)
        keys.append(program_key(module, passes))
        lower(module, compilation, options)
        texts.append([kernel.text for kernel in print_kernels(module)])
    assert texts[0] == texts[1] and keys[0] == keys[1] is not None


def built_elsewhere() -> popgraph.Builder:
    """The same calls by a program in another file, 50 lines further down."""
    text = "\n" * 50 + getsource(built)
    names: dict[str, Any] = {"popgraph": popgraph, "np": np, "__name__": "elsewhere"}
    exec(compile("from __future__ import annotations\n" + text, "<elsewhere>", "exec"), names)
    made = names["built"]()
    assert isinstance(made, popgraph.Builder)
    return made


def test_a_program_without_a_source_file_has_line_numbers() -> None:
    model = popgraph.view(built_elsewhere()).document.part("model")
    lines = [node["line"] for node in model["graph"] if node["line"]]
    assert {node["file"] for node in model["graph"] if node["line"]} == {"<elsewhere>"}
    assert all(one > 50 for one in lines) and all(a < b for a, b in pairwise(lines))
    assert model["sources"] == {}


def test_only_builders_show_source_files() -> None:
    """Locations in IR text may name any file, so their sources are not shown."""
    module, _ = load(built())
    assert popgraph.view(module).document.part("model")["sources"] == {}


def test_profiles_name_source_lines() -> None:
    module, compilation = load(built())
    calls = report("net", module, compilation, 1, 1).calls
    assert any(f"{HERE.name}:{line_of('aiOnnx.matmul([x, w])')}" in call.source for call in calls)
