"""`OrtValue`, `OrtDevice`, `NodeArg` and `ModelMetadata`, and the names of types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from popgraph.ort.errors import InvalidArgument, WrongCall
from popgraph.support.description import TensorSpec
from popgraph.support.dtypes import BY_NAME, BY_ONNX, DType, from_numpy

STRING = 8
"""The value of strings in `TensorProto.DataType`."""

_ORT = {
    "f32": "float", "f64": "double", "f16": "float16", "bf16": "bfloat16", "bool": "bool",
    "u8": "uint8", "i8": "int8", "u16": "uint16", "i16": "int16", "u32": "uint32", "i32": "int32",
    "u64": "uint64", "i64": "int64", "u4": "uint4", "i4": "int4", "u2": "uint2", "i2": "int2",
    "c64": "complex64", "c128": "complex128", "string": "string",
    "f8e4m3fn": "float8e4m3fn", "f8e4m3fnuz": "float8e4m3fnuz", "f8e5m2": "float8e5m2",
    "f8e5m2fnuz": "float8e5m2fnuz", "f8e8m0": "float8e8m0", "f4e2m1": "float4e2m1",
}  # fmt: skip
"""PopGraph's name of an element type -> onnxruntime's."""
_ELEMENTS = {f"tensor({theirs})": BY_NAME[ours] for ours, theirs in _ORT.items() if ours in BY_NAME}


def type_text(type_: str) -> str:
    """`f32[N, 3]` -> `tensor(float)`, `sequence(map(i64, f32[]))` -> `seq(map(int64,...))`."""
    kind, _, inner = type_.removesuffix(")").partition("(")
    match kind if type_.endswith(")") else "":
        case "sequence":
            return f"seq({type_text(inner)})"
        case "optional":
            return f"optional({type_text(inner)})"
        case "map":
            key, _, value = inner.partition(", ")
            return f"map({_ORT.get(key, key)},{type_text(value)})"
        case "sparse":
            return f"sparse_{type_text(inner)}"
    element = type_.partition("[")[0]
    return f"tensor({_ORT.get(element, element)})"


def element_of(type_: str) -> DType | None:
    """The element type of `tensor(float)`; None for strings and other types than tensors."""
    return _ELEMENTS.get(type_)


def array_type(array: np.ndarray[Any, Any]) -> str:
    """The type of an array as onnxruntime's text."""
    if array.dtype.kind in "USOV" and array.dtype.isbuiltin != 2:
        return "tensor(string)"
    try:
        name = from_numpy(array.dtype).name
    except KeyError as error:
        raise WrongCall(
            f"arrays of {array.dtype} have no ONNX element type", hint="convert it with astype"
        ) from error
    return f"tensor({_ORT.get(name, name)})"


@dataclass(frozen=True)
class NodeArg:
    """An input or output: its name, type such as `tensor(float)`, and shape."""

    name: str
    type: str
    shape: list[int | str | None]
    """Sizes, names of symbolic dimensions, or None; empty also if the rank is unknown."""
    rank: int | None = field(default=None, repr=False, compare=False)
    """The number of dimensions, if known."""

    @staticmethod
    def of(spec: TensorSpec) -> NodeArg:
        """The node argument of a specification."""
        rank = None if spec.shape is None else len(spec.shape)
        return NodeArg(spec.name, type_text(spec.type), list(spec.shape or ()), rank)


@dataclass(frozen=True)
class ModelMetadata:
    """The metadata of a model; texts are empty where the model has none."""

    producer_name: str = ""
    graph_name: str = ""
    domain: str = ""
    description: str = ""
    graph_description: str = ""
    version: int = 2**63 - 1
    """The model's version; `2**63 - 1` if it has none, as in onnxruntime."""
    custom_metadata_map: Mapping[str, str] = field(default_factory=dict)


class OrtDevice:
    """A device; only the CPU computes."""

    def __init__(self, device_type: str = "cpu", device_id: int = 0) -> None:
        self._type, self._id = device_type, device_id

    @staticmethod
    def make(ort_device_name: str, device_id: int) -> OrtDevice:
        """The device with a name and a number."""
        _check_device(ort_device_name)
        return OrtDevice(ort_device_name, device_id)

    def device_type(self) -> int:
        """0, the number of the CPU."""
        return 0

    def device_id(self) -> int:
        """The number of the device."""
        return self._id


