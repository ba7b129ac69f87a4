"""The base of all passes, and the compilation that they work in."""

from __future__ import annotations

import json
from abc import abstractmethod
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.passes import ModulePass
from xdsl.utils.arg_spec import ArgSpec

from popgraph.dialects.program import WeightStore
from popgraph.dialects.registry import IRContext
from popgraph.dialects.tile.loops.known import KnownKernels
from popgraph.passes.options import Options
from popgraph.support.locks import Lock
from popgraph.support.machine import Machine
from popgraph.support.tuning import Target, Tuning
from popgraph.support.warnings import Notice, PopgraphWarning

LOWERING = Lock()
"""Held while passes run: implicit builders of xDSL, in two threads at once, insert twice."""

for _kind in (SSAValue, Operation, Block, Region):
    # xDSL compares and hashes these by identity, too, but in Python: 78,000 calls for SqueezeNet,
    # and 7 % of its way down to kernels (0.50 -> 0.47 s).
    _kind.__hash__ = object.__hash__  # type: ignore[method-assign]
    _kind.__eq__ = object.__eq__  # type: ignore[method-assign]

VECTORS = ("vector_bytes", "registers")
_HOLDERS: dict[str, tuple[str, ...]] = {"target": ("machine", "tuning"), "tuning": ("tuning",)}
"""The fields of passes that hold numbers, and which parts of a target they are."""


def _numbers(holder: Machine | Tuning) -> list[str]:
    """The fields that a text can set."""
    values = ((each.name, getattr(holder, each.name)) for each in fields(holder))
    return [name for name, value in values if isinstance(value, int | float)]


def _take(target: Target, given: dict[str, Any], parts: tuple[str, ...]) -> Target:
    """A target with those of the given arguments that are its numbers, which leave `given`."""
    for part in parts:
        holder = getattr(target, part)
        taken = {name: given.pop(name) for name in _numbers(holder) if name in given}
        for name, values in taken.items():
            usual = type(getattr(holder, name))
            if len(values) != 1 or type(values[0]) not in (int, usual):
                raise ValueError(f"{name} wants one {usual.__name__}")
        numbers = {name: values[0] for name, values in taken.items()}
        target = replace(target, **{part: replace(holder, **numbers)})
    return target


class Compilation(IRContext):
    """One compilation: the dialects that its text may use and the weights that it holds."""

    def __init__(self, weights: WeightStore | None = None) -> None:
        super().__init__()
        self.weights = weights if weights is not None else WeightStore()
        self.kernels: KnownKernels | None = None
        """Kernels whose loops need not be written again; None: all loops are to be seen."""
        self.notices: list[Notice] = []
        """What the user should hear at every start: caches keep it with the program."""

    def warn(self, what: str, hint: str, kind: type[PopgraphWarning]) -> None:
        """Tells the user something of the model."""
        notice = Notice(kind, f"{what}\n  try: {hint}")
        self.notices.append(notice)
        notice.give()


@dataclass(frozen=True)
class Pass(ModulePass):
    """
    One step of the compiler: takes a module to one that means the same.

    The docstring's first line is what `popgraph passes` prints. `TOLERANCE` is how much the
    results may change, relative to the largest value: 0 promises the same bits.
    """

    TOLERANCE: ClassVar[float] = 0.0
    KEEPS_MEANING: ClassVar[bool] = True
    """False for a pass whose job is to change what the program does."""
    IS_LAST: ClassVar[bool] = False
    """Whether no pass runs after it."""
    REASON: ClassVar[str] = "Options.passes asks for it"
    """Why a pass that is not in the pipeline runs where it does."""

    @classmethod
    def of(cls, options: Options) -> Pass | None:
        """The pass as these options want it; None when it does not apply."""
        return cls()

    @classmethod
    def from_spec(cls, spec: ArgSpec) -> Self:
        """
        The pass that a text asks for, as `popgraph opt -p` takes it.

        A pass that has a target takes its numbers by name: `{vector-bytes=16 least-products=1}`.
        """
        own, given = {each.name for each in fields(cls)}, spec.normalize_parameter_names()
        rest, target = dict(given.parameters), Target()
        for name in _HOLDERS.keys() & own:
            target = _take(target, rest, _HOLDERS[name])
            if unknown := rest.keys() - own:
                wanted = sorted(own - _HOLDERS.keys())
                known = [*VECTORS[: 2 * (name == "target")], *wanted, "the fields of Tuning"]
                raise ValueError(
                    f"Provided arguments {json.dumps(sorted(unknown))} not found in expected "
                    f"arguments {json.dumps(known)}"
                )
        made = super().from_spec(ArgSpec(spec.name, rest))
        held: dict[str, Any] = {"target": target, "tuning": target.tuning}
        return replace(made, **{name: held[name] for name in _HOLDERS.keys() & own})

    def spec(self, *, include_default: bool = False) -> ArgSpec:
        """The text that asks for the pass; of a target, numbers that are not the default."""
        held = {name: getattr(self, name) for name in _HOLDERS if hasattr(self, name)}
        plain = {name: type(value)() for name, value in held.items()}
        told = super(Pass, replace(self, **plain)).spec(include_default=include_default)
        parameters = {name: told.parameters[name] for name in told.parameters.keys() - held.keys()}
        target = held.get("target") or Target(tuning=held.get("tuning", Tuning()))
        for part in (target.machine, target.tuning):
            usual = type(part)()
            for name in _numbers(part):
                if getattr(part, name) != getattr(usual, name):
                    parameters[name] = (getattr(part, name),)
        return ArgSpec(told.name, parameters)

    @abstractmethod
    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        """Changes `module` in place."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """xDSL's entry: a plain context gets an empty weight store."""
        if not isinstance(ctx, Compilation):
            ctx = Compilation()
        self.run(ctx, op)
