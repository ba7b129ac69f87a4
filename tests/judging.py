"""Judges damaged models: they must end in a result or an error, within time and memory."""

from __future__ import annotations

import resource
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from xdsl.dialects.builtin import TensorType
from xdsl.utils.exceptions import VerifyException

import popgraph
from popgraph.builder.onnx.read import import_model
from popgraph.dialects.element_types import from_ir, is_number
from popgraph.dialects.onnx.containers import input_types
from popgraph.dialects.onnx.types import dims
from popgraph.dialects.program import WeightStore
from popgraph.support.errors import PopgraphError

SECONDS = 20.0
"""CPU time after which a small model has taken too long."""
MEMORY = 6 << 30
"""Address space of a test: larger requests fail instead of disturbing other processes."""
MOST = 100_000
"""Largest number of input elements for which a model is run."""


class TooLong(BaseException):
    """Raised without a result in time; not an Exception, so that handlers do not catch it."""


@contextmanager
def in_time(seconds: float = SECONDS) -> Iterator[None]:
    """Raises `TooLong` after `seconds` of CPU time, and limits the address space to `MEMORY`."""

    def end(*_: object) -> None:
        raise TooLong

    limit, most = resource.getrlimit(resource.RLIMIT_AS)
    before = signal.signal(signal.SIGPROF, end)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, most))
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        resource.setrlimit(resource.RLIMIT_AS, (limit, most))


class Opened:
    """Files opened while `watching`. An audit hook cannot be removed, so there is one instance."""

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
    """The outcome of one model."""

    kind: str
    """`refused`, `compiled`, `ran`, or a failure: an error's name, `differs`, ..."""
    what: str = ""
    inputs: dict[str, Any] = field(default_factory=dict)
    outputs: dict[str, Any] = field(default_factory=dict)

    @property
    def is_right(self) -> bool:
        return self.kind in ("refused", "compiled", "ran")


def judged(data: bytes, *, in_c: bool = False) -> Verdict:
    """The verdict on a model; `in_c` also runs it in C."""
    try:
        with in_time(), warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return _judged(data, in_c)
    except PopgraphError as error:
        return Verdict("refused", str(error))
    except TooLong:
        return Verdict("too long")
    except Exception as error:
        return Verdict(type(error).__name__, f"{error} {_place(error)}"[:300])


def _place(error: BaseException) -> str:
    """The innermost line of this package in the traceback of an error."""
    found, trace = "", error.__traceback__
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if "/popgraph/" in name:
            found = f"at {name.rpartition('/popgraph/')[2]}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found


def _judged(data: bytes, in_c: bool) -> Verdict:
    run = popgraph.compile(data, backend="reference")
    module = import_model(data, WeightStore())
    try:
        module.verify()
    except VerifyException as error:
        return Verdict("does not verify", str(error).strip().splitlines()[-1][:200])
    inputs: dict[str, Any] = {}
    for name, type_ in input_types(module).items():
        shape = dims(type_)
        if shape is None:
            return Verdict("compiled", "an input of unknown rank")
        if not isinstance(type_, TensorType) or not is_number(type_.element_type):
            return Verdict("compiled", "an input of strings")
        sizes = [size if isinstance(size, int) else 2 for size in shape]
        if prod(sizes) > MOST:
            return Verdict("compiled", "large")
        inputs[name] = _made_up(type_, sizes)
    found = run(inputs)
    if in_c and (other := difference(popgraph.compile(data)(inputs), found)):
        return Verdict("C differs from the reference", other)
    return Verdict("ran", "", inputs, found)


def _made_up(type_: Any, shape: list[int]) -> Any:
    numbers = np.random.default_rng(sum(shape)).uniform(0.1, 1.9, shape)
    return numbers.astype(from_ir(type_.element_type).numpy)


def difference(found: dict[str, Any], wanted: dict[str, Any]) -> str:
    """The first difference of two runs beyond rounding, or an empty text."""
    for name, other in wanted.items():
        mine, other = np.asarray(found[name]), np.asarray(other)
        if mine.shape != other.shape or mine.dtype != other.dtype:
            return f"{name}: {mine.dtype}{mine.shape}, not {other.dtype}{other.shape}"
        a, b = mine.astype(np.float64), other.astype(np.float64)
        rough = 0.02 if mine.dtype.itemsize < 4 else 1e-3
        if not np.allclose(a, b, rtol=rough, atol=rough, equal_nan=True):
            return f"{name}: {a.reshape(-1)[:6]}, not {b.reshape(-1)[:6]}"
    return ""
