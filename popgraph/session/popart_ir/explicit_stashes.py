"""Stashes of a pipeline in a loop: tensors of several turns, of which slices are read later."""

from __future__ import annotations

from dataclasses import dataclass

from popgraph.builder.opset.tensorinfo import TensorInfo
from popgraph.session.popart_ir.graph import Op, OpGraph, Settings
from popgraph.session.popart_ir.main_loops import Loop, scoped
from popgraph.session.popart_ir.pipeline import CONSTANT, STASHED, stages_of, stash_stage
from popgraph.session.popart_ir.placement import COPY
from popgraph.session.popart_ir.updates import COUNTER

_COUNT = TensorInfo("INT32", [])


def stash_in_loop(loop: Loop) -> None:
    """Writes what later stages read into stashes that the loop keeps, turn by turn."""
    graph = loop.body
    for stash in [_Stash.of(loop, id) for id in graph.infos if _is_kept(graph, id)]:
        if stash.later:
            stash.write()


def _is_kept(graph: OpGraph, id: str) -> bool:
    readers = [op for op in graph.consumers(id) if op.settings.stage is not None]
    if graph.kind(id) in CONSTANT or not readers:
        return False
    producer = graph.producer(id)
    return not (producer is not None and producer.writes) and len(stages_of(graph, id)) > 1


@dataclass
class _Stash:
    """What is needed to keep one tensor."""

    loop: Loop
    id: str
    stage: int
    """Where it is computed, or arrives."""
    ipu: int | None
    later: list[int]
    """The stages that read it later."""

    @classmethod
    def of(cls, loop: Loop, id: str) -> _Stash:
        graph = loop.body
        start, producer = stash_stage(graph, id), graph.producer(id)
        staged = [op for op in graph.consumers(id) if op.settings.stage is not None]
        at = staged[0] if producer is None or producer.type == COPY else producer
        later = sorted({op.settings.stage or 0 for op in staged} - {start})
        return cls(loop, id, start, at.settings.ipu, later)

    @property
    def _name(self) -> str:
        return self.id.removeprefix(scoped(self.loop.body, ""))

    def _settings(self, stage: int | None, name: str) -> Settings:
        return Settings(name=name, ipu=self.ipu, stage=stage)

    def write(self) -> None:
        graph, outer = self.loop.body, self.loop.outer
        readers = graph.consumers(self.id)
        size = self.later[-1] + 1 - self.stage
        info = graph.infos[self.id]
        stashed = STASHED + self._name
        whole = TensorInfo(info.data_type(), [size, *info.shape()])
        counter, _ = self._count(COUNTER + self._name, self.stage, size, self._behind())
        self._begin(scoped(outer, stashed), whole, f"Init_{stashed}", zero=False)
        held = self.loop.add_implicit(scoped(outer, stashed), scoped(graph, stashed))
        updated = graph.fresh(held, whole)
        inputs = {0: held, 1: counter, 2: self.id}
        told = self._settings(self.stage, f"DynamicUpdate_{stashed}")
        made = Op("DynamicUpdateInplace", inputs, {0: updated}, _slices(), told)
        made.writes = True
        graph.add(made, before=self._behind())
        last = self.id
        for number, stage in enumerate(self.later):
            last = self._restore(held, last, number, stage, size, readers)

    def _behind(self) -> Op | None:
        """The operator in front of which a tensor is stashed."""
        graph, producer = self.loop.body, self.loop.body.producer(self.id)
        if producer is None:
            return next((op for op in graph.ops if self.id in op.inputs.values()), None)
        place = graph.ops.index(producer) + 1
        return graph.ops[place] if place < len(graph.ops) else None

    def _begin(self, id: str, info: TensorInfo, name: str, *, zero: bool) -> None:
        outer = self.loop.outer
        outer.add_tensor(id, info)
        told = Settings(name=name, ipu=self.ipu)
        made = Op("Init", {}, {0: id}, {"inittype": int(zero)}, told)
        outer.add(made, before=self.loop.op)

    def _count(self, base: str, stage: int, size: int, before: Op | None) -> tuple[str, str]:
        """A number that turns hand on: the part of the stash that is next."""
        graph, outer = self.loop.body, self.loop.outer
        first = scoped(outer, base)
        if first in outer.infos:
            first = outer.fresh(first, _COUNT)
        self._begin(first, _COUNT, f"Init_{base}", zero=True)
        inner = scoped(graph, base)
        if inner in graph.infos:
            inner = graph.fresh(inner, _COUNT)
        graph.add_tensor(inner, _COUNT)
        following = graph.fresh(inner, _COUNT)
        told = self._settings(stage, f"Counter_{STASHED}{self._name}")
        attributes: dict[str, object] = {"increment": 1.0, "modulus": float(size)}
        made = Op("IncrementMod", {0: inner}, {0: following}, attributes, told)
        graph.add(made, before=before)
        self.loop.add_carried(first, inner, following)
        return inner, following

    def _restore(
        self, stash: str, last: str, number: int, stage: int, size: int, readers: list[Op]
    ) -> str:
        """Reads a part of the stash for the readers of a stage."""
        graph = self.loop.body
        users = [op for op in readers if op.settings.stage == stage]
        first = min(users, key=graph.ops.index)
        counter, _ = self._count(COUNTER + self._name, stage, size, first)
        restored = graph.fresh(self.id, graph.infos[self.id])
        told = self._settings(stage, f"DynamicSlice_{STASHED}{self._name}_{number}")
        inputs = {0: stash, 1: counter, 2: last}
        made = Op("DynamicSlice", inputs, {0: restored}, _slices(), told, backward=True)
        graph.add(made, before=first)
        for op in users:
            for index, read in list(op.inputs.items()):
                if read == self.id:
                    graph.connect(op, index, restored)
        return restored


def _slices() -> dict[str, object]:
    return {"axes": [0], "sizes": [1], "noOverlap": 0}
