"""Main loops whose turns overlap: explicit pipelines, and exchange with the host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

import popgraph.session as popart
from popgraph.session.popart_ir.graph import Op
from popgraph.session.popart_ir.ir import Ir
from tests.session.popart_graphs import ir_of, layers, minimal, options
from tests.session.test_main_loops import (
    BATCHES,
    FACTOR,
    LAYERS,
    MANUAL,
    PIPELINE,
    Layers,
    of_type,
    read,
)

STAGES = 2 * LAYERS - 1
INNER, LOOPS = popart.ExchangeStrategy.OverlapInnerLoop, popart.ExchangeStrategy.OverlapLoops
IO = {"virtualGraphMode": MANUAL, "numIOTiles": 32}
Streams = dict[str, list[object]]


def _named(id: str) -> str:
    """What nothing computes, as it is called everywhere."""
    return id.split("/", 1)[-1].split("__t")[0]


class Run:
    """What the operators of an IR compute, as terms; loads are numbered, stores are listed."""

    def __init__(self, ir: Ir) -> None:
        self._ir = ir
        self.stored: Streams = {}
        self.done: Counter[str] = Counter()
        """How often operators of a type ran."""
        self._loaded: Counter[str] = Counter()
        main = ir.graphNames()[0]
        self._values: dict[str, object] = {}
        self._graph(main, self._values)

    def _graph(self, name: str, values: dict[str, object]) -> None:
        for op in self._ir.operators(name):
            inputs = [values.get(id, _named(id)) for _, id in sorted(op.inputs.items())]
            results = self.computed(op, inputs)
            values |= zip((id for _, id in sorted(op.outputs.items())), results, strict=False)

    def _called(self, name: str, inputs: Sequence[object], *, skip: int = 0) -> list[object]:
        taken, given = self._ir.body(name)
        values = dict(zip(taken[skip:], inputs, strict=True))
        self._graph(name, values)
        return [values[id] for id in given]

    def computed(self, op: Op, inputs: list[Any]) -> list[Any]:
        type_, stream = (
            op.type.removesuffix("Inplace"),
            str(op.attributes.get("hostStreamTensorId")),
        )
        self.done[type_] += 1
        if type_ == "Loop":
            for _ in range(op.integers_or("tripCountValue", 0)):
                results = self._called(op.called[0], inputs, skip=2)
                inputs = [*results, *inputs[len(results) :]]
            return inputs[: len(op.outputs)]
        if type_ == "Call":
            return self._called(op.called[0], inputs)
        if type_ == "HostLoad":
            self._loaded[stream] += 1
            return [(stream, self._loaded[stream])]
        if type_ == "HostStore":
            self.stored.setdefault(stream, []).append(inputs[0])
        elif type_ == "Init":
            return [{}] if "Stashed" in op.settings.name else [0]
        elif type_ == "IncrementMod":
            return [(inputs[0] + 1) % int(float(str(op.attributes["modulus"])))]
        elif type_ == "DynamicUpdate":
            inputs[0][inputs[1]] = inputs[2]
        elif type_ == "DynamicSlice":
            return [inputs[0][inputs[1]]]
        elif type_ in ("IpuCopy", "IoTileCopy", "Identity"):
            return inputs
        elif type_ == "SGD0VarUpdate":
            self.stored.setdefault("updates", []).append(hash(str(inputs)))
        return [
            hash((type_, index, *inputs)) if type_ != "DynamicUpdate" else inputs[0]
            for index in op.outputs
        ]


def stored(asked: dict[str, Any]) -> Streams:
    return Run(Layers(**asked).session.getIr()).stored


@pytest.fixture(scope="module")
def in_order() -> Streams:
    return stored({"virtualGraphMode": MANUAL, "places": True})


def test_an_explicit_pipeline_computes_what_its_loop_did(in_order: Streams) -> None:
    assert stored(PIPELINE) == in_order
    assert len(in_order["Gradient___w0"]) == FACTOR * 6


def test_stages_of_explicit_pipelines_are_called_to_fill_and_to_flush() -> None:
    graphs = Layers(**PIPELINE).graphs()
    names = [f"PipelineStage_{stage}_main_subgraph({stage})" for stage in range(STAGES)]
    assert list(graphs) == ["maingraph", "stepGraph", "accumulationGraph", *names]
    outer, inner = graphs["stepGraph"], graphs["accumulationGraph"]
    (at,) = (place for place, op in enumerate(outer) if op["type"] == "Loop")
    assert outer[at]["attributes"]["tripCountValue"] == str(FACTOR - STAGES + 1)
    called = [op["attributes"]["callee"] for op in of_type(inner, "Call")]
    assert sorted(called) == names
    for part, wanted in (
        (outer[:at], [names[:turn] for turn in range(1, STAGES)]),
        (outer[at:], [names[turn:] for turn in range(1, STAGES)]),
    ):
        found = [op["attributes"]["callee"] for op in of_type(part, "Call")]
        assert Counter(found) == Counter(name for cycle in wanted for name in cycle)
    assert {op["type"] for op in inner} == {
        "Init",
        "HostLoadInplace",
        "Call",
        "IpuCopy",
        "HostStore",
    }
    assert not any("__pipeline_stage" in op["attributes"] for ops in graphs.values() for op in ops)
    assert read(of_type(graphs[names[0]], "Tanh")[0]) == [f"{names[0]}/MatMul:0"]


def overlapping(strategy: popart.ExchangeStrategy, **asked: Any) -> Layers:
    """Layers whose input comes, and whose anchors go, by tiles for that."""
    return Layers(places=True, strategy=strategy, tiles=popart.TileSet.IO, **IO, **asked)


def around(operators: list[dict[str, Any]], type_: str) -> tuple[int, int]:
    """How many operators of a type are before a loop, and how many behind it."""
    (at,) = (place for place, op in enumerate(operators) if op["type"] == "Loop")
    return len(of_type(operators[:at], type_)), len(of_type(operators[at:], type_))


def test_exchange_with_the_host_overlaps_with_other_turns(in_order: Streams) -> None:
    made = overlapping(INNER)
    assert Run(made.session.getIr()).stored == in_order
    graphs = made.graphs()
    outer = graphs["stepGraph"]
    assert list(graphs) == ["maingraph", "stepGraph", "accumulationGraph"]
    assert of_type(outer, "Loop")[0]["attributes"]["tripCountValue"] == str(FACTOR - 2)
    assert len(of_type(graphs["accumulationGraph"], "HostLoadInplace")) == 1
    assert around(outer, "HostLoadInplace") == (2, 0)
    assert around(outer, "HostStore") == (0, 4)  # of two anchors
    assert around(outer, "L1") == (1, 1)
    assert [op["type"] for op in graphs["maingraph"]] == ["Loop"]


def test_exchange_overlaps_with_turns_of_all_loops() -> None:
    """Batches ahead load before those under way have loaded all, as they do in PopART."""
    made, alone = overlapping(LOOPS), overlapping(popart.ExchangeStrategy.JustInTime)
    main = made.graphs()["maingraph"]
    assert of_type(main, "Loop")[0]["type"] == "Loop"
    turns = [op["attributes"]["tripCountValue"] for op in of_type(main, "Loop")]
    assert turns == [str(FACTOR - 2), str(BATCHES - 2), str(FACTOR - 2)]
    found, wanted = Run(made.session.getIr()).done, Run(alone.session.getIr()).done
    moved = ("Loop", "IoTileCopy", "Transpose", "Reshape")
    assert {type_: count for type_, count in found.items() if type_ not in moved} == {
        type_: count for type_, count in wanted.items() if type_ not in moved
    }


def test_exchange_just_in_time_overlaps_with_nothing(in_order: Streams) -> None:
    made = overlapping(popart.ExchangeStrategy.JustInTime)
    assert Run(made.session.getIr()).stored == in_order
    assert around(made.graphs()["stepGraph"], "HostLoadInplace") == (0, 0)


def test_exchange_of_a_pipeline_takes_turns_of_its_own(in_order: Streams) -> None:
    made = overlapping(INNER, factor=8, enablePipelining=True)
    outer = made.graphs()["stepGraph"]
    # a turn before the first stage; and one behind the last for what comes from there
    assert of_type(outer, "Loop")[0]["attributes"]["tripCountValue"] == str(8 - STAGES - 1)
    assert around(outer, "HostLoadInplace") == (STAGES + 1, 0)
    alone = overlapping(INNER, factor=8)
    assert Run(made.session.getIr()).stored == Run(alone.session.getIr()).stored


def test_exchange_of_a_pipeline_that_overlaps_with_all_loops_is_refused() -> None:
    """Running such a session is another matter: numbers do not depend on the IR."""
    made = overlapping(LOOPS, factor=8, enablePipelining=True)
    with pytest.raises(popart.popart_exception, match="is not shown where its exchange overlaps"):
        made.session.getIr()


def test_a_loop_of_too_few_turns_stays() -> None:
    graphs = overlapping(INNER, factor=2, batches=1).graphs()
    assert of_type(graphs["maingraph"], "Loop")[0]["attributes"]["tripCountValue"] == "0"
    few = overlapping(INNER, factor=STAGES, enablePipelining=True).graphs()
    assert of_type(few["stepGraph"], "Loop")[0]["attributes"]["tripCountValue"] == str(STAGES)


def test_without_accumulation_batches_overlap_although_they_change_weights() -> None:
    made = overlapping(INNER, factor=1, batches=4)
    assert list(made.graphs()) == ["maingraph", "stepGraph"]
    main = made.graphs()["maingraph"]
    assert around(main, "SGD0VarUpdate") == (LAYERS, LAYERS)


# loops of parts of a batch


class Parts(Run):
    """The same, where parts that are cut out and written are terms, too."""

    def computed(self, op: Op, inputs: list[Any]) -> list[Any]:
        type_ = op.type.removesuffix("Inplace")
        if not type_.startswith("Dynamic"):
            return super().computed(op, inputs)
        self.done[type_] += 1
        return [hash((type_, *map(str, inputs)))]


def test_loops_of_parts_overlap_where_that_is_asked_for() -> None:
    found = []
    schedules = popart.BatchSerializationBatchSchedule
    for schedule in (schedules.Isomorphic, schedules.OverlapOnIo, schedules.OverlapOnCompute):
        settings = popart.BatchSerializationSettings()
        settings.factor, settings.batchSchedule = 4, schedule
        settings.transformContext = popart.BatchSerializationTransformContext.Bwd
        settings.method = popart.BatchSerializationMethod.Loop
        builder = popart.Builder()
        loss = layers(builder, 2)
        session = popart.TrainingSession(
            builder.getModelProto(),
            popart.DataFlow(1, [loss]),
            loss,
            popart.ConstSGD(0.1),
            patterns=minimal(),
            userOptions=options(batchSerializationSettings=settings),
        )
        run, graphs = Parts(session.getIr()), ir_of(session)
        loops = [op for op in graphs["maingraph"] if op["type"] == "Loop"]
        left = 4 if schedule is schedules.Isomorphic else 2
        assert {op["attributes"]["tripCountValue"] for op in loops} == {str(left)}
        found.append((sorted(run.stored["updates"], key=str), run.done))
    assert found[0] == found[1] == found[2]
