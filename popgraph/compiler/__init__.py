"""The compiler: loads models as IR, lowers them level by level, and builds executables."""

from __future__ import annotations

from popgraph.compiler.compiling import admits, build, compile, runner
from popgraph.compiler.descriptions import described, description_here, description_of
from popgraph.compiler.interfaces import interface_of
from popgraph.compiler.loading import Model, load, parse_ir, to_pgraph
from popgraph.compiler.lowering import (
    check_static_form,
    lower,
    same_meaning,
    settle_nodes,
    verify,
)
from popgraph.compiler.named_weights import LoadedModel, load_weights
from popgraph.compiler.requests import BuildRequest, check_backend, for_this_machine

__all__ = [
    "BuildRequest",
    "LoadedModel",
    "Model",
    "admits",
    "build",
    "check_backend",
    "check_static_form",
    "compile",
    "described",
    "description_here",
    "description_of",
    "for_this_machine",
    "interface_of",
    "load",
    "load_weights",
    "lower",
    "parse_ir",
    "runner",
    "same_meaning",
    "settle_nodes",
    "to_pgraph",
    "verify",
]
