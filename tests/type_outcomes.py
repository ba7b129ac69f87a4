"""Measures whether each operator, version and element type is computed correctly."""

from __future__ import annotations

import warnings
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import compose, helper
from onnx.defs import OpSchema

import popgraph
from popgraph.builder.onnx.read import import_model
from popgraph.conformance.cases import DRAWN
from popgraph.conformance.outcome import Status
from popgraph.dialects.program import WeightStore
from popgraph.support import dtypes
from popgraph.support.errors import PopgraphError
from tests.every_type import BY_ONNX_NAME, Trial, element, schemas, trials, variables
from tests.onnx_reference import run_onnx

DIGITS = {"f64": 1e-7, "f32": 1e-4, "f16": 4e-3, "bf16": 3e-2, "f8e8m0": 0.0}
"""Tolerances by type; floats of 8 bits or fewer may differ by two of their `STEPS`."""
STEPS = {"f8e4m3fn": 0.25, "f8e4m3fnuz": 0.25, "f8e5m2": 0.5, "f8e5m2fnuz": 0.5, "f4e2m1": 0.5}
TOGETHER = 40
"""Trials that are compiled to C as one model."""


COMPLEX = ("complex64", "complex128")
"""Complex types are moved, not computed; onnx's reference drops imaginary parts in Resize."""
STRING = ("string",)
NARROW = (
    *("bfloat16", "float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz"),
    *("float8e8m0", "float4e2m1", "int4", "uint4", "int2", "uint2"),
)
NOT_COMPUTED: dict[str, tuple[tuple[str, ...], str]] = {
    "BitCast": (COMPLEX, "no backend reads the bits of complex numbers as those of others"),
    "Col2Im": (
        (*STRING, *COMPLEX),
        "onnx's reference adds up neither strings nor complex numbers",
    ),
    "If": (NARROW, "no operator makes a sequence of these types, inside a branch or outside"),
    "Loop": (NARROW, "onnx's own rules let such values into no sequence and no optional"),
    "OneHot": (STRING, "onnx's reference does not multiply strings"),
    "Resize": (
        (*STRING, *COMPLEX),
        "onnx's reference interpolates neither strings nor imaginary parts",
    ),
}
"""The types of an operator that are refused or differ from onnx's reference, and the reason."""


def excuse(operator: str, type_: str) -> str:
    """Reason why a type of an operator differs from onnx's reference, or an empty text."""
    types, why = NOT_COMPUTED.get(operator, ((), ""))
    return why if element(type_) in types else ""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a trial on a backend, and its reason."""

    trial: Trial
    status: Status
    reason: str = ""


def is_bad(outcome: Outcome) -> bool:
    return outcome.status in (Status.WRONG, Status.FAILED, Status.REFUSED)


def admitted(schema: OpSchema) -> tuple[str, list[str]]:
    """The type variable of the first input or output, with its admitted types."""
    formals = [*schema.inputs, *schema.outputs]
    known = variables(schema)
    name = next((one.type_str for one in formals if one.type_str in known), "")
    return name, known.get(name, [])


def first_types(names: Container[tuple[str, str]]) -> dict[tuple[str, str], dict[str, str]]:
    """By operator, the types of its first input, each with the reason why it fails, if any."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for schema in schemas():
        key = (schema.domain, schema.name)
        variable, types = admitted(schema)
        for type_ in types if key in names else ():
            whys = found.setdefault(key, {})
            why = _why_not(schema, variable, type_)
            if why is not None:
                whys[short(type_)] = whys.get(short(type_)) or why
    return found


def _why_not(schema: OpSchema, variable: str, type_: str) -> str | None:
    """A short reason why a type fails; "" if it passes, None without a trial."""
    outcome = measured(schema, variable, type_, "reference")
    if outcome is None:
        return None
    return excuse(schema.name, type_) or outcome.reason if is_bad(outcome) else ""


def short(type_: str) -> str:
    """`f32` for `tensor(float)`, `seq` for sequences of any type."""
    if not type_.startswith("tensor("):
        return type_.partition("(")[0]
    row = BY_ONNX_NAME.get(element(type_))
    return "string" if row is None else row.name


