"""Building blocks: each appends nodes to the model in `onnxblock.base` and returns value names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto

from popgraph.compat.ort_training.errors import UnknownValue
from popgraph.compat.ort_training.graphs import (
    add_initializer,
    add_node,
    fresh_name,
    value_info,
)
from popgraph.compat.ort_training.onnxblock.model_accessor import current


class Block(ABC):
    """
    The base class of blocks: a subclass defines `build`, which edits `self.base`.

    `build` takes names of values, or whatever its caller passes, and returns the names of its
    results. Other blocks are called in it like functions.
    """

    base: ModelProto | None = None
    """The model that `build` edits."""

    def __init__(self, temp_file_name: str = "temp.onnx") -> None:
        """`temp_file_name` has no effect: no temporary files are written."""
        self.base = None

    @abstractmethod
    def build(self, *args: Any, **kwargs: Any) -> Any:
        """Adds the nodes of this block."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Edits the model of the surrounding `with onnxblock.base(...)`."""
        self.base = current().model
        return self.build(*args, **kwargs)

    @property
    def _model(self) -> ModelProto:
        """The model of the current call."""
        return current().model


class _Binary(Block):
    """One node with two operands."""

    op_type = ""

    def build(self, input_name1: str, input_name2: str) -> str:
        """Adds the node."""
        return add_node(self._model, self.op_type, [input_name1, input_name2])


class Add(_Binary):
    """Adds an Add node."""

    op_type = "Add"


class Sub(_Binary):
    """Adds a Sub node."""

    op_type = "Sub"


class Mul(_Binary):
    """Adds a Mul node."""

    op_type = "Mul"


class Div(_Binary):
    """Adds a Div node."""

    op_type = "Div"


class _Unary(Block):
    """One node with one operand."""

    op_type = ""

    def build(self, input_name: str) -> str:
        """Adds the node."""
        return add_node(self._model, self.op_type, [input_name])


class Sigmoid(_Unary):
    """Adds a Sigmoid node."""

    op_type = "Sigmoid"


class Log(_Unary):
    """Adds a Log node."""

    op_type = "Log"


class Neg(_Unary):
    """Adds a Neg node."""

    op_type = "Neg"


class Abs(_Unary):
    """Adds an Abs node."""

    op_type = "Abs"


class _Reduction(Block):
    """A reduction over all axes."""

    op_type = ""

    def __init__(self, keepdims: bool = True) -> None:
        super().__init__()
        self._keepdims = keepdims

    def build(self, input_name: str) -> str:
        """Adds the node."""
        return add_node(self._model, self.op_type, [input_name], keepdims=int(self._keepdims))


class ReduceMean(_Reduction):
    """Adds a ReduceMean node over all axes."""

    op_type = "ReduceMean"


class ReduceSum(_Reduction):
    """Adds a ReduceSum node over all axes."""

    op_type = "ReduceSum"


class Pow(Block):
    """Adds a Pow node with a constant exponent."""

    def __init__(self, exponent: float) -> None:
        super().__init__()
        self._exponent = exponent

    def build(self, pow_input_name: str) -> str:
        """Adds the node and its exponent."""
        exponent = _vector(self._model, self._exponent, "pow_exponent")
        return add_node(self._model, "Pow", [pow_input_name, exponent])


class Constant(Block):
    """Adds an initializer with one float."""

    def __init__(self, value_float: float) -> None:
        super().__init__()
        self._value = value_float

    def build(self) -> str:
        """Adds the initializer."""
        return _vector(self._model, self._value, "initializer")


class Clip(Block):
    """Adds a Clip node; a bound that is None is absent."""

    def __init__(self, clip_min: float | None = None, clip_max: float | None = None) -> None:
        super().__init__()
        self._bounds = clip_min, clip_max

    def build(self, clip_input_name: str) -> str:
        """Adds the node and its bounds."""
        bounds = [
            "" if bound is None else add_initializer(self._model, np.float32(bound), "clip_bound")
            for bound in self._bounds
        ]
        return add_node(self._model, "Clip", [clip_input_name, *bounds])


