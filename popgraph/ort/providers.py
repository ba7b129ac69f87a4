"""Execution providers and the device: PopGraph always computes on the CPU."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from popgraph import __version__
from popgraph.ort.errors import WrongCall, WrongValue
from popgraph.ort.logs import note
from popgraph.support.names import closest

CPU = "CPUExecutionProvider"
KNOWN = (
    "NvTensorRTRTXExecutionProvider", "TensorrtExecutionProvider", "CUDAExecutionProvider",
    "MIGraphXExecutionProvider", "ROCMExecutionProvider", "OpenVINOExecutionProvider",
    "DnnlExecutionProvider", "VitisAIExecutionProvider", "QNNExecutionProvider",
    "NnapiExecutionProvider", "VSINPUExecutionProvider", "JsExecutionProvider",
    "CoreMLExecutionProvider", "ArmNNExecutionProvider", "ACLExecutionProvider",
    "DmlExecutionProvider", "RknpuExecutionProvider", "WebNNExecutionProvider",
    "WebGpuExecutionProvider", "XnnpackExecutionProvider", "CANNExecutionProvider",
    "AzureExecutionProvider", CPU,
)  # fmt: skip
"""onnxruntime's execution providers; their order there is that of preference."""

Provider: TypeAlias = str | tuple[str, Mapping[Any, Any]]
"""A name, or a name with options."""


def get_all_providers() -> list[str]:
    """The names of onnxruntime's execution providers; a session accepts all of them."""
    return list(KNOWN)


def get_available_providers() -> list[str]:
    """The providers that compute: only the CPU's."""
    return [CPU]


def get_device() -> str:
    """The device of all sessions, "CPU"."""
    return "CPU"


def get_version_string() -> str:
    """The version of PopGraph, not that of an onnxruntime."""
    return __version__


def get_build_info() -> str:
    """The build as a text."""
    return f"PopGraph Build Info: version={__version__}, device=CPU"


def set_seed(seed: int) -> None:
    """Accepts a seed; nodes without a `seed` attribute draw new numbers in each run."""
    note("set_seed has no effect: set the `seed` attribute of random nodes instead")


def enable_telemetry_events() -> None:
    """Does nothing: PopGraph collects no telemetry."""


def disable_telemetry_events() -> None:
    """Does nothing: PopGraph collects no telemetry."""


def check_and_normalize_provider_args(
    providers: Sequence[Provider] | None,
    provider_options: Sequence[Mapping[Any, Any]] | None,
    available_provider_names: Sequence[str],
) -> tuple[list[str], list[dict[str, str]]]:
    """Splits providers into names and options; WrongValue (a ValueError) if malformed."""
    if providers is None:
        return [], []
    _check(
        isinstance(providers, Sequence) and not isinstance(providers, str),
        "providers must be a list of names",
    )
    given: list[tuple[str, Mapping[Any, Any]]] = []
    for one in providers:
        pair = (one, {}) if isinstance(one, str) else one
        _check(
            isinstance(pair, tuple)
            and list(map(type, pair[:1])) == [str]
            and len(pair) == 2
            and isinstance(pair[1], Mapping),
            f"a provider must be a name, or a pair of a name and a dict, not {one!r}",
        )
        given.append(pair)
    if provider_options is not None:
        _check(
            isinstance(provider_options, Sequence)
            and all(isinstance(one, Mapping) for one in provider_options),
            "provider_options must be a list of dicts",
        )
        _check(
            len(provider_options) == len(given),
            f"{len(given)} providers have {len(provider_options)} provider_options",
        )
        _check(
            not any(own for _, own in given),
            "options are given both in providers and in provider_options",
        )
        given = [(name, own) for (name, _), own in zip(given, provider_options, strict=True)]
    found: dict[str, dict[str, str]] = {}
    for name, own in given:
        if name in found:
            warnings.warn(f"provider {name!r} is listed twice; the first counts", stacklevel=2)
            continue
        if name not in available_provider_names:
            note(f"provider {name!r} is not available: PopGraph computes on the CPU")
        found[name] = {str(key): str(value) for key, value in own.items()}
    return list(found), list(found.values())


def _check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise WrongValue(otherwise, hint='providers=["CPUExecutionProvider"]')


def unknown_provider(name: str) -> WrongCall:
    """The error for a provider that onnxruntime does not have either."""
    close = closest(name, KNOWN)
    return WrongCall(
        f"Unknown Provider Type: {name}",
        hint=f"did you mean {close!r}?" if close else f"the available one is {CPU!r}",
    )


def usable_cpus() -> int:
    """The number of CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