def judged(trial: Trial) -> dict[str, Any] | str:
    """The expected results, or the reason why the reference has none."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            store = WeightStore()
            return run_onnx(import_model(trial.judge, store), trial.judged, store)
    except Exception as error:  # onnx's reference raises all kinds of exceptions.
        return f"{type(error).__name__}: {error}"


def tried(trial: Trial, backend: str) -> Outcome:
    """The outcome of one trial alone."""
    try:
        found = popgraph.compile(trial.model, backend=backend)(trial.given)
    except PopgraphError as error:
        return Outcome(trial, Status.REFUSED, error.what)
    except Exception as error:  # Any exception is an outcome.
        return Outcome(trial, Status.FAILED, f"{type(error).__name__}: {error}")
    return compared(trial, found)


def in_c(trials: Iterable[Trial]) -> Iterator[Outcome]:
    """The outcomes in C; many trials are compiled as one model."""
    for batch in batches(list(trials)):
        try:
            yield from _together(batch)
        except Exception:  # One trial fails; each is tried alone.
            yield from (tried(trial, "c") for trial in batch)


def batches(trials: Sequence[Trial]) -> Iterator[Sequence[Trial]]:
    """Groups of trials with the same opset versions, which can be one model."""
    alike: dict[Any, list[Trial]] = {}
    for trial in trials:
        versions = tuple((one.domain, one.version) for one in trial.model.opset_import)
        alike.setdefault(versions, []).append(trial)
    for some in alike.values():
        yield from (some[at : at + TOGETHER] for at in range(0, len(some), TOGETHER))


def _together(batch: Sequence[Trial]) -> Iterator[Outcome]:
    graph, given = onnx.GraphProto(name="trials"), {}
    for number, trial in enumerate(batch):
        named = compose.add_prefix(trial.model, f"t{number}/")
        for field in ("node", "input", "output"):
            getattr(graph, field).extend(getattr(named.graph, field))
        given |= {f"t{number}/{name}": value for name, value in trial.given.items()}
    versions = batch[0].model.opset_import
    model = helper.make_model(graph, opset_imports=versions, ir_version=13)
    found = popgraph.compile(model)(given)
    for number, trial in enumerate(batch):
        start = f"t{number}/"
        own = {
            name.removeprefix(start): one
            for name, one in found.items()
            if name[: len(start)] == start
        }
        yield compared(trial, own)


def measured(schema: OpSchema, variable: str, type_: str, backend: str) -> Outcome | None:
    """The outcome of the first model that computes, else of the first; None without models."""
    first = None
    for one in trials(schema, variable, type_):
        found = tried(one, backend)
        if found.status in (Status.PASSED, Status.WRONG, Status.FAILED):
            return found
        first = found if first is None or found.status == Status.SKIPPED else first
    return first


def compared(trial: Trial, found: Mapping[str, Any]) -> Outcome:
    if trial.operator in DRAWN:
        return Outcome(trial, Status.PASSED)
    wanted = judged(trial)
    if isinstance(wanted, str):
        return Outcome(trial, Status.SKIPPED, wanted)
    rough = trial.operator in ROUGH
    for name, value in wanted.items():
        if difference := differs(found[name], value, rough):
            return Outcome(trial, Status.WRONG, f"{name}: {difference}")
    return Outcome(trial, Status.PASSED)


ROUGH = frozenset({"BlackmanWindow", "HammingWindow", "HannWindow"})
"""Operators that compute in f32 for any result type, and truncate."""


def differs(found: Any, wanted: Any, rough: bool = False) -> str:
    """The difference from the expected result, possibly of a wider type, or an empty text."""
    if isinstance(wanted, list | tuple):
        if not isinstance(found, list | tuple) or len(found) != len(wanted):
            return f"{found!r}, not {wanted!r}"
        pairs = zip(found, wanted, strict=True)
        return next(filter(None, (differs(*pair) for pair in pairs)), "")
    if isinstance(wanted, dict) or wanted is None or found is None:
        return "" if found == wanted else f"{found!r}, not {wanted!r}"
    one, other = np.asarray(found), np.asarray(wanted)
    if one.shape != other.shape:
        return f"the shape is {one.shape}, not {other.shape}"
    if other.dtype.kind in "OUS" or one.dtype.kind in "OUS":
        same = one.astype(str).tolist() == other.astype(str).tolist()
        return "" if same else f"{one.tolist()}, not {other.tolist()}"
    return _numbers_differ(one, other, rough)


def _numbers_differ(found: Any, wanted: Any, rough: bool) -> str:
    row = dtypes.from_numpy(found.dtype)
    if row.name in ("c64", "c128"):
        return "" if np.allclose(found, wanted, 1e-4, 1e-5) else f"{found}, not {wanted}"
    margin = max(_margin(row), _margin(dtypes.from_numpy(wanted.dtype))) if row.is_float else 0.0
    if rough:
        margin = max(margin, DIGITS["f32"] if row.is_float else 1.0)
    one, other = found.astype(np.float64), wanted.astype(found.dtype).astype(np.float64)
    scale = max(1.0, float(np.max(np.abs(other), initial=0, where=np.isfinite(other))))
    if np.allclose(one, other, margin, margin * scale, equal_nan=True):
        return ""
    return f"{found.reshape(-1)[:6]}, not {wanted.reshape(-1)[:6]}"


def _margin(row: dtypes.DType) -> float:
    return DIGITS.get(row.name, STEPS.get(row.name, 0.0))