class Cast(Block):
    """Adds a Cast node to a type of `onnx.TensorProto`."""

    def __init__(self, to: int) -> None:
        super().__init__()
        self._to = to

    def build(self, cast_input_name: str) -> str:
        """Adds the node."""
        return add_node(self._model, "Cast", [cast_input_name], to=self._to)


class SequenceConstruct(Block):
    """Adds a SequenceConstruct node."""

    def build(self, *sequence_input_names: str) -> str:
        """Adds the node."""
        return add_node(self._model, "SequenceConstruct", sequence_input_names)


class ReduceAllL2(Block):
    """The Euclidean norm of several tensors together, in standard operators."""

    def build(self, *reduce_node_input_names: str) -> str:
        """Adds the nodes."""
        model = self._model
        squares = [
            add_node(model, "ReduceSumSquare", [name], keepdims=0)
            for name in reduce_node_input_names
        ]
        total = squares[0] if len(squares) == 1 else add_node(model, "Sum", squares)
        return add_node(model, "Sqrt", [total], "reducealll2_output")


class PassThrough(Block):
    """Returns its operands."""

    def __init__(self, keepdims: bool = True) -> None:
        """`keepdims` is accepted as reductions have it."""
        super().__init__()

    def build(self, *input_names: str) -> Any:
        """Adds nothing; one name is returned as it is, several as a tuple."""
        return input_names[0] if len(input_names) == 1 else input_names


class InputLike(Block):
    """Adds a graph input with the type of a value."""

    def __init__(self, like: str) -> None:
        super().__init__()
        self._like = like

    def build(self, input_name: str | None = None) -> str:
        """Adds the input; without a name, a new one."""
        made = self._model.graph.input.add()
        try:
            made.CopyFrom(value_info(self._model, self._like))
        except UnknownValue:
            del self._model.graph.input[-1]
            raise
        made.name = input_name or fresh_name("input")
        return str(made.name)


class LabelEncoder(Block):
    """Adds a LabelEncoder node of ai.onnx.ml."""

    def __init__(
        self,
        default_float: float = 0.0,
        default_int64: int = -1,
        default_string: str = "_Unused",
        keys_floats: list[float] | None = None,
        keys_int64s: list[int] | None = None,
        keys_strings: list[str] | None = None,
        values_floats: list[float] | None = None,
        values_int64s: list[int] | None = None,
        values_strings: list[str] | None = None,
    ) -> None:
        super().__init__()
        given: dict[str, Any] = {
            "default_float": default_float,
            "default_int64": default_int64,
            "default_string": default_string,
            "keys_floats": keys_floats,
            "keys_int64s": keys_int64s,
            "keys_strings": keys_strings,
            "values_floats": values_floats,
            "values_int64s": values_int64s,
            "values_strings": values_strings,
        }
        self._attributes = {name: value for name, value in given.items() if value is not None}

    def build(self, label_encoder_input_name: str) -> str:
        """Adds the node, and its domain if the model does not import it yet."""
        model, domain = self._model, "ai.onnx.ml"
        if all(one.domain != domain for one in model.opset_import):
            model.opset_import.append(onnx.helper.make_opsetid(domain, 2))
        return add_node(
            model, "LabelEncoder", [label_encoder_input_name], domain=domain, **self._attributes
        )


class Linear(Block):
    """Adds a Gemm node with new, normally distributed weights."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        alpha: float = 1.0,
        beta: float = 1.0,
    ) -> None:
        super().__init__()
        self._shape = in_features, out_features
        self._bias, self._scales = bias, {"alpha": alpha, "beta": beta}

    def build(self, linear_input_name: str) -> str:
        """Adds the node and its weights, drawn by NumPy's global generator."""
        model, draw = self._model, np.random.standard_normal
        inputs = [
            linear_input_name,
            add_initializer(model, draw(self._shape).astype(np.float32), "linear.weight"),
        ]
        if self._bias:
            bias = draw(self._shape[1]).astype(np.float32)
            inputs.append(add_initializer(model, bias, "linear.bias"))
        return add_node(model, "Gemm", inputs, "linear.output", **self._scales)


def _vector(model: ModelProto, value: float, stem: str) -> str:
    return add_initializer(model, np.array([value], np.float32), stem)
