"""PopART's functions that only raise: programs try with them what they do about errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from popgraph.builder.opset.arguments import typed
from popgraph.popart import exceptions
from popgraph.support.errors import PopgraphError

_KINDS: dict[str, type[PopgraphError]] = {
    "popart_error": exceptions.popart_exception,
    "popart_internal_error": exceptions.popart_internal_exception,
    "popart_runtime_error": exceptions.popart_runtime_error,
    "poplibs_error": exceptions.poplibs_exception,
    "poplar_error": exceptions.poplar_exception,
    "poplar_runtime_error": exceptions.poplar_runtime_error,
    "application_runtime_error": exceptions.poplar_application_runtime_error,
    "system_runtime_error": exceptions.poplar_system_runtime_error,
    "recoverable_runtime_error": exceptions.poplar_recoverable_runtime_error,
    "unrecoverable_runtime_error": exceptions.poplar_unrecoverable_runtime_error,
    "unknown_runtime_error": exceptions.poplar_unknown_runtime_error,
}


def _raising(kind: type[PopgraphError]) -> Callable[[str], NoReturn]:
    @typed
    def throw(msg: str) -> NoReturn:
        raise kind(msg)

    return throw


_FUNCTIONS = {f"_throw_{name}": _raising(kind) for name, kind in _KINDS.items()}


def __getattr__(name: str) -> Callable[[str], NoReturn]:
    if name not in _FUNCTIONS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _FUNCTIONS[name]