class _Capsule:
    """A DLPack capsule in the protocol of NumPy."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


class OrtValue:
    """
    An array (or a list of arrays) in memory of the CPU.

    Values share the memory of the NumPy arrays that they are made from.
    """

    def __init__(self, value: Any, onnx_type: int | None = None) -> None:
        self._value, self._onnx = value, onnx_type

    @staticmethod
    def ortvalue_from_numpy(
        numpy_obj: np.ndarray[Any, Any], device_type: str = "cpu", device_id: int = 0
    ) -> OrtValue:
        """A value that shares the memory of an array."""
        _check_device(device_type)
        if not isinstance(numpy_obj, np.ndarray) or array_type(numpy_obj) == "tensor(string)":
            raise WrongCall(
                "an OrtValue requires a NumPy array of numbers, not "
                + (f"{numpy_obj.dtype}" if isinstance(numpy_obj, np.ndarray) else "")
                + ("" if isinstance(numpy_obj, np.ndarray) else type(numpy_obj).__name__),
                hint="np.asarray(value, np.float32)",
            )
        return OrtValue(numpy_obj)

    @staticmethod
    def ortvalue_from_numpy_with_onnx_type(
        data: np.ndarray[Any, Any], onnx_element_type: int
    ) -> OrtValue:
        """A value whose elements are reinterpreted as an ONNX type of the same width."""
        dtype = BY_ONNX.get(onnx_element_type)
        if dtype is None or dtype.numpy.itemsize != data.dtype.itemsize:
            raise WrongCall(
                f"elements of {data.dtype} cannot be of ONNX type {onnx_element_type}",
                hint="give an array whose elements have the width of the ONNX type",
            )
        return OrtValue(data.view(dtype.numpy), onnx_element_type)

    @staticmethod
    def ortvalue_from_shape_and_type(
        shape: Sequence[int],
        element_type: Any = np.float32,
        device_type: str = "cpu",
        device_id: int = 0,
    ) -> OrtValue:
        """A value of zeros; `element_type` is a NumPy type or a number of ONNX."""
        _check_device(device_type)
        return OrtValue(np.zeros(tuple(shape), numpy_type(element_type)))

    @staticmethod
    def from_dlpack(data: Any, is_bool_tensor: bool | None = None) -> OrtValue:
        """A value that shares the memory of an object with `__dlpack__`."""
        array = np.from_dlpack(data if hasattr(data, "__dlpack__") else _Capsule(data))
        return OrtValue(array.view(np.bool_) if is_bool_tensor else array)

    def numpy(self) -> Any:
        """The array; it shares memory with the value."""
        return self._value

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.array(self._value, dtype, copy=copy)

    def __dlpack__(self, **named: Any) -> Any:
        return self._value.__dlpack__(**named)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def data_ptr(self) -> int:
        """The address of the first element."""
        return int(self._value.ctypes.data)

    def device_name(self) -> str:
        """The name of the device, "cpu"."""
        return "cpu"

    def shape(self) -> list[int]:
        """The sizes of an array."""
        return list(self._value.shape)

    def data_type(self) -> str:
        """The type, such as `tensor(float)`."""
        if isinstance(self._value, np.ndarray):
            return array_type(self._value)
        return f"seq({array_type(np.asarray(self._value[0]))})" if self._value else "seq"

    def element_type(self) -> int:
        """The element type as a number of `TensorProto.DataType`."""
        if self._value.dtype.kind in "USO":
            return STRING
        return self._onnx or from_numpy(self._value.dtype).onnx

    def tensor_size_in_bytes(self) -> int:
        """The size of the elements."""
        return int(self._value.nbytes)

    def has_value(self) -> bool:
        """Whether an optional value is present."""
        return self._value is not None

    def is_tensor(self) -> bool:
        """Whether the value is an array."""
        return isinstance(self._value, np.ndarray)

    def is_tensor_sequence(self) -> bool:
        """Whether the value is a list."""
        return isinstance(self._value, list)

    def is_sparse_tensor(self) -> bool:
        """Always false."""
        return False

    def update_inplace(self, np_arr: np.ndarray[Any, Any]) -> None:
        """Copies an array of the same type and size into this value's memory."""
        if np_arr.shape != self._value.shape or np_arr.dtype != self._value.dtype:
            raise WrongCall(
                f"an array of {np_arr.dtype}{list(np_arr.shape)} cannot replace "
                f"{self._value.dtype}{self.shape()}",
                hint="shapes and element types must be equal",
            )
        self._value[...] = np_arr


def numpy_type(element_type: Any) -> np.dtype[Any]:
    """The NumPy type of a NumPy type or a number of `TensorProto.DataType`."""
    if isinstance(element_type, int) and element_type in BY_ONNX:
        return BY_ONNX[element_type].numpy
    try:
        made: np.dtype[Any] = np.dtype(element_type)
    except TypeError as error:
        raise InvalidArgument(
            f"{element_type!r} is not an element type", hint="np.float32, or a number of ONNX"
        ) from error
    return made


def _check_device(name: str) -> None:
    if str(name).partition(":")[0].lower() != "cpu":
        raise WrongCall(f"there is no device {name!r}", hint="PopGraph computes on 'cpu'")
