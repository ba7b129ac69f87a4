"""Operators of optimizers that work on shares of tensors, as far as these can be handed on."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum

from popgraph.builder.opset.enums import CollectiveOperator
from popgraph.builder.opset.exceptions import popart_exception
from popgraph.builder.opset.tensorinfo import TensorInfo
from popgraph.session.popart_ir.graph import COLLECTIVES, Kind, Op, OpGraph
from popgraph.session.popart_ir.remote_ops import (
    GATHER,
    LOAD,
    REDUCE,
    STORE,
    Indices,
    bare,
    collective,
    optimizes,
    share_indices,
    shown,
)
from popgraph.session.popart_ir.schedule import scheduled
from popgraph.session.popart_ir.streaming import Streamer, asks_to_stream
from popgraph.session.popart_ir.streaming_phases import Phases
from popgraph.session.popart_ir.streaming_plan import Memory, Plan
from popgraph.session.tensor_locations import Locations, Role
from popgraph.support.replicas import Grouping

_SQUARES = frozenset(["LambSquare", "ReduceSumSquare"])
"""What makes one number of a tensor, which replicas add up if each has a share."""


def stream_memory(graph: OpGraph, locations: Locations, phases: Phases, loss: str | None) -> None:
    """Adds what loads, stores, gathers and scatters tensors that are not whole on the chip."""
    if phases or asks_to_stream(locations, graph):
        graph.ops = scheduled(graph)
        streamer = Streamer(graph, locations, phases, loss)
        streamer.run()
        _Sharing(streamer).run()
        graph.ops = scheduled(graph)


class _Way(Enum):
    """Where a share comes from."""

    LOADED = "loaded"
    COMPUTED = "computed"
    REDUCED = "reduced"
    """The sum over replicas gives each its share, and no more the whole."""
    CUT = "cut"
    """Each replica takes its share of what all have."""


@dataclass
class _Proposal:
    """What is to be shares."""

    tensors: dict[str, _Way] = field(default_factory=dict)
    ops: dict[Op, None] = field(default_factory=dict)
    references: dict[Op, str] = field(default_factory=dict)
    """The weight by whose elements an operator's tensors are shared out."""
    copied: dict[Op, None] = field(default_factory=dict)
    """Updates that do not change the variable itself, but what is copied into it."""

    def take(self, op: Op, reference: str) -> None:
        self.ops[op] = None
        self.references[op] = reference


