"""Tests Machine and Tuning: presets, detection, and decisions on every machine."""

from __future__ import annotations

import os
import re
from dataclasses import fields
from pathlib import Path

import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.arg_spec import parse_spec

import popgraph
from popgraph.backends.c.build import host
from popgraph.backends.reference.meaning import assert_same_meaning
from popgraph.compiler import load, lower
from popgraph.dialects.tile import is_contraction
from popgraph.passes.base import Compilation
from popgraph.passes.optimizer_spec import SGD, Scalar
from popgraph.passes.options import Options, Training
from popgraph.passes.structured.fusion.fuse_elementwise import FuseElementwise
from popgraph.passes.structured.schedule.access_cost import Reads
from popgraph.passes.structured.schedule.reduction_order import orders
from popgraph.passes.structured.schedule.schedule_contractions import ScheduleContractions
from popgraph.support import machine, tuning
from popgraph.support.errors import BackendError
from popgraph.support.machine import (
    EMBEDDED,
    KINDS,
    MACHINES,
    PRESETS,
    TARGETS,
    Machine,
    unit_of,
)
from popgraph.support.tuning import Target, Tuning
from popgraph.testing import Network, Node, build_network
from popgraph.testing.structured import ContractSpec, Operand

CNN = Network(
    ((1, 3, 10, 10), (8, 3, 3, 3), (8, 8, 3, 3)),
    (
        Node("Conv", (0, 1), (("pads", (1, 1, 1, 1)),)),
        Node("Relu", (3,)),
        Node("Conv", (4, 2), (("pads", (1, 1, 1, 1)),)),
    ),
    "f32",
    (5,),
)
DEPTHWISE = Network(
    ((1, 16, 8, 8), (16, 1, 3, 3), (16, 16, 1, 1)),
    (
        Node("Conv", (0, 1), (("pads", (1, 1, 1, 1)), ("group", 16))),
        Node("Relu", (3,)),
        Node("Conv", (4, 2), (("pads", (0, 0, 0, 0)),)),
    ),
    "f32",
    (5,),
)
VECTORS = ("vector_bytes", "registers", "words", "fuses_multiply_add")
"""Fields about vectors, as opposed to caches and rates."""
STEP = """
opset 21

graph mlp(x: f32[4, 12]) -> (loss: f32) {
    weight w1: f32[12, 32] = he_normal(seed=1)
    weight w2: f32[32, 5] = he_normal(seed=2)

    h = Relu(x @ w1)
    y = h @ w2
    loss = ReduceMean(y * y, keepdims=0)
}
"""
"""A perceptron and its loss."""


@pytest.mark.parametrize("name", MACHINES)
def test_a_network_computes_the_same_on_every_machine(name: str) -> None:
    """Schedules may differ, results must not."""
    compilation = Compilation()
    module = build_network(CNN, compilation.weights)
    options = Options(machine=MACHINES[name])
    before = lower(module.clone(), compilation, options, level="graphcore")
    after = lower(before.clone(), compilation, options, level="structured")
    assert any(is_contraction(op) and op.schedule for op in after.walk())
    assert_same_meaning(before, after, compilation.weights, tolerance=1e-5)


