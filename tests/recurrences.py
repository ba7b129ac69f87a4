"""Draws recurrent layers, and computes them in NumPy gate by gate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from popgraph.support.arrays import Array

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
DEFAULTS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
VARIANTS = {"RNN": "", "GRU": "linear_before_reset", "LSTM": "input_forget"}
DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}
INPUTS = ("x", "w", "r", "b", "sequence_lens", "initial_h", "initial_c", "p")

ACTIVATIONS: dict[str, tuple[Callable[..., Array], tuple[float, ...]]] = {
    "Relu": (lambda x: np.maximum(x, 0), ()),
    "Tanh": (np.tanh, ()),
    "Sigmoid": (lambda x: 1 / (1 + np.exp(-x)), ()),
    "Affine": (lambda x, alpha, beta: alpha * x + beta, (1.0, 0.0)),
    "LeakyRelu": (lambda x, alpha: np.where(x >= 0, x, alpha * x), (0.01,)),
    "ThresholdedRelu": (lambda x, alpha: np.where(x >= alpha, x, 0), (1.0,)),
    "ScaledTanh": (lambda x, alpha, beta: alpha * np.tanh(beta * x), (np.nan, np.nan)),
    "HardSigmoid": (lambda x, alpha, beta: np.clip(alpha * x + beta, 0, 1), (0.2, 0.5)),
    "Elu": (lambda x, alpha: np.where(x >= 0, x, alpha * np.expm1(np.minimum(x, 0))), (1.0,)),
    "Softsign": (lambda x: x / (1 + np.abs(x)), ()),
    "Softplus": (lambda x: np.logaddexp(0, x), ()),
}
"""Activation functions with defaults of alpha and beta; NaN means no default."""


@dataclass(frozen=True)
class Recurrence:
    """A recurrent node and the sizes of its inputs, as plain data."""

    op: str
    steps: int = 4
    batch: int = 3
    features: int = 2
    hidden: int = 3
    direction: str = "forward"
    layout: int = 0
    lengths: tuple[int, ...] | None = None
    given: frozenset[str] = frozenset()
    """The optional inputs that are present, except lengths."""
    clip: float | None = None
    activations: tuple[str, ...] | None = None
    alpha: tuple[float, ...] = ()
    beta: tuple[float, ...] = ()
    variant: bool = False
    dtype: str = "float32"
    opset: int = 22
    wanted: tuple[bool, ...] = (True, True, True)
    """Whether each output is present."""
    seed: int = 0
    exact: bool = True
    """Whether all elements are multiples of 1/16; other elements avoid kinks of activations."""

    @property
    def directions(self) -> int:
        return DIRECTIONS[self.direction]

    @property
    def outputs(self) -> list[str]:
        names = ["y", "y_h", "y_c"] if self.op == "LSTM" else ["y", "y_h"]
        return [name if wanted else "" for name, wanted in zip(names, self.wanted, strict=False)]

    def attributes(self) -> dict[str, Any]:
        made: dict[str, Any] = {"hidden_size": self.hidden, "direction": self.direction}
        if self.layout:
            made["layout"] = 1
        if self.clip is not None:
            made["clip"] = self.clip
        if self.activations is not None:
            made["activations"] = list(self.activations)
        for name, values in (("activation_alpha", self.alpha), ("activation_beta", self.beta)):
            if values:
                made[name] = list(values)
        if self.variant and VARIANTS[self.op]:
            made[VARIANTS[self.op]] = 1
        return made

    def arrays(self) -> dict[str, Array]:
        """Inputs by name, with elements that are exact in a few bits."""
        rng = np.random.default_rng(self.seed)
        d, h, rows = self.directions, self.hidden, GATES[self.op] * self.hidden
        shapes = {
            "x": (self.steps, self.batch, self.features),
            "w": (d, rows, self.features),
            "r": (d, rows, h),
            "b": (d, 2 * rows),
            "initial_h": (d, self.batch, h),
            "initial_c": (d, self.batch, h),
            "p": (d, 3 * h),
        }
        made: dict[str, Array] = {
            name: (rng.integers(-16, 17, shape) / 16).astype(self.dtype)
            for name, shape in shapes.items()
            if name in "xwr" or name in self.given
        }
        if not self.exact:
            made = {
                name: array + rng.uniform(-0.03, 0.03, array.shape) for name, array in made.items()
            }
        if self.lengths is not None:
            made["sequence_lens"] = np.array(self.lengths, np.int32)
        for name in {"x", "initial_h", "initial_c"} & made.keys():
            if self.layout:
                made[name] = np.ascontiguousarray(made[name].swapaxes(0, 1))
        return made

    def model(self, fixed: Sequence[str] = ()) -> onnx.ModelProto:
        """A model of the node; `fixed` inputs are initializers."""
        arrays = self.arrays()
        node = helper.make_node(
            self.op,
            [name if name in arrays else "" for name in INPUTS[: 8 if self.op == "LSTM" else 6]],
            self.outputs,
            **self.attributes(),
        )
        infos = [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
            )
            for name, array in arrays.items()
            if name not in fixed
        ]
        results = [helper.make_empty_tensor_value_info(name) for name in self.outputs if name]
        held = [numpy_helper.from_array(arrays[name], name) for name in fixed if name in arrays]
        graph = helper.make_graph([node], "g", infos, results, held)
        opsets = [helper.make_opsetid("", self.opset)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def functions_of(case: Recurrence) -> list[Callable[[Array], Array]]:
    """The activations of all directions; alpha and beta are consumed in order."""
    names = case.activations or DEFAULTS[case.op] * case.directions
    lists = [list(case.alpha), list(case.beta)]
    made = []
    for name in names:
        function, defaults = ACTIVATIONS[name]
        taken = [
            np.float32(given.pop(0) if given else default)
            for given, default in zip(lists, defaults, strict=False)
        ]
        made.append((function, taken))
    return [lambda x, f=f, taken=taken: f(x, *taken) for f, taken in made]  # type: ignore[misc]


def by_hand(
    case: Recurrence, *, clips_cell: bool = True, given: Mapping[str, Array] | None = None
) -> dict[str, Array]:
    """
    The outputs in f64, sequence by sequence, by ONNX's equations.

    `given` replaces the inputs of the case. ONNX clips the operand of the last activation of an
    LSTM, onnxruntime does not: `clips_cell` selects.
    """
    arrays = {name: np.asarray(array) for name, array in (given or case.arrays()).items()}
    lengths = arrays.pop("sequence_lens", np.full(case.batch, case.steps))
    wide = {name: array.astype(np.float64) for name, array in arrays.items()}
    for name in {"x", "initial_h", "initial_c"} & wide.keys():
        if case.layout:
            wide[name] = wide[name].swapaxes(0, 1)
    functions, count = functions_of(case), len(DEFAULTS[case.op])
    y = np.zeros((case.steps, case.directions, case.batch, case.hidden))
    finals = np.zeros((2, case.directions, case.batch, case.hidden))
    for direction in range(case.directions):
        own = functions[direction * count : (direction + 1) * count]
        for row in range(case.batch):
            states = [
                wide[name][direction, row] if name in wide else np.zeros(case.hidden)
                for name in ("initial_h", "initial_c")
            ]
            order = list(range(min(lengths[row], case.steps)))
            if case.direction == "reverse" or direction == 1:
                order.reverse()
            for step in order:
                states = _step(case, wide, own, direction, wide["x"][step, row], states, clips_cell)
                y[step, direction, row] = states[0]
            finals[:, direction, row] = states
    if case.layout:
        y, finals = y.transpose(2, 0, 1, 3), finals.swapaxes(1, 2)
    results = dict(zip(("y", "y_h", "y_c"), (y, *finals), strict=True))
    return {name: results[name] for name in case.outputs if name}


def _step(
    case: Recurrence,
    wide: dict[str, Array],
    functions: Sequence[Callable[[Array], Array]],
    direction: int,
    x: Array,
    states: list[Array],
    clips_cell: bool,
) -> list[Array]:
    count = GATES[case.op]
    w, r = (np.split(wide[name][direction], count) for name in "wr")
    zeros = np.zeros(2 * count * case.hidden)
    biases = np.split(wide["b"][direction] if "b" in wide else zeros, 2 * count)
    wb, rb = biases[:count], biases[count:]
    h, c = states

    def clipped(value: Array) -> Array:
        return value if case.clip is None else np.clip(value, -case.clip, case.clip)

    def f(place: int, value: Array) -> Array:
        return functions[place](clipped(value))

    def gate(index: int) -> Array:
        return np.asarray(w[index] @ x + r[index] @ h + wb[index] + rb[index])

    if case.op == "RNN":
        return [f(0, gate(0)), c]
    if case.op == "GRU":
        update, reset = f(0, gate(0)), f(0, gate(1))
        if case.variant:
            inner = reset * (r[2] @ h + rb[2])
        else:
            inner = r[2] @ (reset * h) + rb[2]
        return [(1 - update) * f(1, w[2] @ x + inner + wb[2]) + update * h, c]
    peepholes = wide["p"][direction] if "p" in wide else np.zeros(3 * case.hidden)
    p_i, p_o, p_f = np.split(peepholes, 3)
    entering = f(0, gate(0) + p_i * c)
    kept = 1 - entering if case.variant else f(0, gate(2) + p_f * c)
    after = kept * c + entering * f(1, gate(3))
    seen = clipped(after) if clips_cell else after
    return [f(0, gate(1) + p_o * after) * functions[2](seen), after]


@st.composite
def recurrences(draw: st.DrawFn, dtype: str = "float32") -> Recurrence:
    """Nodes with all attributes and optional inputs."""
    op = draw(st.sampled_from(sorted(GATES)))
    direction = draw(st.sampled_from(sorted(DIRECTIONS)))
    steps, batch = draw(st.integers(1, 5)), draw(st.integers(1, 3))
    optional = ["b", "initial_h", *(["initial_c", "p"] if op == "LSTM" else [])]
    made = Recurrence(
        op,
        steps,
        batch,
        draw(st.integers(1, 3)),
        draw(st.integers(1, 4)),
        direction,
        draw(st.integers(0, 1)),
        draw(st.none() | st.tuples(*[st.integers(1, steps)] * batch)),
        draw(st.frozensets(st.sampled_from(optional))),
        draw(st.none() | st.sampled_from([0.25, 1.0])),
        variant=draw(st.booleans()),
        dtype=dtype,
        seed=draw(st.integers(0, 999)),
        wanted=draw(st.tuples(*[st.booleans()] * len(outputs_of(op))).filter(any)),
    )
    return draw(st.just(made) | with_activations(made))


def outputs_of(op: str) -> list[str]:
    return Recurrence(op).outputs


def with_activations(case: Recurrence) -> st.SearchStrategy[Recurrence]:
    """The node with random activations and parameters, possibly fewer than the functions take."""
    count = len(DEFAULTS[case.op]) * case.directions
    numbers = st.sampled_from([0.25, 0.5, 1.0])

    @st.composite
    def draw_all(draw: st.DrawFn) -> Recurrence:
        names = draw(st.tuples(*[st.sampled_from(sorted(ACTIVATIONS))] * count))
        defaults = [ACTIVATIONS[name][1] for name in names]
        lists = []
        for place in range(2):
            takers = [each[place] for each in defaults if len(each) > place]
            # Parameters after the last function without defaults may be omitted.
            least = max((at + 1 for at, value in enumerate(takers) if np.isnan(value)), default=0)
            lists.append(tuple(draw(numbers) for _ in range(draw(st.integers(least, len(takers))))))
        return replace(case, activations=names, alpha=lists[0], beta=lists[1])

    return draw_all()


def spelled_out(case: Recurrence) -> Recurrence:
    """The same node with all parameters explicit, since onnxruntime has other defaults."""
    lists = [list(case.alpha), list(case.beta)]
    for place, values in enumerate(lists):
        defaults = (ACTIVATIONS[name][1] for name in case.activations or ())
        values += [each[place] for each in defaults if len(each) > place][len(values) :]
    return replace(case, alpha=tuple(lists[0]), beta=tuple(lists[1]))
