"""Operators of a pipeline: the stage of each, copies by way of the stages between, and stashes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from popgraph.builder.opset.enums import RecomputationType, RecomputeType
from popgraph.builder.opset.tensorinfo import TensorInfo
from popgraph.builder.popart.names import RESERVED_PREFIXES
from popgraph.session.popart_ir.graph import Kind, Op, OpGraph, Settings
from popgraph.session.popart_ir.placement import COPY, copy_to
from popgraph.session.stages import merged

STASHED = RESERVED_PREFIXES["reservedStashedPrefix"]
RESTORED = RESERVED_PREFIXES["reservedRestoredPrefix"]
CONSTANT = (Kind.VARIABLE, Kind.CONSTANT)


def set_stages(graph: OpGraph) -> None:
    """Gives operators the stages of their IPUs, unless the user has told stages."""
    if all(op.settings.stage is None for op in graph.ops):
        for op in graph.ops:
            op.settings = replace(op.settings, stage=op.settings.ipu)


def turn_back(graph: OpGraph, loss: str, *, apart: bool) -> None:
    """
    Gradients of stage s are stage 2 L - s, where L is that of the loss; updates come last.

    Where they are to be apart from the last stage forward, they are one stage later.
    """
    final = graph.producer(loss)
    last = final.settings.stage if final is not None else None
    if last is None:
        return
    for op in graph.ops:
        if op.backward and op.settings.stage is not None:
            op.settings = replace(op.settings, stage=2 * last + apart - op.settings.stage)


def set_stages_of_updates(graph: OpGraph) -> None:
    """An update is in the stage of its gradient."""
    for op in graph.ops:
        if op.writes and op.settings.stage is None:
            producers = [graph.producer(id) for id in op.inputs.values()]
            stages = [one.settings.stage for one in producers if one is not None]
            known = [stage for stage in stages if stage is not None]
            op.settings = replace(op.settings, stage=max(known, default=None))


def merge_stages(graph: OpGraph) -> None:
    """Stages that follow each other on one IPU are one."""
    homes: dict[int, int | None] = {}
    for op in graph.ops:
        if op.settings.stage is not None and op.type != COPY:
            homes[op.settings.stage] = op.settings.ipu
    numbers = merged(homes)
    for op in graph.ops:
        told = op.settings.stage
        if told is not None:
            op.settings = replace(op.settings, stage=numbers.get(told, told))


def copy_by_stages(graph: OpGraph) -> None:
    """
    Copies what another IPU reads, from stage to stage.

    A tensor takes its way over the IPUs of all stages between; those that read it there share it.
    """
    homes = {op.settings.stage: op.settings.ipu for op in graph.ops}
    for id in list(graph.infos):
        readers = [op for op in graph.consumers(id) if op.settings.stage is not None]
        start = _start(graph, id, readers)
        if start is None:
            continue
        apart: dict[int, list[Op]] = {}
        for op in readers:
            if op.settings.ipu is not None and op.settings.ipu != start.ipu:
                apart.setdefault(op.settings.ipu, []).append(op)
        for ipu, ops in sorted(apart.items(), key=lambda one: _first_stage(one[1])):
            start = _walk(graph, id, start, _first_stage(ops), ipu, homes)
            for op in ops:
                for index, read in list(op.inputs.items()):
                    if read == id:
                        graph.connect(op, index, start.id)


@dataclass(frozen=True)
class _Place:
    """Where a tensor has got to."""

    id: str
    stage: int
    ipu: int


def _first_stage(ops: Sequence[Op]) -> int:
    return min(op.settings.stage for op in ops if op.settings.stage is not None)


def _start(graph: OpGraph, id: str, readers: Sequence[Op]) -> _Place | None:
    """Where a tensor is computed, or read first."""
    producer = graph.producer(id)
    first = producer or min(readers, key=lambda op: _first_stage([op]), default=None)
    if first is None or first.settings.stage is None or first.settings.ipu is None:
        return None
    return _Place(id, first.settings.stage, first.settings.ipu)


def _walk(
    graph: OpGraph, id: str, start: _Place, stage: int, ipu: int, homes: Mapping[int | None, object]
) -> _Place:
    """Copies a tensor on to a stage and its IPU."""
    at = start
    for number in range(at.stage + 1, max(stage, at.stage + 1) + 1):
        arrives = number >= stage
        home = ipu if arrives else homes.get(number)
        if not isinstance(home, int):
            continue
        info = graph.infos[id]
        copy = graph.add_tensor(f"{id}_c{ipu}", info) if arrives else graph.fresh(at.id, info)
        producer = graph.producer(at.id)
        settings = Settings(ipu=at.ipu, stage=number - 1)
        backward = producer is not None and producer.backward
        made = copy_to(home, at.id, copy, settings, backward=backward)
        graph.add(made, before=_next(graph, producer, at.id))
        at = _Place(copy, number, home)
    return at


def _next(graph: OpGraph, producer: Op | None, id: str) -> Op | None:
    """The operator before which a copy is written: behind the producer, or before all readers."""
    if producer is None:
        readers = set(graph.consumers(id))
        return next((op for op in graph.ops if op in readers), None)
    behind = graph.ops.index(producer) + 1
    return graph.ops[behind] if behind < len(graph.ops) else None


@dataclass(frozen=True)
class Stashing:
    """What a pipeline keeps of forward stages for those of gradients."""

    recompute: RecomputationType
    trains: bool
    all_inferred: bool = False
    """Inference keeps all tensors, whatever is recomputed."""

    def add(self, graph: OpGraph) -> None:
        """Adds a Stash of each tensor that a later stage reads, and what restores it there."""
        kept = [id for id in graph.infos if self._is_candidate(graph, id)]
        if self.recompute is not RecomputationType.NoRecompute and not self.all_inferred:
            kept = self._reduced(graph, kept)
            self._annotate(graph, set(kept))
        for id in kept:
            _stash(graph, id)

    @property
    def _fully(self) -> bool:
        return self.trains and self.recompute is RecomputationType.Pipeline

    def _is_candidate(self, graph: OpGraph, id: str) -> bool:
        readers = [op for op in graph.consumers(id) if op.settings.stage is not None]
        if graph.kind(id) in CONSTANT or not readers or id.endswith(_SCALAR):
            return False
        producer = graph.producer(id)
        if producer is not None and (producer.settings.after_batches or producer.writes):
            return False
        arrives = producer is None or producer.type == COPY
        if self._fully and not arrives:
            return False
        if self._fully and any(op.type != COPY and not op.backward for op in readers):
            return bool(_restoring_stages(graph, id))
        return len(stages_of(graph, id)) > 1

    def _reduced(self, graph: OpGraph, candidates: Sequence[str]) -> list[str]:
        """Those that cannot be computed again from others, or that other IPUs need."""
        checkpoints = _computed_once(graph, set(candidates))
        found = []
        for id in candidates:
            producer = graph.producer(id)
            copied = _is_copied(graph, id)
            if producer is None or producer.type == COPY or copied or producer in checkpoints:
                found.append(id)
        return found

    def _annotate(self, graph: OpGraph, kept: set[str]) -> None:
        """
        Says of forward operators whether they are computed again, from what is kept.

        With full recomputation, what arrives on an IPU is kept for its stage, and the last stage
        of them, behind which gradients follow at once, computes nothing again.
        """
        forward = {op for op in graph.ops if not (op.backward or op.writes or op.type == COPY)}
        if self._fully:
            read = {id for op in forward for id in op.inputs.values()}
            once = _computed_once(graph, kept | (_arriving(graph) & read))
            ends = {op for op in forward if not kept.isdisjoint(op.outputs.values())}
            last = max((op.settings.stage or 0 for op in forward), default=0)
            for op in graph.ops:
                if op.type == COPY and not op.backward:
                    found = graph.after(op)
                    ends.update(one for one in found if one.settings.stage == last)
        else:
            once = _computed_once(graph, kept)
            ends = {op for op in forward for id in op.outputs.values() if _is_copied(graph, id)}
        for op in graph.ops:
            if op.type == COPY or op in forward:
                again = op.type != COPY and op not in once and op not in ends
                kind = RecomputeType.Recompute if again else RecomputeType.Checkpoint
                op.settings = replace(op.settings, recompute=kind)


_SCALAR = ("___FLOAT", "___FLOAT16")
"""How the names of an optimizer's numbers end, which no pipeline keeps."""


