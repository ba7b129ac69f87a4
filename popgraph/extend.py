"""The extension API: registration of backends, operators, passes and targets."""

from __future__ import annotations

from popgraph.backends.base import Executable
from popgraph.backends.interface import Backend
from popgraph.backends.registry import add_backend
from popgraph.dialects.graphcore.base import Binary, Composite, Elementwise, GraphcoreOp, Unary
from popgraph.operators.node import Node
from popgraph.passes import properties
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.onnx.to_graphcore.outside import add_operator
from popgraph.passes.onnx.to_graphcore.outside import lowers_outside as lowers
from popgraph.passes.options import Options
from popgraph.passes.outside import Placed, add_pass
from popgraph.passes.structured.schedule.cost import Candidate
from popgraph.passes.structured.schedule.schedule_contractions import choose_schedules
from popgraph.support.errors import ExtensionError
from popgraph.support.extensions import load_module as load
from popgraph.support.machine import Machine, add_target
from popgraph.support.tuning import Target

__all__ = [
    "Backend",
    "Binary",
    "Candidate",
    "Compilation",
    "Composite",
    "Elementwise",
    "Executable",
    "ExtensionError",
    "GraphcoreOp",
    "Machine",
    "Node",
    "Options",
    "Pass",
    "Placed",
    "Target",
    "Unary",
    "add_backend",
    "add_operator",
    "add_pass",
    "add_target",
    "choose_schedules",
    "load",
    "lowers",
    "properties",
]
