"""What the initializers of a model are for: weights, running statistics, settings, constants."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from popgraph.dialects import element_types
from popgraph.dialects.onnx import Initializer, OnnxOp, model_of
from popgraph.dialects.onnx.custom import Custom
from popgraph.dialects.onnx.functions import function_of
from popgraph.dialects.onnx.metadata import value_metadata
from popgraph.support.shapes import Shape

PYTORCH = "pytorch"
"""What the exporters of PyTorch call themselves."""
KIND = "pkg.torch.export.graph_signature.InputSpec.kind"
"""Where PyTorch's newer exporter says what it takes a tensor for."""

STATISTICS: Mapping[str, tuple[int, ...]] = {"BatchNormalization": (3, 4)}
"""The inputs that are running statistics."""

SETTINGS: Mapping[str, tuple[int, ...]] = {
    "Clip": (1, 2),
    "Dropout": (1,),
    "NonMaxSuppression": (3, 4),
    "OneHot": (2,),
    "Pad": (2,),
    "QLinearConv": (1, 4, 6),
    "QLinearMatMul": (1, 4, 6),
    "Range": (0, 1, 2),
    "Resize": (1, 2),
    "RoiAlign": (1,),
    "Upsample": (1,),
}
"""The inputs that say how an operator works."""

MATRICES = frozenset(
    [
        "BatchNormalization",
        "Conv",
        "ConvTranspose",
        "DeformConv",
        "Einsum",
        "GRU",
        "Gather",
        "Gemm",
        "GroupNormalization",
        "InstanceNormalization",
        "LSTM",
        "LayerNormalization",
        "MatMul",
        "PRelu",
        "RMSNormalization",
        "RNN",
    ]
)
"""Operators whose weights are weights, whatever an exporter calls them."""

UNCHANGED = frozenset(
    ["Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"]
)
"""Operators that only hand on their first input."""

MADE = re.compile(
    r"onnx::\w+|/.*|.*Constant(_\d+)?_output_\d+|(_?val|clone|const|_?constant|c_lifted_tensor)_\d+"
    r"|clone|const_fold_opt_+\d+|scalar_tensor\w*|.*\.lifted_tensor\w*"
)
"""Names that exporters give to constants that they made themselves."""


@dataclass(frozen=True)
class Use:
    """A place where a value is read."""

    operator: str
    domain: str
    index: int

    def is_in(self, table: Mapping[str, tuple[int, ...]]) -> bool:
        return self.index in table.get(self.operator, ())


@dataclass(frozen=True)
class Origin:
    """Where a model comes from, as far as that says what its initializers are for."""

    producer: str = ""
    """The program that exported it; no program says that it did if a user built it."""
    kinds: Mapping[str, str] = field(default_factory=dict)
    """What PyTorch's newer exporter says of tensors by their names."""
    is_text: bool = False
    """A `.pgraph` text, which says itself what is a weight, and what a constant."""

    @staticmethod
    def of(module: ModuleOp, *, is_text: bool = False) -> Origin:
        infos = model_of(module).graph.value_infos or ()
        told = {info.text: dict(value_metadata(info)[0].metadata).get(KIND, "") for info in infos}
        kinds = {name: kind for name, kind in told.items() if kind}
        return Origin(producer(module), kinds, is_text)


@dataclass(frozen=True)
class Roles:
    """What the initializers of one model are for."""

    module: ModuleOp
    origin: Origin

    def uses(self, value: SSAValue) -> Iterator[Use]:
        """Where a value is read, through functions and what hands it on."""
        functions = model_of(self.module).functions
        for use in value.uses:
            op = use.operation
            if not isinstance(op, OnnxOp):
                yield Use("", "", use.index)  # an output
                continue
            index = op.input_values().index(value)
            body = function_of(op, functions) if isinstance(op, Custom) else None
            if body is not None and index < len(body.block.args):
                yield from self.uses(body.block.args[index])
            elif op.op_type in UNCHANGED and index == 0:
                yield from self.uses(op.results[0])
            else:
                yield Use(op.op_type, op.domain, index)

    def statistics(self, initializer: Initializer) -> bool:
        """Whether it is nothing but a running mean or variance."""
        uses = list(self.uses(initializer.result))
        return bool(uses) and all(use.is_in(STATISTICS) for use in uses)

    def objection(self, initializer: Initializer, name: str) -> str:
        """Why it is no weight, by its place and its name; nothing if it is one."""
        uses = list(self.uses(initializer.result))
        if not is_float(initializer):
            return "no floats"
        if not uses:
            return "nothing reads it"
        if self.origin.is_text:
            return ""
        if all(use.is_in(SETTINGS) for use in uses):
            return f"a setting of {uses[0].operator}"
        return self._made(initializer, name, uses) if self.origin.producer else ""

    def _made(self, initializer: Initializer, name: str, uses: list[Use]) -> str:
        """Why an exporter made it, and not the author of the model."""
        if self.origin.kinds.get(name, "PARAMETER") != "PARAMETER":
            return "a buffer of the module"
        if name in self.origin.kinds or any(use.operator in MATRICES for use in uses):
            return ""
        if MADE.fullmatch(name) or not (self._is_parameter(name) or shape_of(initializer)):
            return "a constant of the exporter"
        if self.origin.kinds and not self._is_parameter(name):
            return "a constant of the exporter"
        return ""

    def _is_parameter(self, name: str) -> bool:
        """Whether a name is one that PyTorch gives to parameters."""
        return self.origin.producer == PYTORCH and ("." in name or not self.origin.kinds)


def producer(module: ModuleOp) -> str:
    """The program that exported a model, as far as the model says so."""
    found = model_of(module).producer
    return "" if found is None else found.text


def is_float(initializer: Initializer) -> bool:
    element = initializer.value.type.element_type
    return element_types.is_number(element) and element_types.from_ir(element).is_float


def shape_of(initializer: Initializer) -> Shape:
    return tuple(initializer.value.type.get_shape())
