"""PopGraph: ONNX graphs, compiled through readable IR to C, for inference and training."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from popgraph.support.garbage import while_importing as _while_importing

__version__ = "0.1.0"

if TYPE_CHECKING:
    from popgraph.builder.architectures.model import open_language_model as open_language_model
    from popgraph.compiler import load_weights as load_weights
    from popgraph.compiler import to_pgraph as to_pgraph
    from popgraph.dialects.tile.structured.schedule_file import read_schedules as read_schedules
    from popgraph.generation.decoder import Decoder as Decoder
    from popgraph.generation.generate import generate as generate
    from popgraph.notebook import load_ipython_extension as load_ipython_extension
    from popgraph.passes.options import Options as Options
    from popgraph.popart import *  # noqa: F403 - PopART's names
    from popgraph.popart.api.builder import Builder as Builder  # type: ignore[assignment]
    from popgraph.quantization.quantize import quantize as quantize
    from popgraph.runner import Runner as Runner
    from popgraph.start import compile as compile
    from popgraph.support.errors import PopgraphError as PopgraphError
    from popgraph.support.machine import Machine as Machine
    from popgraph.support.tuning import Tuning as Tuning
    from popgraph.torch.model import from_torch as from_torch
    from popgraph.training.callbacks import Callback as Callback
    from popgraph.training.curves import Curves as Curves
    from popgraph.training.gradient_model import onnx_gradient as onnx_gradient
    from popgraph.training.history import History as History
    from popgraph.training.jacobian_products import onnx_jvp as onnx_jvp
    from popgraph.training.jacobian_products import onnx_vjp as onnx_vjp
    from popgraph.training.lora import load_lora as load_lora
    from popgraph.training.lora import lora as lora
    from popgraph.training.lora import merge_lora as merge_lora
    from popgraph.training.lora import save_lora as save_lora
    from popgraph.training.metrics import Metric as Metric
    from popgraph.training.tensorboard import TensorBoard as TensorBoard
    from popgraph.training.train import train as train
    from popgraph.training.trainer import Trainer as Trainer
    from popgraph.viewer.training_page import TrainingPage as TrainingPage
    from popgraph.viewer.viewing import View as View
    from popgraph.viewer.viewing import view as view

_HOMES = {
    "compile": "popgraph.start",
    "to_pgraph": "popgraph.compiler",
    "load_weights": "popgraph.compiler.named_weights",
    "open_language_model": "popgraph.builder.architectures.model",
    "Runner": "popgraph.runner",
    "generate": "popgraph.generation.generate",
    "Decoder": "popgraph.generation.decoder",
    "Options": "popgraph.passes.pipeline",
    "Machine": "popgraph.support.machine",
    "Tuning": "popgraph.support.tuning",
    "read_schedules": "popgraph.dialects.tile.structured.schedule_file",
    "PopgraphError": "popgraph.support.errors",
    "Builder": "popgraph.popart.api.builder",
    "train": "popgraph.training.train",
    "Trainer": "popgraph.training.trainer",
    "onnx_gradient": "popgraph.training.gradient_model",
    "onnx_jvp": "popgraph.training.jacobian_products",
    "onnx_vjp": "popgraph.training.jacobian_products",
    "lora": "popgraph.training.lora",
    "load_lora": "popgraph.training.lora",
    "save_lora": "popgraph.training.lora",
    "merge_lora": "popgraph.training.lora",
    "quantize": "popgraph.quantization.quantize",
    "from_torch": "popgraph.torch",
    "History": "popgraph.training.history",
    "Metric": "popgraph.training.metrics",
    "Callback": "popgraph.training.callbacks",
    "TensorBoard": "popgraph.training.tensorboard",
    "Curves": "popgraph.training.curves",
    "TrainingPage": "popgraph.viewer.training_page",
    "load_ipython_extension": "popgraph.notebook",
    "view": "popgraph.viewer.viewing",
    "View": "popgraph.viewer.viewing",
}
"""Public name -> module. PopART's names are in `popgraph.popart`."""
_ROOMS = ("backend", "callbacks", "compat", "extend", "ort", "popart", "sklearn", "torch", "zoo")
"""The public modules, except `testing`, which requires Hypothesis."""


def __getattr__(name: str) -> object:
    """Imports a public name on first use, so that `import popgraph` stays fast."""
    if name.startswith("__"):
        raise AttributeError(name)
    with _while_importing():
        if name in _ROOMS:
            return import_module(f"popgraph.{name}")
        if name in _HOMES:
            value = getattr(import_module(_HOMES[name]), name)
        else:
            popart = import_module("popgraph.popart")
            if name not in popart.__all__:
                raise AttributeError(f"module 'popgraph' has no attribute {name!r}")
            value = getattr(popart, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """PopGraph's own names; PopART's, listed in `popgraph.popart`, resolve here, too."""
    return sorted([*_HOMES, *_ROOMS, "__version__"])
