"""PyTorch modules whose forward and backward pass are programs, and the `torch.compile` backend."""

from __future__ import annotations

from popgraph.support.errors import PopgraphError

try:
    import onnxscript as _onnxscript  # noqa: F401 - PyTorch's exporter requires it
    import torch as _torch
except ImportError as error:
    raise PopgraphError(
        f"popgraph.torch requires PyTorch and onnxscript: {error}",
        hint="pip install 'popgraph[torch]'",
    ) from error

from popgraph.torch.dynamo import EagerWarning as EagerWarning
from popgraph.torch.dynamo import backend as backend
from popgraph.torch.model import ExporterWarning as ExporterWarning
from popgraph.torch.model import from_torch as from_torch
from popgraph.torch.module import CompiledModule as CompiledModule
from popgraph.torch.module import compile as compile

__all__ = ["CompiledModule", "EagerWarning", "ExporterWarning", "backend", "compile", "from_torch"]

if "popgraph" not in _torch._dynamo.list_backends(exclude_tags=()):
    _torch._dynamo.register_backend(backend, name="popgraph")