@pytest.mark.parametrize("name", EMBEDDED)
def test_depthwise_convolutions_compute_the_same_on_microcontrollers(name: str) -> None:
    """On a machine without vectors, the window of a depthwise convolution has a single lane."""
    compilation = Compilation()
    options = Options(machine=EMBEDDED[name], tuning=Tuning(least_products=64))
    module = build_network(DEPTHWISE, compilation.weights)
    before = lower(module, compilation, options, level="graphcore")
    after = lower(before.clone(), compilation, options, level="structured")
    widths = [op.schedule.lanes.data for op in after.walk() if is_contraction(op) and op.schedule]
    assert widths == 2 * [EMBEDDED[name].vector_bytes // 4]
    loops = lower(after.clone(), compilation, options, level="loops")
    assert_same_meaning(before, loops, compilation.weights, tolerance=1e-5)


CHOICE = """opset 21
graph choice(x: f32[2, 300], boxes: f64[6, 4], w: f64[4, 4]) -> (best, place, y) {
    (best, place) = TopK(x, [40])
    y = boxes @ w
}
"""


@pytest.mark.parametrize("name", EMBEDDED)
def test_selections_and_f64_compute_the_same_on_microcontrollers(name: str) -> None:
    """A register of four bytes has one lane of f32, and none of f64."""
    module, compilation = load(CHOICE)
    options = Options(machine=EMBEDDED[name], tuning=Tuning(least_products=64))
    before = lower(module, compilation, options, level="graphcore")
    after = lower(before.clone(), compilation, options, level="loops")
    assert_same_meaning(before, after, compilation.weights, tolerance=1e-5)


@pytest.mark.parametrize("name", MACHINES)
def test_a_training_step_computes_the_same_on_every_machine(name: str, tmp_path: Path) -> None:
    (tmp_path / "mlp.pgraph").write_text(STEP)
    module, compilation = popgraph.compiler.load(tmp_path / "mlp.pgraph")
    training = Training("loss", SGD(learning_rate=Scalar(0.1)))
    options = Options(training=training, machine=MACHINES[name], tuning=Tuning(least_products=64))
    before = lower(module, compilation, options, level="graphcore")
    after = lower(before.clone(), compilation, options, level="structured")
    assert_same_meaning(before, after, compilation.weights, tolerance=1e-5)


@pytest.mark.parametrize("source", [machine, tuning])
def test_every_field_has_a_reason(source: object) -> None:
    """Every field has a docstring, and every number of a machine has a unit."""
    text = Path(str(getattr(source, "__file__"))).read_text()  # noqa: B009 (any module)
    wanted = fields(Machine) if source is machine else (*fields(Tuning), *fields(tuning.PerTile))
    for each in wanted:
        assert re.search(rf'^    {each.name}: [^\n]*\n    """', text, re.MULTILINE), each.name
        if source is machine and each.name not in ("name", "source"):
            assert unit_of(each.name), each.name


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_names_its_source(name: str) -> None:
    preset = PRESETS[name]
    assert preset.name == name and preset.source
    assert preset.l1_bytes < preset.l2_bytes < preset.l3_bytes
    assert preset.line_bytes % preset.vector_bytes == 0


@pytest.mark.parametrize("name", TARGETS)
def test_named_targets_differ_in_vectors_only(name: str) -> None:
    """Caches and rates are generic, so programs do not depend on the build machine."""
    target, generic = TARGETS[name], Machine()
    for each in fields(Machine):
        if each.name not in ("name", "source", *VECTORS):
            assert getattr(target, each.name) == getattr(generic, each.name)


@pytest.mark.parametrize("name", ["skylake_server", "rocket_lake", "zen3", "zen4"])
def test_measured_machines_keep_their_figures(name: str) -> None:
    """Figures were measured on these machines, so their programs must not change."""
    for each in fields(Machine):
        if each.name not in ("name", "source", *VECTORS):
            assert getattr(PRESETS[name], each.name) == getattr(Machine(), each.name)


def test_no_processor_has_two_presets() -> None:
    for number, (name, family, models) in enumerate(KINDS):
        assert name in PRESETS
        for _, other, others in KINDS[:number]:
            assert family != other or not set(models) & set(others)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("processor\t: 0\ncpu family\t: 6\nmodel\t\t: 85\nmodel name\t: Xeon\n", "skylake_server"),
        ("processor\t: 0\ncpu family\t: 25\nmodel\t\t: 33\nmodel name\t: Ryzen\n", "zen3"),
        ("processor\t: 0\ncpu family\t: 26\nmodel\t\t: 2\n", "zen5"),
        ("processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n", "neoverse_n1"),
        ("processor\t: 0\ncpu family\t: 6\nmodel\t\t: 3\n", None),
        ("processor\t: 0\n", None),
    ],
)
def test_a_processor_is_recognized_by_family_and_model(text: str, name: str | None) -> None:
    kind = host.kind_of(text)
    found = kind and machine.preset_of(kind[0], kind[1], arm=kind[2])
    assert (found.name if found else None) == name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Intel64 Family 6 Model 85 Stepping 7, GenuineIntel", "skylake_server"),
        ("AMD64 Family 25 Model 33 Stepping 0, AuthenticAMD", "zen3"),
        ("ARMv8 (64-bit) Family 8 Model D4B Revision 1, Qualcomm", None),
        ("", None),
    ],
)
def test_windows_reports_family_and_model(text: str, name: str | None) -> None:
    kind = host.windows_kind(text)
    found = kind and machine.preset_of(kind[0], kind[1], arm=kind[2])
    assert (found.name if found else None) == name