class _Proposer:
    """Proposes shares, from what has been loaded on, as long as operators can work on them."""

    def __init__(self, streamer: Streamer) -> None:
        self._streamer, self._graph = streamer, streamer.graph
        self._shares = streamer.shares
        self._memory = Memory(streamer.graph)
        self._waiting: dict[Op, None] = {}
        self.found = _Proposal()

    def run(self) -> _Proposal:
        for share in self._shares:
            self.found.tensors[share] = _Way.LOADED
            self._await(share, self._shares.reference(share))
        changed = True
        while changed:
            changed = False
            for op in sorted(self._waiting, key=lambda op: op.number):
                changed |= self._analyse(op)
        for op in self._waiting:
            self._resolve(op)
        return self.found

    def _await(self, id: str, reference: str) -> None:
        for op in self._graph.consumers(id):
            self._waiting[op] = None
            self.found.references[op] = reference

    def _indices(self, op: Op) -> Indices | None:
        able = optimizes(op) or op.type in COLLECTIVES or op.type in (LOAD, STORE)
        return share_indices(self._graph, op) if able else None

    def _analyse(self, op: Op) -> bool:
        """Whether anything new follows from an operator."""
        indices, reference = self._indices(op), self.found.references[op]
        if indices is None or not self._fits_buffer(op):
            return False
        changed, every = False, True
        for index in indices[0]:
            shared, new = self._propose_input(op, index, reference)
            every &= shared
            changed |= new
        if not every:
            return changed
        for index in indices[1]:
            self.found.tensors[op.outputs[index]] = _Way.COMPUTED
            self._await(op.outputs[index], reference)
        del self._waiting[op]
        self.found.take(op, reference)
        return True

    def _propose_input(self, op: Op, index: int, reference: str) -> tuple[bool, bool]:
        """Whether an input is to be a share, and whether that is new."""
        id, found = op.input(index), self.found
        producer = self._graph.producer(id)
        updates = op.changes == 0 and index == 0
        if id in found.tensors:
            if found.tensors[id] is _Way.CUT and updates:
                found.copied[op] = None
            return True, False
        if producer is not None and producer.type in REDUCE:
            found.tensors[id] = _Way.REDUCED
            self._await(id, reference)
            return True, True
        if self._is_weight(id) and (updates or op.changes != index):
            if updates:
                found.copied[op] = None
            found.tensors[id] = _Way.CUT
            found.take(op, reference)
            self._await(id, reference)
            return True, True
        able = producer is not None and share_indices(self._graph, producer) is not None
        if producer is None or not able or producer in self._waiting or producer in found.ops:
            return False, False
        self._waiting[producer] = None
        found.references[producer] = reference
        return False, True

    def _is_weight(self, id: str) -> bool:
        """Whether a tensor has the memory of a weight."""
        kinds = (one for one in self._memory.of(id) if self._graph.kind(one) is Kind.VARIABLE)
        return any(Role.of_variable(one) is Role.WEIGHT for one in kinds)

    def _fits_buffer(self, op: Op) -> bool:
        """Whether the buffer off the chip has shares, if an operator loads or stores."""
        if op.type not in (LOAD, STORE):
            return True
        for user in self._graph.consumers(op.input(1)):
            for id in (*user.inputs.values(), *user.outputs.values()):
                if id in self._shares or (id in self.found.tensors and user in self.found.ops):
                    return True
        return False

    def _resolve(self, op: Op) -> None:
        """An operator that has shares and others works on the whole, unless it changes a share."""
        indices = share_indices(self._graph, op)
        inputs = () if indices is None else indices[0]
        shared = [index for index in inputs if op.input(index) in self._shares]
        if len(shared) == len(inputs) or op.changes not in shared:
            return
        for index in inputs:
            if index != 0 or op.changes != 0 or not self._is_weight(op.input(index)):
                raise popart_exception(
                    f"[StreamingMemory] Op {shown(op)} modifies a sharded tensor, but not all "
                    "required sharded inputs could be connected. Adjust the replicated tensor "
                    "sharding settings. Bailing.",
                    "SessionOptions",
                )
            self.found.tensors[op.output] = _Way.CUT
            self.found.copied[op] = None