def _arriving(graph: OpGraph) -> set[str]:
    """The tensors that no operator computes on their IPU."""
    return {
        id
        for id in graph.infos
        if graph.producer(id) is None or _of_copy(graph, id)
        if graph.kind(id) not in CONSTANT
    }


def _computed_once(graph: OpGraph, kept: set[str]) -> set[Op]:
    """The operators that cannot be computed again: what they need arrives, and is not kept."""
    found: set[Op] = set()
    waiting = list(_arriving(graph) - kept)
    while waiting:
        for op in graph.consumers(waiting.pop()):
            if op not in found:
                found.add(op)
                if op.type != COPY:
                    waiting += [id for id in op.outputs.values() if id not in kept]
    return found


def _is_copied(graph: OpGraph, id: str) -> bool:
    return any(op.type == COPY for op in graph.consumers(id))


def _of_copy(graph: OpGraph, id: str) -> bool:
    producer = graph.producer(id)
    return producer is not None and producer.type == COPY


def stages_of(graph: OpGraph, id: str) -> set[int]:
    """The stages in which a tensor is; a copy arrives in the stage behind its own."""
    found = {op.settings.stage for op in graph.consumers(id) if not op.settings.after_batches}
    producer = graph.producer(id)
    if producer is not None and producer.settings.stage is not None:
        found.add(producer.settings.stage + (producer.type == COPY))
    return {stage for stage in found if stage is not None}


