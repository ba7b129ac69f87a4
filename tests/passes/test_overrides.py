"""Tests schedule overrides: every way to run a contraction, and error messages."""

from __future__ import annotations

from dataclasses import replace

import pytest
from xdsl.dialects.builtin import ModuleOp

from popgraph.backends.reference.meaning import assert_same_meaning
from popgraph.builder import pgraph
from popgraph.compiler import lower
from popgraph.dialects import tile
from popgraph.dialects.tile.attributes import ScheduleAttr
from popgraph.dialects.tile.structured.schedule_override import Override, ScheduleSpec
from popgraph.measure.alternatives import before_scheduling, contraction_candidates_of
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.options import Options
from popgraph.passes.pipeline import planned
from popgraph.passes.structured.schedule.schedule_contractions import ScheduleContractions
from popgraph.passes.structured.schedule.settle_loops import SettleLoops
from popgraph.passes.structured.to_loops import StructuredToLoops
from popgraph.passes.structured.winograd.use_winograd import UseWinograd
from popgraph.support.errors import ErrorGroup, PassError
from popgraph.support.machine import TARGETS
from popgraph.support.tuning import Target
from tests.checking import check_ir

CONVOLUTION = """
opset 21
graph net(x: f32[1, 8, 4, 3]) -> (y: f32[1, 16, 4, 3]) {
    weight w: f32[16, 8, 3, 3] = he_normal(seed=1)
    c = Conv(x, w, pads=[1, 1, 1, 1])
    y = Relu(c)
}
"""
PRODUCT = """
opset 21
graph net(x: f32[6, 10]) -> (y: f32[6, 9]) {
    weight w: f32[10, 9] = he_normal(seed=1)
    p = MatMul(x, w)
    y = Relu(p)
}
"""
POINTWISE = """
opset 21
graph net(x: f32[1, 16, 5, 7]) -> (y: f32[1, 24, 5, 7]) {
    weight w: f32[24, 16, 1, 1] = he_normal(seed=1)
    y = Conv(x, w)
}
"""
OPTIONS = Options(machine=TARGETS["sse2"], measured=())
SCHEDULE = "#tile.schedule<n_dim 1, n_vectors 2, m_dim 0, mr 3, kc 256, lanes 4>"


def model(text: str) -> tuple[ModuleOp, Compilation]:
    """The module before all passes that choose schedules."""
    document = pgraph.parse(text)
    compilation = Compilation(document.weights)
    return before_scheduling(document.module, compilation, OPTIONS), compilation


def decided(text: str, *schedules: str, measured: tuple[str, ...] = ()) -> ModuleOp:
    """The module after the passes that choose schedules."""
    module, compilation = model(text)
    for each in deciding(Target.of(16, 16), *schedules, measured=measured):
        each.run(compilation, module)
    return module


def deciding(target: Target, *schedules: str, measured: tuple[str, ...] = ()) -> list[Pass]:
    """The passes that choose schedules of contractions."""
    return [
        UseWinograd(target, schedules, measured),
        SettleLoops(target),
        ScheduleContractions(target, schedules, measured),
    ]


def schedule_of(module: ModuleOp) -> str:
    """The schedule of the only scheduled contraction, or ""."""
    ops = [op for op in module.walk() if tile.is_contraction(op)]
    return "".join(str(op.schedule) for op in ops if op.schedule is not None)


def key(text: str) -> str:
    (found,) = contraction_candidates_of(model(text)[0], OPTIONS)
    return found.text


@pytest.mark.parametrize("text", [CONVOLUTION, PRODUCT])
def test_every_schedule_candidate_computes_the_same(text: str) -> None:
    """Also candidates that the cost model would never choose."""
    before, compilation = model(text)
    (found,) = contraction_candidates_of(before, OPTIONS)
    assert len(found.specs) > 10
    kinds = {
        (spec.word, spec.size, spec.factor, spec.packed, spec.order) for spec, _ in found.specs
    }
    assert len(kinds) > 3
    for spec, _ in found.specs:
        override = str(Override(found.text, spec))
        assert Override.of(override) == Override(found.text, spec)
        after = before.clone()
        for each in deciding(OPTIONS.target, override):
            each.run(compilation, after)
        wanted = spec.schedule or ("tile.transform_tiles" if spec.size else "")
        assert wanted in str(after) or wanted.removeprefix("#tile.schedule") in str(after)
        StructuredToLoops(OPTIONS.target).run(compilation, after)
        check_ir(after)
        assert_same_meaning(before, after, compilation.weights, tolerance=1e-5)


def test_plain_loops_and_estimates_can_be_requested() -> None:
    assert "tile.transform_tiles" in str(decided(CONVOLUTION, "op c -> winograd 2"))
    for spec in ("plain", "estimate"):
        module = decided(CONVOLUTION, f"op c -> {spec}")
        assert "tile.transform_tiles" not in str(module)
        assert bool(schedule_of(module)) == (spec == "estimate")


def test_fields_other_than_the_layout_are_free() -> None:
    odd = SCHEDULE.replace("mr 3, kc 256", "mr 2, kc 5").replace(">", ", n_inner 1>")
    assert schedule_of(decided(PRODUCT, f"op p -> rhs packed, {odd}")) == odd


