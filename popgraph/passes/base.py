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
from popgraph.passes.properties import Property
from popgraph.support.locks import Lock
from popgraph.support.machine import Machine
from popgraph.support.tuning import Target, Tuning
from popgraph.support.warnings import Notice, PopgraphWarning

LOWERING = Lock()
"""Held while passes run: xDSL's implicit builders insert twice if two threads use them."""

for _kind in (SSAValue, Operation, Block, Region):
    # xDSL compares and hashes these by identity, too, but in Python: 78,000 calls for SqueezeNet,
    # and 7 % of its way down to kernels (0.50 -> 0.47 s).
    _kind.__hash__ = object.__hash__  # type: ignore[method-assign]
    _kind.__eq__ = object.__eq__  # type: ignore[method-assign]

VECTORS = ("vector_bytes", "registers")
_HOLDERS: dict[str, tuple[str, ...]] = {"target": ("machine", "tuning"), "tuning": ("tuning",)}
"""Fields of passes that hold thresholds, and the parts of a target that they contain."""
_FROM_OPTIONS = (*_HOLDERS, "threads")
"""Fields of passes that options set."""


def _numbers(holder: Machine | Tuning) -> list[str]:
    """The numeric fields, which a text can set."""
    values = ((each.name, getattr(holder, each.name)) for each in fields(holder))
    return [name for name, value in values if isinstance(value, int | float)]


def _take(target: Target, given: dict[str, Any], parts: tuple[str, ...]) -> Target:
    """A target with the numbers among the given arguments, which are removed from `given`."""
    for part in parts:
        holder = getattr(target, part)
        taken = {name: given.pop(name) for name in _numbers(holder) if name in given}
        for name, values in taken.items():
            usual = type(getattr(holder, name))
            if len(values) != 1 or type(values[0]) not in (int, usual):
                raise ValueError(f"{name} requires one {usual.__name__}")
        numbers = {name: values[0] for name, values in taken.items()}
        target = replace(target, **{part: replace(holder, **numbers)})
    return target


class Compilation(IRContext):
    """One compilation: the dialects that its IR text may use, and its weights."""

    def __init__(self, weights: WeightStore | None = None) -> None:
        super().__init__()
        self.weights = weights if weights is not None else WeightStore()
        self.kernels: KnownKernels | None = None
        """Kernels whose loops need not be emitted again; None: emit all loops."""
        self.notices: list[Notice] = []
        """Warnings to repeat at every start; caches store them with the program."""

    def warn(self, what: str, hint: str, kind: type[PopgraphWarning]) -> None:
        notice = Notice(kind, f"{what}\n  try: {hint}")
        self.notices.append(notice)
        notice.give()


@dataclass(frozen=True)
class Pass(ModulePass):
    """
    One step of the compiler: changes a module and keeps its meaning.

    `popgraph passes` prints the docstring's first line. `TOLERANCE` bounds the change of results
    relative to the largest value: 0 promises equal bits.
    """

    TOLERANCE: ClassVar[float] = 0.0
    KEEPS_MEANING: ClassVar[bool] = True
    """False for a pass that changes the meaning on purpose."""
    WRITES_CALLS: ClassVar[bool] = False
    """Whether it writes calls of a program, whose memory accesses POPGRAPH_CHECK=2 proves."""
    IS_LAST: ClassVar[bool] = False
    """Whether no pass runs after it."""
    REASON: ClassVar[str] = "requested by Options.passes"
    """The reason for the position of a pass that is not in the pipeline."""
    NEEDS: ClassVar[tuple[Property, ...]] = ()
    """Properties that the module must have before the pass."""
    GIVES: ClassVar[tuple[Property, ...]] = ()
    """Properties that every module has after the pass."""
    LOSES: ClassVar[tuple[Property, ...]] = ()
    """Properties that the pass may end; it keeps all others."""
    AFTER: ClassVar[tuple[str, ...]] = ()
    """Names of passes that this one must follow, for better code; properties need no mention."""
    BEFORE: ClassVar[tuple[str, ...]] = ()
    """Names of passes that must follow this one, for better code."""

    @classmethod
    def of(cls, options: Options) -> Self | None:
        """
        The pass configured by these options; None if they do not need it.

        Fields named `target`, `tuning` and `threads` have the values of the options.
        """
        own = {each.name for each in fields(cls)}
        return cls(**{name: getattr(options, name) for name in _FROM_OPTIONS if name in own})

    @classmethod
    def from_spec(cls, spec: ArgSpec) -> Self:
        """
        The pass in its text form, as `popgraph opt -p` takes it.

        A pass with a target takes thresholds by name: `{vector-bytes=16 least-products=1}`.
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

    @property
    def gives(self) -> tuple[Property, ...]:
        """The properties that the pass gives with its parameters."""
        return self.GIVES

    def spec(self, *, include_default: bool = False) -> ArgSpec:
        """The text form of the pass, with the numbers of a target that are not the default."""
        held = {name: getattr(self, name) for name in _HOLDERS if hasattr(self, name)}
        plain = {name: type(value)() for name, value in held.items()}
        text = super(Pass, replace(self, **plain)).spec(include_default=include_default)
        parameters = {name: text.parameters[name] for name in text.parameters.keys() - held.keys()}
        target = held.get("target") or Target(tuning=held.get("tuning", Tuning()))
        for part in (target.machine, target.tuning):
            usual = type(part)()
            for name in _numbers(part):
                if getattr(part, name) != getattr(usual, name):
                    parameters[name] = (getattr(part, name),)
        return ArgSpec(text.name, parameters)

    @abstractmethod
    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        """Changes `module` in place."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Entry point of xDSL: a plain context gets an empty weight store."""
        if not isinstance(ctx, Compilation):
            ctx = Compilation()
        self.run(ctx, op)
