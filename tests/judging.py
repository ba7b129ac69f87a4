"""What may become of a model that somebody damaged: an answer, or a sentence, and soon."""

from __future__ import annotations

import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

import popgraph
from popgraph.builder.onnx_import import import_model
from popgraph.dialects.onnx import model_of
from popgraph.dialects.onnx.types import dims
from popgraph.dialects.program import WeightStore
from popgraph.support.errors import PopgraphError

SECONDS = 20.0
"""Of the processor, after which a model of a few numbers takes too long."""
MOST = 100_000
"""Elements of inputs that are worth to be tried."""


class TooLong(BaseException):
    """No answer within time; no `except Exception` catches it."""


@contextmanager
def in_time(seconds: float = SECONDS) -> Iterator[None]:
    """`TooLong` when the body takes more of the processor's time."""

    def end(*_: object) -> None:
        raise TooLong

    before = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


class Opened:
    """Which files are opened, and how, while a test looks (a hook stays for ever)."""

    def __init__(self) -> None:
        self.watching = False
        self.written: list[str] = []
        self.read: list[str] = []
        sys.addaudithook(self._note)

    def _note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.watching and event == "open":
            path, mode, flags = arguments
            writes = any(letter in (mode or "") for letter in "wax+") or (flags or 0) & 3
            (self.written if writes else self.read).append(str(path))


@dataclass
class Verdict:
    """What became of one model."""

    kind: str
    """`refused`, `compiled`, `ran`, or what must not be: an error's name, `differs` ..."""
    what: str = ""
    outputs: dict[str, Any] = field(default_factory=dict)

    @property
    def is_right(self) -> bool:
        return self.kind in ("refused", "compiled", "ran")


def judged(data: bytes, *, in_c: bool = False, peer: bool = False) -> Verdict:
    """What becomes of a model; `in_c` runs it in C as well, `peer` in onnxruntime."""
    try:
        with in_time(), warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return _judged(data, in_c, peer)
    except PopgraphError as error:
        return Verdict("refused", error.what)
    except TooLong:
        return Verdict("too long")
    except Exception as error:
        return Verdict(type(error).__name__, f"{error} {_place(error)}"[:300])


def _place(error: BaseException) -> str:
    found, trace = "", error.__traceback__
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if "popgraph" in name and "tests" not in name:
            found = f"at {name.rpartition('popgraph/')[2]}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found


def _judged(data: bytes, in_c: bool, peer: bool) -> Verdict:
    run = popgraph.compile(data, backend="reference")
    module = import_model(data, WeightStore())
    try:
        module.verify()
    except Exception as error:
        return Verdict("does not verify", str(error).strip().splitlines()[-1][:200])
    graph = model_of(module).graph
    sizes: dict[str, list[int]] = {}
    for name, argument in zip(graph.input_names, graph.block.args, strict=True):
        shape = dims(argument.type)
        if shape is None:
            return Verdict("compiled", "an input of unknown rank")
        sizes[name] = [dim if isinstance(dim, int) else 2 for dim in shape]
    if any(prod(shape) > MOST for shape in sizes.values()):
        return Verdict("compiled", "large")
    inputs = {
        name: _made_up(argument.type, sizes[name])
        for name, argument in zip(graph.input_names, graph.block.args, strict=True)
    }
    found = run(inputs)
    if in_c:
        again = popgraph.compile(data)(inputs)
        if other := _difference(again, found):
            return Verdict("C differs from the reference", other)
    if peer:
        theirs = by_onnxruntime(data, inputs)
        if isinstance(theirs, str):
            return Verdict("ran", f"onnxruntime: {theirs}", found)
        if other := _difference(found, theirs):
            return Verdict("differs from onnxruntime", other)
    return Verdict("ran", "", found)


def _made_up(type_: Any, shape: list[int]) -> Any:
    from popgraph.dialects.element_types import from_ir

    dtype = from_ir(type_.element_type)
    numbers = np.random.default_rng(sum(shape)).uniform(0.1, 1.9, shape)
    return numbers.astype(dtype.numpy)


def by_onnxruntime(data: bytes, inputs: dict[str, Any]) -> dict[str, Any] | str:
    """What onnxruntime computes, or why it does not."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]
        return dict(zip(names, session.run(names, inputs), strict=True))
    except Exception as error:
        return str(error).strip().replace("\n", " ")[:300]


def _difference(found: dict[str, Any], wanted: dict[str, Any]) -> str:
    for name, other in wanted.items():
        mine, other = np.asarray(found[name]), np.asarray(other)
        if mine.shape != other.shape or mine.dtype != other.dtype:
            return f"{name}: {mine.dtype}{mine.shape}, not {other.dtype}{other.shape}"
        a, b = mine.astype(np.float64), other.astype(np.float64)
        rough = 0.02 if mine.dtype.itemsize < 4 else 1e-3
        if not np.allclose(a, b, rtol=rough, atol=rough, equal_nan=True):
            return f"{name}: {a.reshape(-1)[:6]}, not {b.reshape(-1)[:6]}"
    return ""