def stash_stage(graph: OpGraph, id: str) -> int:
    producer = graph.producer(id)
    if producer is None or producer.type == COPY or producer.settings.stage is None:
        return _first_stage(graph.consumers(id))
    return producer.settings.stage


def _restoring_stages(graph: OpGraph, id: str) -> list[int]:
    """The later stages on the same IPU that read a tensor, or what is computed again from it."""
    start = stash_stage(graph, id)
    home = next(op.settings.ipu for op in graph.consumers(id) if op.settings.stage == start)
    seen: set[Op] = set()
    waiting, found = graph.consumers(id), set[int]()
    while waiting:
        op = waiting.pop()
        if op in seen or op.type == COPY or op.settings.ipu != home or op.settings.after_batches:
            continue
        seen.add(op)
        if op.settings.stage is not None and op.settings.stage > start:
            found.add(op.settings.stage)
        else:
            waiting += [user for out in op.outputs.values() for user in graph.consumers(out)]
    return sorted(found)


def _stash(graph: OpGraph, id: str) -> None:
    readers = [op for op in graph.consumers(id) if not op.settings.after_batches]
    start = stash_stage(graph, id)
    first = next(op for op in readers if op.settings.stage == start) if readers else None
    producer = graph.producer(id)
    at = first if producer is None or producer.type == COPY else producer
    ipu = None if at is None else at.settings.ipu
    later = sorted({op.settings.stage for op in readers if op.settings.stage is not None} - {start})
    later = later or _restoring_stages(graph, id)
    if not later:
        return
    info, size = graph.infos[id], later[-1] + 1 - start
    stashed = graph.add_tensor(STASHED + id, TensorInfo(info.data_type(), [size, *info.shape()]))
    attributes: dict[str, object] = {"stashSize": size}
    settings = Settings(ipu=ipu, stage=start)
    graph.add(Op("Stash", {0: id}, {0: stashed}, attributes, settings), _next(graph, producer, id))
    in_place = id not in graph.kept and not any(op.type == COPY for op in readers)
    for number, stage in enumerate(later):
        users = [op for op in readers if op.settings.stage == stage]
        restored = graph.add_tensor(RESTORED + id + (f"_{number}" if number else ""), info)
        inputs = {0: id, 1: stashed} if in_place else {0: stashed}
        made = Op(
            "RestoreInplace" if in_place else "Restore",
            inputs,
            {0: restored},
            attributes,
            Settings(ipu=ipu, stage=stage),
            writes=not users,
            backward=True,
        )
        place = next((op for op in graph.ops if op in users), None)
        graph.add(made, before=place)
        for op in users:
            for index, read in list(op.inputs.items()):
                if read == id:
                    graph.connect(op, index, restored)