def test_an_unknown_processor_has_the_reported_caches(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Rates are generic, and so are sizes that the system does not report."""
    sizes = {"SC_LEVEL2_CACHE_SIZE": 512 << 10, "SC_LEVEL1_DCACHE_ASSOC": 12, "SC_PAGE_SIZE": -1}
    monkeypatch.setattr(os, "sysconf", lambda name: sizes.get(name, 0))
    level = tmp_path / "index3"
    level.mkdir()
    (level / "level").write_text("3\n")
    (level / "size").write_text("24576K\n")
    found = host.reported(TARGETS["avx2"], tmp_path)
    assert (found.l2_bytes, found.l1_ways_free, found.l3_bytes) == (512 << 10, 10, 12 << 20)
    assert (found.l1_bytes, found.page_bytes) == (32 << 10, 4096)
    assert "no preset" in found.source


def test_a_preset_can_be_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    """A preset has the vector width of the machine, or of the target if one is set."""
    monkeypatch.setenv(host.VARIABLE, "apple_m1")
    found = host.host_machine()
    assert (found.name, found.vector_bytes, found.line_bytes) == ("apple_m1", 16, 128)
    monkeypatch.setenv("POPGRAPH_TARGET", "avx2")
    found = host.host_machine()
    assert (found.name, found.vector_bytes, found.line_bytes) == ("apple_m1", 32, 128)
    monkeypatch.delenv(host.VARIABLE)
    found = host.host_machine()
    assert (found.name, found.vector_bytes, found.l2_bytes) == ("avx2", 32, Machine().l2_bytes)


def test_an_unknown_preset_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(host.VARIABLE, "cray1")
    with pytest.raises(BackendError, match="there is no machine 'cray1'") as caught:
        host.host_machine()
    assert "zen3" in caught.value.hint


def test_vectors_as_options_are_deprecated() -> None:
    with pytest.warns(DeprecationWarning, match="vector_bytes"):
        old = popgraph.Options(vector_bytes=32, registers=16)
    assert old == popgraph.Options(machine=popgraph.Machine().with_vectors(32, 16))


def test_passes_take_numbers_of_their_target_as_options() -> None:
    """The spec of the pass prints them again."""
    text = "schedule-contractions{vector_bytes=16 registers=16 least_products=1 winograd_gain=2}"
    made = ScheduleContractions.from_spec(parse_spec(text))
    tuning = Tuning(least_products=1, winograd_gain=2)
    assert made == ScheduleContractions(Target.of(16, 16, tuning))
    assert ScheduleContractions.from_spec(made.spec()) == made
    assert str(ScheduleContractions()) == "schedule-contractions"
    assert FuseElementwise.from_spec(parse_spec("fuse-elementwise{most-inputs=3}")) == (
        FuseElementwise(Tuning(most_inputs=3))
    )
    for wrong in ("vector=1", "vector-bytes=1,2", "vector-bytes=x", "vector-bytes=1.5"):
        with pytest.raises(ValueError, match="vector"):
            ScheduleContractions.from_spec(parse_spec(f"schedule-contractions{{{wrong}}}"))


@pytest.mark.parametrize(("kind", "size"), [("f32", 4), ("f64", 8)])
def test_costs_count_bytes_by_element_type(kind: str, size: int) -> None:
    """In f64, a cache line holds half as many elements, and a factor takes twice the bytes."""
    lhs, rhs = Operand(((1, 0, 0, 0), (0, 0, 1, 0))), Operand(((0, 1, 0, 0), (0, 0, 1, 0)))
    module: ModuleOp = ContractSpec(kind, (6, 20, 24), 2, lhs, rhs).module()
    (op,) = (op for op in module.walk() if is_contraction(op))
    reads = Reads(op, next(orders(op, 256)), 0, None, Target())
    assert reads.stored == [6 * 24 * size, 20 * 24 * size]
    assert reads.vectors.lines_per_step == size / 64
