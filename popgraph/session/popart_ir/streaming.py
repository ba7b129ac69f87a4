"""Tensors off the chip, and shares of tensors: what loads and stores them around their readers."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

from popgraph.builder.opset.enums import CollectiveOperator, RecomputeType, TileSet
from popgraph.builder.opset.tensorinfo import TensorInfo
from popgraph.session.popart_ir.graph import Context, Kind, Op, OpGraph, Settings
from popgraph.session.popart_ir.placement import COPY
from popgraph.session.popart_ir.remote_ops import (
    ARGUMENT,
    GATHER,
    LOAD,
    REDUCE,
    SCATTER,
    STORE,
    ShareNames,
    bare,
    collective,
    optimizes,
    shared_size,
)
from popgraph.session.popart_ir.streaming_phases import Phases
from popgraph.session.popart_ir.streaming_plan import (
    Clock,
    Moment,
    Plan,
    Planner,
    Streaming,
    is_remote,
)
from popgraph.session.settings import TensorLocation
from popgraph.session.tensor_locations import Locations
from popgraph.support.replicas import Grouping

_NUMBER = TensorInfo("INT32", [1])


def asks_to_stream(locations: Locations, graph: OpGraph) -> bool:
    options = locations.options
    told = [
        options.activationTensorLocationSettings.location,
        options.weightTensorLocationSettings.location,
        options.optimizerStateTensorLocationSettings.location,
        options.accumulatorTensorLocationSettings.location,
        *options.tensorLocationSettingsOverride.values(),
    ]
    return any(map(is_remote, told)) or any(op.settings.location for op in graph.ops)


@dataclass
class _Names:
    """How often a tensor has been loaded and gathered, which the names of the results tell."""

    loads: dict[str, int] = field(default_factory=dict)
    gathers: dict[str, int] = field(default_factory=dict)


class Streamer:
    """Streams the tensors of a graph, and tells which of them are shares."""

    def __init__(
        self, graph: OpGraph, locations: Locations, phases: Phases, loss: str | None
    ) -> None:
        self.graph, self._locations, self._phases = graph, locations, phases
        self._clock = Clock(graph, loss, phases.count)
        self._planner = Planner(graph, self._clock, phases.stages, self._where)
        self._names = _Names()
        self.shares = ShareNames()

    @property
    def plans(self) -> dict[str, Plan]:
        return self._planner.plans

    def run(self) -> None:
        self._order_updates()
        for id in self._planner.run():
            plan = self.plans[id]
            if plan.is_remote and plan.variable in (None, id):
                self._stream(plan)
        self._phases.rank_optimizer(self.graph)
        self._place_optimizer()

    def _order_updates(self) -> None:
        """Updates of variables come after all that reads these, whatever they will be read from."""
        graph = self.graph
        for op in graph.ops:
            changed = op.modifies
            id = None if changed is None else op.input(changed)
            if id is not None and graph.kind(id) is Kind.VARIABLE:
                for user in graph.consumers(id):
                    if not user.writes and user is not op:
                        graph.run_after(op, user)

    def _tiles(self, asked: TileSet) -> TileSet:
        return asked if self._locations.options.numIOTiles else TileSet.Compute

    def _place_optimizer(self) -> None:
        """Optimizers, and the sums that they need, are on the tiles that store their variables."""
        for op in self.graph.ops:
            ids = list(op.outputs.values())
            readers = (user for id in ids for user in self.graph.consumers(id))
            if optimizes(op) or (op.type in REDUCE and any(map(optimizes, readers))):
                found = (self.related(id) for id in ids)
                plan = next((one for one in found if one is not None), None)
                if plan is not None:
                    tiles = self._tiles(plan.location.storageTileSet)
                    op.settings = replace(op.settings, tiles=tiles)

    def _where(self, id: str) -> TensorLocation:
        graph, info = self.graph, self.graph.infos[id]
        kind, producer = graph.kind(id), graph.producer(id)
        if kind is Kind.VARIABLE:
            return self._locations.of_variable(id, info)
        if producer is None or kind is not Kind.COMPUTED:
            return self._locations.of_input(id, info)
        told = producer.settings
        given = None if told.recompute is RecomputeType.Recompute else told.location
        constant = _is_constant(graph, id)
        return self._locations.of_result(id, info, given, constant=constant)

    # one tensor

    def _stream(self, plan: Plan) -> None:
        loaded = gathered = plan.id
        stored: list[Op] = []
        for moment, now in sorted(plan.moments.items(), key=lambda one: one[0]):
            load = store = gather = None
            if now.load:
                load = self._load(plan, moment, now)
                loaded = gathered = load.output
            if now.store:
                store = self._store(plan, moment, now, loaded)
            if now.gather:
                gather = self.gather(plan, moment, now.ipu, loaded, self._first(moment, now))
                gathered = gather.output
            for before in stored:
                self._order(before, load)
            self._order(load, gather)
            self._order(load, store)
            if store is not None:
                for op in now.modifiers:
                    self._order(op, store)
                stored.append(store)
            if plan.is_sharded:
                self.shares.add(loaded, gathered, plan.id)
            self._rewire(plan, now, loaded, gathered, load, store)
        for id in (loaded, gathered):
            self.plans.setdefault(id, replace(plan))

    def _order(self, first: Op | None, then: Op | None) -> None:
        if first is not None and then is not None:
            self.graph.run_after(then, first)

    def _rewire(
        self,
        plan: Plan,
        now: Streaming,
        loaded: str,
        gathered: str,
        load: Op | None,
        store: Op | None,
    ) -> None:
        """Has readers read what has been loaded; optimizers read shares, others the whole."""
        graph, here = self.graph, {op for _, op in now.readers}
        for id, op in now.readers:
            producer = graph.producer(id)
            descends = plan.variable is not None and id != plan.id
            if descends and (producer is None or producer in here):
                continue
            self._order(load, op)
            if descends:
                self._order(producer, op)
                self._order(producer, store)
            for index, read in list(op.inputs.items()):
                if read == id:
                    graph.connect(op, index, loaded if optimizes(op) else gathered)

    def _first(self, moment: Moment, now: Streaming) -> Op | None:
        """Where something goes that readers at a moment need."""
        readers = {op for _, op in now.readers}
        if moment.context is Context.WEIGHTS_FROM_HOST:
            return self.graph.ops[0]
        return next((op for op in self.graph.ops if op in readers), None)

    def behind(self, ops: Collection[Op]) -> Op | None:
        """The operator before which something goes that comes after others."""
        places = [at for at, op in enumerate(self.graph.ops) if op in ops]
        if not places or places[-1] + 1 == len(self.graph.ops):
            return None
        return self.graph.ops[places[-1] + 1]

    # operators

    def add(
        self,
        type_: str,
        inputs: Iterable[str],
        output: tuple[str, TensorInfo] | None,
        settings: Settings,
        before: Op | None,
        **attributes: object,
    ) -> Op:
        outputs = {} if output is None else {0: self.graph.add_tensor(*output)}
        made = Op(type_, dict(enumerate(inputs)), outputs, attributes, settings, backward=False)
        made.writes = type_ in (LOAD, STORE)
        return self.graph.add(made, before=before)

    def settings(self, plan: Plan, moment: Moment, ipu: int | None) -> Settings:
        """Of an operator that brings a tensor where it is needed at a moment."""
        phase = None if moment.phase < 0 else moment.phase
        tiles = self._tiles(plan.location.loadTileSet)
        placed = replace(plan.settings, ipu=ipu, phase=phase, tiles=tiles)
        return replace(placed, context=moment.context, priority=0.0)

    def argument(self, id: str) -> str:
        """The constant that says which part of a buffer off the chip belongs to a tensor."""
        name = ARGUMENT + id
        if name not in self.graph.infos:
            self.graph.add_tensor(name, _NUMBER, Kind.CONSTANT)
        return name

    def _load(self, plan: Plan, moment: Moment, now: Streaming) -> Op:
        graph, id = self.graph, plan.id
        count = self._names.loads.get(id, 0)
        self._names.loads[id] = count + 1
        before = self._first(moment, now)
        settings = self._phases.loading(self.settings(plan, moment, now.ipu), LOAD, plan)
        if count:
            source = f"{id}__l{count - 1}"
        elif plan.producer is not None:
            source = id
        else:
            source = f"{id}__init"
            info = graph.infos[id]
            if plan.is_sharded:
                graph.whole[source] = info.shape()
                size = shared_size(info.nelms(), self.members(plan))
                info = TensorInfo(info.data_type(), [size])
            told = self._phases.loading(self.settings(plan, moment, now.ipu), "Init", plan)
            self.add("Init", [], (source, info), told, before, inittype=0)
            graph.kinds[source] = graph.kind(id)
        output = f"{id}__l{count}"
        earlier = graph.consumers(source)
        made = self.add(
            LOAD,
            [source, self.argument(id)],
            (output, graph.infos[source]),
            settings,
            before,
            bufferid=-1,
        )
        if source in graph.whole:
            graph.whole[output] = graph.whole[source]
        for op in earlier:
            if op not in {reader for _, reader in now.readers}:
                graph.run_after(made, op)
        return made

    def members(self, plan: Plan) -> int:
        """How many replicas share a tensor."""
        return self.sharing(plan)[1]

    def sharing(self, plan: Plan) -> Grouping:
        return self._locations.sharing(plan.location.shardingDomain)

    def across(self, plan: Plan) -> Grouping:
        """The replicas that have the same share of a tensor."""
        stride, size = self.sharing(plan)
        if self._locations.shared_by(plan.id) != (1, self.replicas):
            return 1, 1
        return (size, self.replicas // size) if stride == 1 else (1, stride)

    @property
    def replicas(self) -> int:
        return self._locations.options.getGlobalReplicationFactor()

    def group(self, grouping: Grouping) -> list[int]:
        """A group of replicas as collective operators have it."""
        return [self.replicas, *grouping]

    def _store(self, plan: Plan, moment: Moment, now: Streaming, loaded: str) -> Op:
        told = self._phases.storing(self.settings(plan, moment, now.ipu), plan)
        used = {op for _, op in now.readers} | set(now.modifiers)
        if now.produced and plan.producer is not None:
            used.add(plan.producer)
        inputs = [loaded, self.argument(plan.id)]
        return self.add(STORE, inputs, None, told, self.behind(used), bufferid=-1)

    def gather(
        self, plan: Plan, moment: Moment, ipu: int | None, share: str, before: Op | None
    ) -> Op:
        """Has replicas tell each other their shares."""
        graph, id = self.graph, plan.id
        count = self._names.gathers.get(id, 0)
        self._names.gathers[id] = count + 1
        settings = self._phases.loading(self.settings(plan, moment, ipu), GATHER, plan)
        info = TensorInfo(graph.infos[share].data_type(), graph.whole[share])
        inputs = [share, self.argument(bare(id))]
        group = collective(self.group(self.sharing(plan)))
        return self.add(GATHER, inputs, (f"{id}__g{count}", info), settings, before, **group)

    def scatter(
        self, plan: Plan, op: Op, tensors: tuple[str, str], reference: str, *, local: bool
    ) -> Op:
        """Gives each replica its share of a sum over replicas, or of what it has itself."""
        graph, (source, output) = self.graph, tensors
        settings = replace(op.settings, name="", location=None, priority=0.0)
        settings = self._phases.scattering(settings)
        settings = replace(settings, tiles=self._tiles(plan.location.storageTileSet))
        size = shared_size(graph.infos[source].nelms(), self.members(plan))
        info = TensorInfo(graph.infos[source].data_type(), [size])
        graph.whole[output] = graph.shape(source)
        inputs = [source, self.argument(bare(reference))]
        operator = CollectiveOperator.Local if local else CollectiveOperator.Add
        attributes = collective(self.group(self.sharing(plan)), operator)
        made = self.add(SCATTER, inputs, (output, info), settings, op, **attributes)
        made.backward = op.backward
        return made

    def moment(self, op: Op) -> Moment:
        """When an operator runs, one that streaming added, too."""
        if op in self._clock.order:
            return self._clock.of(op)
        return Moment(op.settings.context.place)

    def related(self, id: str) -> Plan | None:
        """The plan of the variable that a tensor goes into."""
        front, seen = [id], set[str]()
        while front:
            one = front.pop()
            if one in seen:
                continue
            seen.add(one)
            plan = self.plans.get(one)
            if plan is not None and plan.variable is not None:
                return self.plans[plan.variable]
            for op in self.graph.consumers(one):
                front += [op.outputs[index] for index in sorted(op.outputs, reverse=True)]
        return None


def _is_constant(graph: OpGraph, id: str) -> bool:
    """Whether a tensor is a constant, or a copy of one on another IPU."""
    while (producer := graph.producer(id)) is not None and producer.type == COPY:
        id = producer.input(0)
    return graph.kind(id) is Kind.CONSTANT
