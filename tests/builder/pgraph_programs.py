"""Random `.pgraph` programs with branches and loops, and their results by NumPy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

Array = Any
Step = tuple[Any, ...]
"""The kind of a statement, followed by integers that choose its operands: plain data."""

ROWS, SIZE = 4, 3
HEAD = f"graph g(a: f32[{SIZE}], b: f32[{SIZE}], m: f32[{ROWS}, {SIZE}], n: i64) -> y {{"
LEAST = (-1.123, -0.217, 0.431, 1.377)
"""Bounds that sums are compared with; no sum is close enough for rounding to decide."""

choice = st.integers(0, 20)


@st.composite
def programs(draw: st.DrawFn, depth: int = 2, most: int = 3) -> list[Step]:
    """Statements, one after the other; blocks are nested `depth` times."""
    return [step(draw, depth) for _ in range(draw(st.integers(1, most)))]


def step(draw: st.DrawFn, depth: int) -> Step:
    kinds = ["one", "two", "if", "turns", "while", "rows"] if depth else ["one", "two"]
    kind = draw(st.sampled_from(kinds))
    picks = tuple(draw(choice) for _ in range(4))
    if kind in ("one", "two"):
        return (kind, *picks)
    inner = programs(depth - 1, 2)
    blocks = [draw(inner)] + ([draw(inner)] if kind == "if" else [])
    return (kind, *picks, draw(st.booleans()), *blocks)


@dataclass
class Text:
    """
    Writes a program as text.

    The scope is a list of names here and a list of arrays in `run`, so that an index picks the
    same value in both.
    """

    count: int = 0
    lines: list[str] = field(default_factory=list)

    def whole(self, program: list[Step]) -> str:
        scope = ["a", "b"]
        self.block(program, scope, 1)
        return "\n".join(["opset 21", HEAD, *self.lines, f"    y = {' + '.join(scope)}", "}", ""])

    def name(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def block(self, program: list[Step], scope: list[str], depth: int) -> None:
        for one in program:
            getattr(self, f"write_{one[0].replace('if', 'branches').replace('while', 'until')}")(
                one, scope, depth
            )

    def write_one(self, one: Step, scope: list[str], depth: int) -> None:
        value = scope[one[1] % len(scope)]
        scope.append(self.name())
        self.line(
            depth,
            f"{scope[-1]} = {('Tanh({})', '-{}', 'Relu({} - 0.5)')[one[2] % 3]}".format(value),
        )

    def write_two(self, one: Step, scope: list[str], depth: int) -> None:
        first, second = scope[one[1] % len(scope)], scope[one[2] % len(scope)]
        scope.append(self.name())
        self.line(depth, f"{scope[-1]} = Tanh({first} {'+-*'[one[3] % 3]} {second})")

    def write_branches(self, one: Step, scope: list[str], depth: int) -> None:
        _, pick, least, first, second, says, *blocks = one
        condition = f"ReduceSum({scope[pick % len(scope)]}, keepdims=0) > {LEAST[least % 4]}"
        result, ends, places = self.name(), [], []
        for block in blocks:
            places.append(len(self.lines))
            self.line(depth, "")
            inner = list(scope)
            self.block(block, inner, depth + 1)
            ends.append(inner[(first, second)[len(ends)] % len(inner)])
            if not says:
                self.line(depth + 1, f"{result} = {ends[-1]}")
        gives = [f"-> {end} " if says else "" for end in ends]
        margin = "    " * depth
        self.lines[places[0]] = f"{margin}{result} = if {condition} {gives[0]}{{"
        self.lines[places[1]] = f"{margin}}} else {gives[1]}{{"
        self.line(depth, "}")
        scope.append(result)

    def write_turns(self, one: Step, scope: list[str], depth: int) -> None:
        end = ("0..3", "1..4", "0..n", "0..0")[one[4] % 4]
        self.loop(one, scope, depth, lambda number: f"{number} in {end}")

    def write_rows(self, one: Step, scope: list[str], depth: int) -> None:
        row, counted = self.name(), one[4] % 2
        self.loop(
            one,
            scope,
            depth,
            lambda number: f"{number} in 1.., {row} in m" if counted else f"{row} in m",
            row,
            counted=bool(counted),
        )

    def write_until(self, one: Step, scope: list[str], depth: int) -> None:
        least = LEAST[one[4] % 4]
        self.loop(
            one,
            scope,
            depth,
            lambda number: (
                f"{number} in 0.. while {number} < 3 and ReduceSum(STATE, keepdims=0) > {least}"
            ),
            stacks=False,
        )

    def loop(
        self,
        one: Step,
        scope: list[str],
        depth: int,
        head: Any,
        row: str = "",
        *,
        counted: bool = True,
        stacks: bool = True,
    ) -> None:
        _, first, second, third, _, says, block = one
        number, state, result, stack = (self.name() for _ in range(4))
        if not says:
            result = state
        place = len(self.lines)
        start = scope[first % len(scope)]
        self.line(depth, "")
        inner = [*scope, state, *([row] if row else [])]
        if counted:
            inner.append(self.name())
            self.line(depth + 1, f"{inner[-1]} = 0.1 * Cast({number}, to=f32) + {state}")
        self.block(block, inner, depth + 1)
        new = self.name()
        self.line(depth + 1, f"{new} = Tanh({inner[second % len(inner)]} + 0.3 * {state})")
        kept = inner[third % len(inner)]
        if not says:
            if stacks:
                self.line(depth + 1, f"{stack} = 2 * {kept}")
            self.line(depth + 1, f"{state} = {new}")
        elif stacks:
            self.line(depth + 1, f"{stack}_row = 2 * {kept}")
        gives = f" -> ({new}, {stack}_row)" if stacks else f" -> {new}"
        names = f"({result}, {stack})" if stacks else result
        said = head(number).replace("STATE", state)
        self.lines[place] = (
            f"{'    ' * depth}{names} = loop {said} with {state} = {start}"
            f"{gives if says else ''} {{"
        )
        self.line(depth, "}")
        scope.append(result)
        if stacks:
            scope.append(self.name())
            self.line(depth, f"{scope[-1]} = ReduceSum({stack}, [0], keepdims=0)")


def text(program: list[Step]) -> str:
    return Text().whole(program)


def run(program: list[Step], inputs: dict[str, Array]) -> Array:
    """The result of a program, computed by NumPy."""
    scope = [inputs["a"], inputs["b"]]
    _block(program, scope, inputs)
    return sum(scope[1:], scope[0])


def _block(program: list[Step], scope: list[Array], inputs: dict[str, Array]) -> None:
    for one in program:
        match one:
            case ("one", pick, which, *_):
                x = scope[pick % len(scope)]
                made = (np.tanh, np.negative, lambda v: np.maximum(v - np.float32(0.5), 0))
                scope.append(made[which % 3](x))
            case ("two", first, second, which, *_):
                x, y = scope[first % len(scope)], scope[second % len(scope)]
                scope.append(np.tanh((np.add, np.subtract, np.multiply)[which % 3](x, y)))
            case ("if", pick, least, first, second, _, *blocks):
                taken = scope[pick % len(scope)].sum() > LEAST[least % 4]
                inner = list(scope)
                _block(blocks[0 if taken else 1], inner, inputs)
                scope.append(inner[(first if taken else second) % len(inner)])
            case _:
                _loop(one, scope, inputs)


def _loop(one: Step, scope: list[Array], inputs: dict[str, Array]) -> None:
    kind, first, second, third, which, _, block = one
    state, stack = scope[first % len(scope)], np.zeros(SIZE, np.float32)
    turns = {
        "turns": (range(3), range(1, 4), range(int(inputs["n"])), range(0))[which % 4],
        "rows": range(1, ROWS + 1),
        "while": range(3),
    }[kind]
    for place, number in enumerate(turns):
        if kind == "while" and not state.sum() > LEAST[which % 4]:
            break
        inner = [*scope, state, *([inputs["m"][place]] if kind == "rows" else [])]
        if kind != "rows" or which % 2:
            inner.append(np.float32(0.1) * np.float32(number) + state)
        _block(block, inner, inputs)
        stack = stack + 2 * inner[third % len(inner)]
        state = np.tanh(inner[second % len(inner)] + np.float32(0.3) * state)
    scope.append(state)
    if kind != "while":
        scope.append(stack)
