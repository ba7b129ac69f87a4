"""Learning rate schedules: linear, cosine, step, exponential, with warmup."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from math import cos, pi

from popgraph.builder.pgraph.check.const_eval import folded
from popgraph.builder.pgraph.check.scope import Scope
from popgraph.builder.pgraph.syntax.python_calls import bound
from popgraph.builder.pgraph.syntax.source import Failed, Source
from popgraph.builder.pgraph.syntax.tree import Argument, Call, Expression, Missing, Name, Number
from popgraph.support.names import Names


def linear(at: int, steps: int, end: float = 0.0) -> float:
    """From 1 to `end`, linearly over `steps` steps."""
    return 1 + (end - 1) * _share(at, steps)


def cosine(at: int, steps: int, end: float = 0.0) -> float:
    """From 1 to `end` along half a cosine wave over `steps` steps (Loshchilov and Hutter 2016)."""
    return end + (1 - end) * (1 + cos(pi * _share(at, steps))) / 2


def step(at: int, every: int, factor: float = 0.1) -> float:
    """Multiplied by `factor` after every `every` steps."""
    return float(factor ** (at // every))


def exponential(at: int, factor: float, every: int = 1) -> float:
    """Like `step`, but continuous: `factor ** (t / every)`."""
    return float(factor ** (at / every))


def constant(at: int) -> float:
    """Always 1; useful with a warmup."""
    return 1.0


def _share(at: int, steps: int) -> float:
    return min(1.0, at / steps)


SCHEDULES: dict[str, Callable[..., float]] = {
    function.__name__: function for function in (constant, linear, cosine, step, exponential)
}

SCHEDULE_NAMES = Names(
    "schedule",
    {**dict.fromkeys(SCHEDULES, ""), "cosine": "CosineDecay cosine_annealing"}
    | {"exponential": "ExponentialDecay"},
)
"""PyTorch's schedules count epochs, ours count steps: their names are not aliases."""

PARAMETERS: Mapping[str, Mapping[str, str]] = {
    "cosine": {"decay_steps": "steps", "alpha": "end", "warmup_steps": "warmup"},
    "exponential": {"decay_steps": "every", "decay_rate": "factor"},
}
"""Keras names of parameters."""

WARMUP = "warmup"
"""Parameter of every schedule: steps of a linear warmup."""

_COUNTS = ("steps", "every", WARMUP)


@dataclass(frozen=True)
class Schedule:
    """`cosine(steps=1000, warmup=100)`: the factor of the learning rate in each step."""

    name: str
    arguments: Mapping[str, int | float] = field(default_factory=dict)
    warmup: int = 0

    def factor(self, at: int) -> float:
        """The factor in a step, counted from 0. The warmup precedes the schedule."""
        if at < self.warmup:
            return (at + 1) / self.warmup
        return SCHEDULES[self.name](at - self.warmup, **self.arguments)


def schedule_of(source: Source, expression: Expression, scope: Scope) -> Schedule:
    """Parses a schedule; fails if there is none of this name."""
    arguments: tuple[Argument, ...] = ()
    match expression:
        case Name():
            name = expression
        case Call(path=path, arguments=given) if len(path.parts) == 1:
            name, arguments = path.parts[0], given
        case _:
            source.parse_error(
                expression.span, "a schedule is a name with arguments", "`cosine(steps=1000)`"
            )
            raise Failed
    meant = SCHEDULE_NAMES.find(name.text)
    if meant is None:
        source.parse_error(name.span, *SCHEDULE_NAMES.unknown(name.text))
        raise Failed
    number = partial(_number, source, scope)
    arguments = tuple(_canonical_keyword(one, meant) for one in arguments)
    found = bound(source, name, SCHEDULES[meant], arguments, number, (WARMUP,))
    return Schedule(meant, found, int(found.pop(WARMUP, 0)))


def _canonical_keyword(argument: Argument, schedule: str) -> Argument:
    """Renames a Keras parameter."""
    keyword = argument.keyword
    if keyword is None:
        return argument
    ours = PARAMETERS.get(schedule, {}).get(keyword.text, keyword.text)
    return replace(argument, keyword=replace(keyword, text=ours))


def _number(source: Source, scope: Scope, argument: Argument, key: str) -> int | float:
    value = argument.value
    if not isinstance(value, Missing):
        value = folded(source, value, scope.known)
    counts = key in _COUNTS
    match value:
        case Number(value=int() as number) if counts and number >= (key != WARMUP):
            return number
        case Number(value=number) if not counts and number >= 0:
            return number
    least = "0" if key == WARMUP or not counts else "1"
    kind = "an integer" if counts else "a number"
    source.parse_error(value.span, f"`{key}` must be {kind} of at least {least}")
    raise Failed