def test_a_given_schedule_overrides_a_measured_one() -> None:
    measured = (f"{key(PRODUCT)} -> rhs packed, {SCHEDULE}",)
    assert schedule_of(decided(PRODUCT, measured=measured)) == SCHEDULE
    for which in ("op p", key(PRODUCT)):
        assert not schedule_of(decided(PRODUCT, f"{which} -> plain", measured=measured))


def test_measured_schedules_that_do_not_fit_are_ignored() -> None:
    foreign = ("f32 [d0: 2] sum [d1: 2]; ... -> plain", f"{key(PRODUCT)} -> winograd 4")
    assert str(decided(PRODUCT, measured=foreign)) == str(decided(PRODUCT))
    wide = SCHEDULE.replace("lanes 4", "lanes 16")
    measured = (f"{key(PRODUCT)} -> rhs packed, {wide}",)
    assert str(decided(PRODUCT, measured=measured)) == str(decided(PRODUCT))


def refused(text: str, *schedules: str) -> PassError:
    with pytest.raises(PassError) as caught:
        decided(text, *schedules)
    return caught.value


def test_a_schedule_that_does_not_fit_is_refused() -> None:
    error = refused(PRODUCT, f"op p -> rhs packed, {SCHEDULE.replace('n_dim 1', 'n_dim 7')}")
    assert "n_dim 7" in error.what and "has no such loops or layout" in error.what
    assert error.where == "op p"
    fits = error.hint.removeprefix("use a schedule that fits, the cheapest first: ").split("; ")
    assert schedule_of(decided(PRODUCT, f"op p -> {fits[0]}")) == ScheduleSpec.of(fits[0]).schedule
    error = refused(PRODUCT, f"{key(PRODUCT)} -> rhs packed, {SCHEDULE.replace('mr 3', 'mr 99')}")
    assert error.where == f"{key(PRODUCT)} (p)"
    assert error.what.endswith("mr must be at most 6, the rows that registers hold")
    error = refused(PRODUCT, f"op p -> rhs packed, {SCHEDULE.replace('lanes 4', 'breadth 4')}")
    assert error.what.endswith("the schedule has no field lanes")


def test_winograd_tiles_that_do_not_fit_are_refused() -> None:
    error = refused(CONVOLUTION, "op c -> winograd 3")
    assert "'winograd 3' does not fit" in error.what
    assert "winograd 2, tiles" in error.hint
    error = refused(PRODUCT, "op p -> winograd 2")
    assert "need a 3x3 convolution" in error.what or "does not fit" in error.what


def test_schedules_of_unknown_contractions_are_refused() -> None:
    error = refused(PRODUCT, "op q -> plain")
    assert error.what == "the schedule names a contraction that this model does not have"
    assert error.where == "op q"
    assert error.hint == "name a contraction: op p; `popgraph schedules` prints all"


def test_several_wrong_schedules_are_reported_together() -> None:
    with pytest.raises(ErrorGroup) as caught:
        decided(PRODUCT, "op q -> plain", f"{key(CONVOLUTION)} -> plain")
    assert len(caught.value.errors) == 2


@pytest.mark.parametrize("text", ["plain", "op p -> quick", "op p -> both, #tile.schedule<>"])
def test_malformed_schedule_texts_are_refused(text: str) -> None:
    assert "write plain, estimate" in refused(PRODUCT, text).hint


def test_winograd_schedules_need_winograd_enabled() -> None:
    options = replace(OPTIONS, winograd=False, schedules=("op c -> winograd 4",))
    with pytest.raises(PassError, match="which are off"):
        list(planned(options))


def test_schedules_of_options_reach_the_contraction() -> None:
    document = pgraph.parse(PRODUCT)
    options = replace(OPTIONS, schedules=(f"op p -> rhs packed, {SCHEDULE}",))
    module, compilation = document.module, Compilation(document.weights)
    lower(module, compilation, options, until=ScheduleContractions.name)
    assert schedule_of(module) == SCHEDULE
    assert ScheduleAttr.of_text(SCHEDULE).numbers["mr"] == 3


@pytest.mark.parametrize("settled", [True, False])
def test_schedule_texts_name_the_scheduled_loops(settled: bool) -> None:
    """Texts printed by `popgraph schedules` are found again, whether loops are collapsed or not."""
    disabled = frozenset() if settled else frozenset({SettleLoops.name})
    options = replace(OPTIONS, disabled=disabled)
    (found,) = contraction_candidates_of(model(POINTWISE)[0], options)
    assert ("d1: 35" in found.text) == settled
    module, compilation = model(POINTWISE)
    lower(
        module, compilation, replace(options, schedules=(f"{found.text} -> {found.specs[1][0]}",))
    )


def test_old_names_of_schedule_fields_are_accepted() -> None:
    earlier = "#tile.schedule<vector 1, vectors 2, rows 0, block 6, chunk 256, width 16, inside 1>"
    with pytest.warns(FutureWarning, match="n_dim 1, n_vectors 2"):
        found = ScheduleAttr.of_text(earlier)
    assert found == ScheduleAttr.of(
        n_dim=1, n_vectors=2, m_dim=0, mr=6, kc=256, lanes=16, n_inner=1
    )
