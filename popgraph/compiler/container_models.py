"""Models with sequences and optionals: one model of tensors per combination of lengths."""

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
"""Lengths by input name."""


@dataclass
class ContainerModel:
    """
    Maps sequences and optionals to the tensor inputs and outputs of programs.

    Lengths are part of a program's signature, as shapes are. After many different lengths, no more
    programs are built; Python then holds the sequences.
    """

    inputs: Mapping[str, Attribute]
    """The types of inputs that are sequences or optionals."""
    outputs: Collection[str]
    """The outputs that are sequences or optionals."""
    taken: Collection[str]
    """The names of all required inputs."""
    given: Collection[str]
    """The names of all outputs, in order."""
    make: Callable[[Lengths], Runner]
    """Builds the model of tensors for these lengths."""
    otherwise: Callable[[], Runner]
    """Builds the model that keeps sequences in Python, for any length."""
    _made: dict[tuple[Length, ...], Runner] = field(default_factory=dict)
    _other: Runner | None = None
    _making: Lock = field(default_factory=Lock)

    @property
    def only(self) -> Runner:
        """The model of tensors, built at once if no input is a sequence."""
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
        """C or Python, for the runs so far."""
        with self._making:
            made = [*self._made.values(), *filter(None, [self._other])]
        return reduce(or_, (runner.computed_by for runner in made), ComputedBy())

    def _opened(self, inputs: Mapping[str, Any]) -> tuple[dict[str, Length], dict[str, Any]]:
        """The lengths of the given sequences, and their tensors by program input."""
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
        """The model for these lengths; None if there are too many."""
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
