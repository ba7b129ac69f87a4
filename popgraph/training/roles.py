"""Classifies the initializers of a model: weights, running statistics, settings, constants."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from popgraph.dialects import element_types
from popgraph.dialects.onnx import Initializer, OnnxOp, model_of
from popgraph.dialects.onnx.custom import FIT_GRID, Custom
from popgraph.dialects.onnx.functions import function_of
from popgraph.dialects.onnx.metadata import value_metadata
from popgraph.support.shapes import Shape

PYTORCH = "pytorch"
"""Producer name of PyTorch's exporters."""
KIND = "pkg.torch.export.graph_signature.InputSpec.kind"
"""Metadata key with which PyTorch's newer exporter classifies tensors."""

STATISTICS: Mapping[str, tuple[int, ...]] = {"BatchNormalization": (3, 4)}
"""Operator -> indices of inputs that are running statistics."""

RANGES: Mapping[str, tuple[int, ...]] = {FIT_GRID[1]: (1,)}
"""Operator -> indices of inputs that are ranges of quantized values."""

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
"""Operator -> indices of inputs that configure the operator."""

WEIGHTED_OPERATORS = frozenset(
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
"""Operators whose initializers are weights, whatever their exported names."""

PASS_THROUGH = frozenset(
    ["Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"]
)
"""Operators that pass their first input through unchanged."""

GENERATED_NAMES = re.compile(
    r"onnx::\w+|/.*|.*Constant(_\d+)?_output_\d+|(_?val|clone|const|_?constant|c_lifted_tensor)_\d+"
    r"|clone|const_fold_opt_+\d+|scalar_tensor\w*|.*\.lifted_tensor\w*"
)
"""Names that exporters give to constants of their own."""

_A = re.compile(r"(?P<stem>.*)(?P<mark>[./])lora_A(?P=mark)weight", re.DOTALL)
_WEIGHT = re.compile(r"[./]weight$")


@dataclass(frozen=True)
class Use:
    """One use of a value: operator, domain, operand index."""

    operator: str
    domain: str
    index: int

    def is_in(self, table: Mapping[str, tuple[int, ...]]) -> bool:
        return self.index in table.get(self.operator, ())


@dataclass(frozen=True)
class Origin:
    """The origin of a model, which decides how names of initializers are read."""

    producer: str = ""
    """The exporter; empty if a user built the model."""
    kinds: Mapping[str, str] = field(default_factory=dict)
    """The kinds that PyTorch's newer exporter gives to tensors, by name."""
    is_text: bool = False
    """Whether the model is a `.pgraph` text, which marks weights and constants itself."""

    @staticmethod
    def of(module: ModuleOp, *, is_text: bool = False) -> Origin:
        infos = model_of(module).graph.value_infos or ()
        recorded = {
            info.text: dict(value_metadata(info)[0].metadata).get(KIND, "") for info in infos
        }
        kinds = {name: kind for name, kind in recorded.items() if kind}
        return Origin(producer(module), kinds, is_text)


@dataclass(frozen=True)
class Roles:
    """Classifies the initializers of one model."""

    module: ModuleOp
    origin: Origin

    def uses(self, value: SSAValue) -> Iterator[Use]:
        """All uses of a value, followed through functions and pass-through operators."""
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
            elif op.op_type in PASS_THROUGH and index == 0:
                yield from self.uses(op.results[0])
            else:
                yield Use(op.op_type, op.domain, index)

    def ranges(self, initializer: Initializer) -> bool:
        """Whether an initializer is the range of a quantized value, not a weight of the user."""
        uses = list(self.uses(initializer.result))
        return bool(uses) and all(use.is_in(RANGES) for use in uses)

    def statistics(self, initializer: Initializer) -> bool:
        """Whether an initializer is used only as running mean or variance."""
        uses = list(self.uses(initializer.result))
        return bool(uses) and all(use.is_in(STATISTICS) for use in uses)

    def reason_against(self, initializer: Initializer, name: str) -> str:
        """Why an initializer is not a weight; empty if it is one."""
        uses = list(self.uses(initializer.result))
        if not is_float(initializer):
            return "no floats"
        if not uses:
            return "nothing reads it"
        if self.origin.is_text:
            return ""
        if all(use.is_in(SETTINGS) for use in uses):
            return f"a setting of {uses[0].operator}"
        return self._exporter_reason(initializer, name, uses) if self.origin.producer else ""

    def _exporter_reason(self, initializer: Initializer, name: str, uses: list[Use]) -> str:
        """Why an initializer comes from the exporter and not from the author of the model."""
        if self.origin.kinds.get(name, "PARAMETER") != "PARAMETER":
            return "a buffer of the module"
        if name in self.origin.kinds or any(use.operator in WEIGHTED_OPERATORS for use in uses):
            return ""
        if GENERATED_NAMES.fullmatch(name) or not (
            self._is_parameter(name) or shape_of(initializer)
        ):
            return "a constant of the exporter"
        if self.origin.kinds and not self._is_parameter(name):
            return "a constant of the exporter"
        return ""

    def _is_parameter(self, name: str) -> bool:
        """Whether a name looks like a PyTorch parameter."""
        return self.origin.producer == PYTORCH and ("." in name or not self.origin.kinds)


def producer(module: ModuleOp) -> str:
    """The exporter recorded in a model; empty if none."""
    found = model_of(module).producer
    return "" if found is None else found.text


def is_float(initializer: Initializer) -> bool:
    element = initializer.value.type.element_type
    return element_types.is_number(element) and element_types.from_ir(element).is_float


def shape_of(initializer: Initializer) -> Shape:
    return tuple(initializer.value.type.get_shape())


def name_of_a(weight: str) -> str:
    """The name of the matrix A that adapts a weight: `fc1.lora_A.weight` for `fc1.weight`."""
    mark = "/" if weight.endswith("/weight") else "."
    return f"{_WEIGHT.sub('', weight)}{mark}lora_A{mark}weight"


def name_of_b(a: str) -> str:
    """The name of the matrix B that belongs to A; "" if this is not the name of an A."""
    found = _A.fullmatch(a)
    return f"{found['stem']}{found['mark']}lora_B{found['mark']}weight" if found else ""


def adapter_names(names: Iterable[str]) -> frozenset[str]:
    """The names, among those of all weights, that belong to adapters: pairs of A and B."""
    known = frozenset(names)
    pairs = [(name, name_of_b(name)) for name in known]
    return frozenset(one for pair in pairs if pair[1] in known for one in pair)
