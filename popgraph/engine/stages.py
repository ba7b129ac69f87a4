"""The stages of a pipeline: which there are, and how much later each stage updates its weights."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from popgraph.passes.graphcore.stages.places import Pipeline


def merged(homes: Mapping[int, int | None]) -> dict[int, int]:
    """New numbers of stages, by the IPU of each: those that follow each other on one are one."""
    found: dict[int, int] = {}
    fewer, before = 0, None
    for place, stage in enumerate(sorted(homes)):
        if place and homes[stage] is not None and homes[stage] == before:
            fewer += 1
        before = homes[stage]
        found[stage] = stage - fewer
    return found


@dataclass(frozen=True)
class Staged:
    """A node on its stage: what it reads and computes, and the IPU that it is on."""

    stage: int
    ipu: int | None
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Stages:
    """
    A pipeline of nodes in order.

    In cycle c, stage s works on batch c - s. If `loss` is trained, the gradients of what stage s
    computes belong to stage 2 L - s, where L is the stage of the loss. Where its last stage forward
    is to run without them, they are `apart`, one stage later, and none is joined with another.
    """

    nodes: tuple[Staged, ...]
    loss: str | None = None
    trained: Collection[str] = field(default=frozenset())
    apart: bool = False

    @property
    def last(self) -> int:
        """The stage of the loss."""
        found = (node.stage for node in self.nodes if self.loss in node.outputs)
        return next(found, max((node.stage for node in self.nodes), default=0))

    @cached_property
    def numbers(self) -> Mapping[int, int]:
        """What each stage is called in the end, those of gradients included."""
        homes = {node.stage: node.ipu for node in self.nodes}
        for stage in {node.stage for node in self.nodes if node in self._differentiated}:
            homes.setdefault(self.back(stage), homes[stage])
        return {stage: stage for stage in homes} if self.apart else merged(homes)

    def back(self, stage: int) -> int:
        """The stage of gradients of what a stage computes."""
        return 2 * self.last + self.apart - stage

    @property
    def count(self) -> int:
        return len(set(self.numbers.values()))

    @property
    def missing(self) -> int | None:
        """The first stage that has no nodes although a later one has."""
        held = set(self.numbers.values())
        return next((stage for stage in range(len(held)) if stage not in held), None)

    @cached_property
    def _differentiated(self) -> set[Staged]:
        """The nodes on the way from what is trained to the loss."""
        if self.loss is None:
            return set()
        moving, downstream = set(self.trained), set()
        for node in self.nodes:
            if not moving.isdisjoint(node.inputs):
                downstream.add(node)
                moving.update(node.outputs)
        needed, upstream = {self.loss}, set()
        for node in reversed(self.nodes):
            if node in downstream and not needed.isdisjoint(node.outputs):
                upstream.add(node)
                needed.update(node.inputs)
        return upstream

    def delay(self, weight: str) -> int:
        """
        Of how many batches a weight has not seen the gradients yet when a batch comes to it.

        The stages of a cycle run in order, so that it is read before it is updated. While a batch
        is on its way to the loss and back, those behind it come by.
        """
        stages = self.stages_of(weight)
        return self._number(self.back(stages[0])) - self._number(stages[0]) if stages else 0

    @property
    def pipeline(self) -> Pipeline:
        """The stages by the numbers that they have in the end, and where each is."""
        moved = {node.stage for node in self._differentiated}
        own = {node.stage: node.stage if node.ipu is None else node.ipu for node in self.nodes}
        homes = {self._number(stage): home for stage, home in own.items()}
        homes |= {self._number(self.back(stage)): own[stage] for stage in moved}
        back = {self._number(stage): self._number(self.back(stage)) for stage in moved}
        weights = {id: self.delay(id) for id in self.trained}
        return Pipeline(dict(sorted(homes.items())), back, weights)

    @property
    def of_tensors(self) -> dict[str, int]:
        """The stage that computes each tensor."""
        return {id: self._number(node.stage) for node in self.nodes for id in node.outputs}

    @property
    def of_gradients(self) -> dict[str, int]:
        """The stage that computes the gradient of the node of each tensor."""
        moved = self._differentiated
        return {id: self._number(self.back(node.stage)) for node in moved for id in node.outputs}

    def _number(self, stage: int) -> int:
        return self.numbers.get(stage, stage)

    def stages_of(self, weight: str) -> list[int]:
        """The stages that read a weight on the way to the loss."""
        found = {node.stage for node in self._differentiated if weight in node.inputs}
        return sorted(found)
