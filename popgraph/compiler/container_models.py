"""Models that take or give sequences and optionals: a model of tensors for each of the lengths."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Any, TypeAlias

from xdsl.ir import Attribute

from popgraph.backends.base import ComputedBy, Executable
from popgraph.dialects.onnx.open_containers import Length, closed, opened
from popgraph.open_model import SPECIALISATIONS
from popgraph.runner import Runner
from popgraph.support.given import check_names
from popgraph.support.locks import Lock

Lengths: TypeAlias = Mapping[str, Length]
"""By the names of inputs."""


@dataclass
class ContainerModel:
    """
    Sequences and optionals in, and out: their tensors are the inputs and outputs of programs.

    The number of tensors joins the signature of a program, as shapes do. Where a model is called
    with many, no more programs are made: Python holds its sequences then.
    """

    inputs: Mapping[str, Attribute]
    """The inputs that are sequences or optionals, with their types."""
    outputs: Collection[str]
    """The outputs that are."""
    taken: Collection[str]
    """The names of all inputs that a call must bring."""
    given: Collection[str]
    """The names of all outputs, in order."""
    make: Callable[[Lengths], Runner]
    """Makes the model of tensors for sequences of these lengths."""
    otherwise: Callable[[], Runner]
    """Makes the model whose sequences Python holds, whatever their lengths."""
    _made: dict[tuple[Length, ...], Runner] = field(default_factory=dict)
    _other: Runner | None = None
    _making: Lock = field(default_factory=Lock)

    @property
    def only(self) -> Runner:
        """The model of tensors where no input is a sequence: it is made at once."""
        made = self._runner({})
        assert made is not None, "one is not too many"
        return made

    def run(self, inputs: Mapping[str, Any], donate: Collection[str] = ()) -> dict[str, Any]:
        """The outputs for these inputs; see `Executable.run`."""
        lengths, tensors = self._opened(inputs)
        runner = self._runner(lengths)
        if runner is None:
            return self._python()(inputs, donate=donate)
        made = runner(tensors, donate=donate)
        return {
            name: closed(name, made) if name in self.outputs else made[name] for name in self.given
        }

    def program(self, inputs: Mapping[str, Any]) -> Executable:
        """The program of tensors for inputs like these."""
        lengths, tensors = self._opened(inputs)
        runner = self._runner(lengths)
        return self._python().program(inputs) if runner is None else runner.program(tensors)

    @property
    def computed_by(self) -> ComputedBy:
        """The programs, and the nodes in Python, of its runs so far."""
        with self._making:
            made = [*self._made.values(), *filter(None, [self._other])]
        return reduce(or_, (runner.computed_by for runner in made), ComputedBy())

    def _opened(self, inputs: Mapping[str, Any]) -> tuple[dict[str, Length], dict[str, Any]]:
        """The lengths of the given sequences, and tensors by the names of a program's inputs."""
        if any(name not in inputs for name in self.inputs):
            check_names(inputs, self.taken)
        lengths, tensors = dict[str, Length](), dict[str, Any]()
        for name, value in inputs.items():
            if name in self.inputs:
                lengths[name], found = opened(name, self.inputs[name], value)
                tensors |= found
            else:
                tensors[name] = value
        return lengths, tensors

    def _runner(self, lengths: Lengths) -> Runner | None:
        """The model for these lengths; None if there are too many of them."""
        key = tuple(lengths[name] for name in self.inputs)
        with self._making:
            if key not in self._made and len(self._made) < SPECIALISATIONS:
                self._made[key] = self.make(lengths)
            return self._made.get(key)

    def _python(self) -> Runner:
        with self._making:
            if self._other is None:
                self._other = self.otherwise()
            return self._other