class _Sharing:
    """Makes operators work on shares."""

    def __init__(self, streamer: Streamer) -> None:
        self._streamer, self._graph, self._shares = streamer, streamer.graph, streamer.shares
        self._proposal = _Proposal()

    def run(self) -> None:
        self._proposal = _Proposer(self._streamer).run()
        for op in sorted(self._proposal.copied, key=lambda op: op.number):
            self._copy_result(op)
        for op in scheduled(self._graph):
            if op in self._proposal.ops:
                self._share(op)
            else:
                self._make_whole(op)

    def _copy_result(self, op: Op) -> None:
        """VarUpdate(v) -> CopyVarUpdate(v, VarUpdate(v))."""
        graph, proposal, updated = self._graph, self._proposal, op.output
        between = graph.fresh(updated, graph.infos[updated])
        graph.rename_output(op, 0, between)
        settings = op.settings.renamed("")
        inputs = {0: op.input(0), 1: between}
        made = Op("CopyVarUpdate", inputs, {0: updated}, {}, settings, writes=True, backward=True)
        graph.add(made, before=self._streamer.behind([op]))
        graph.order_alike(op, made)
        reference = proposal.references.get(op, "")
        if op not in proposal.ops:
            proposal.tensors |= {between: _Way.CUT, updated: _Way.COMPUTED}
            proposal.take(made, reference)
        proposal.references[made] = reference

    def _share(self, op: Op) -> None:
        graph, reference = self._graph, self._proposal.references[op]
        indices = share_indices(graph, op)
        assert indices is not None, "operators are proposed that can work on shares"
        plan: Plan | None = None
        for index in indices[0]:
            id = op.input(index)
            plan = self._streamer.related(id) or plan
            if id not in self._shares:
                self._bring_share(op, id, reference)
            graph.connect(op, index, self._shares.share(id))
        for index in indices[1]:
            self._give_share(op, index, indices[0])
            self._shares.add(op.outputs[index], "", reference)
        if op.type in _SQUARES and plan is not None:
            self._add_up(op, self._streamer.sharing(plan))

    def _give_share(self, op: Op, index: int, inputs: tuple[int, ...]) -> None:
        """Makes a result as large as what it is computed of."""
        graph, id = self._graph, op.outputs[index]
        if inputs:
            like = op.input(inputs[0])
            graph.infos[id] = TensorInfo(graph.infos[id].data_type(), graph.shape(like))
            graph.whole[id] = graph.whole.get(like, graph.shape(like))

    def _add_up(self, op: Op, group: Grouping) -> None:
        """Squares of shares add up to those of the whole."""
        graph, total = self._graph, op.output
        if any(user.type in REDUCE for user in graph.consumers(total)):
            return
        own = graph.fresh(total, graph.infos[total])
        graph.rename_output(op, 0, own)
        attributes = collective(self._streamer.group(group), CollectiveOperator.Add)
        settings = op.settings.renamed("")
        made = Op("ReplicatedAllReduceInplace", {0: own}, {0: total}, attributes, settings)
        made.backward = True
        graph.add(made, before=self._streamer.behind([op]))

    def _bring_share(self, op: Op, id: str, reference: str) -> None:
        producer = self._graph.producer(id)
        if self._proposal.tensors[id] is _Way.REDUCED and producer is not None:
            self._reduce_to_shares(producer, reference)
            self._shares.add(id, "", reference)
            return
        plan = self._streamer.related(id) or self._streamer.plans[id]
        cut = self._graph.fresh(id, self._graph.infos[id])
        self._streamer.scatter(plan, op, (id, cut), reference, local=True)
        self._shares.add(cut, id, reference)

    def _reduce_to_shares(self, op: Op, reference: str) -> None:
        """
        ReplicatedAllReduce(g) -> ReplicatedReduceScatter(g).

        Where a tensor has shares within groups of replicas, these add up theirs.
        """
        graph, source, id = self._graph, op.input(0), op.output
        plan = self._streamer.related(id) or self._streamer.plans[id]
        across = self._streamer.across(plan)
        apart = 1 < across[1] < self._streamer.replicas
        share = graph.fresh(id, graph.infos[id]) if apart else id
        made = self._streamer.scatter(plan, op, (source, share), reference, local=False)
        made.settings = replace(made.settings, ipu=op.settings.ipu)
        graph.order_alike(op, made)
        if share == id:
            graph.forget(op)
            return
        graph.connect(op, 0, share)
        graph.infos[id], graph.whole[id] = graph.infos[share], graph.whole[share]
        op.attributes |= collective(self._streamer.group(across))

    def _make_whole(self, op: Op) -> None:
        """Gathers what an operator reads that does not work on shares."""
        for index, id in list(op.inputs.items()):
            if id not in self._shares or op.type == GATHER:
                continue
            gathered = self._shares.gathered(id)
            if not gathered:
                plan = self._streamer.related(id)
                assert plan is not None, "a share belongs to a variable"
                moment, ipu = self._streamer.moment(op), op.settings.ipu
                made = self._streamer.gather(plan, moment, ipu, id, op)
                gathered = made.output
                self._shares.add(id, gathered, bare(self._proposal.references.get(op, "")))
                for first, later in list(self._graph.later.items()):
                    if op in later:
                        self._graph.run_after(made, first)
            self._graph.connect(op, index, gathered)
