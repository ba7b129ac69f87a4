"""Tests that sessions and builders refuse invalid operators with PopART's messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import popgraph
import popgraph.popart as popart
from popgraph.builder.opset.checks import CHECKS
from popgraph.builder.opset.checks.graphcore import OPERANDS
from popgraph.popart.operators import getSupportedOperations
from popgraph.support.errors import PopgraphError


def written_in_place(written: Written, name: str, value: list[Any]) -> str:
    y = str(written.onnx.relu([written.f(2)]))
    written.builder.addNodeAttribute(name, value, {y})
    if name.endswith("names"):
        return y
    written.builder.addNodeAttribute("__inplace_op_names", ["ReluInplace", "Relu"], {y})
    return y


def serialised(written: Written, mode: str, factor: int) -> str:
    product = str(written.onnx.matmul([written.f(4, 6), written.f(6, 8)]))
    written.builder.setSerializeMatMul({product}, mode, factor)
    return product


def added_up_in(written: Written, partials: str) -> str:
    product = str(written.onnx.matmul([written.f(4, 6), written.f(6, 8)]))
    written.builder.setPartialsType(product, partials)
    assert written.builder.getPartialsType(product) == partials
    return product


PARTIALS = (
    "Unable to get option 'partialsTypeMatMul' from string 'FOO'. Possible values are 'float' and "
    "'half' in any letter case."
)


UNKNOWN_TYPE = (
    "no ONNX type FOO, they're [BFLOAT16, BOOL, COMPLEX128, COMPLEX64, DOUBLE, FLOAT, FLOAT16, "
    "FLOAT8_143, FLOAT8_152, INT16, INT32, INT64, INT8, STRING, UINT16, UINT32, UINT64, UINT8, "
    "UNDEFINED]."
)


class Written:
    """A builder, and short names for its inputs, constants and operators."""

    def __init__(self, opset: int, kind: type[Any] = popart.Builder) -> None:
        self.builder = kind(opsets={"ai.onnx": opset, "ai.graphcore": 1})
        self.onnx: Any = self.builder.aiOnnx
        self.own: Any = self.builder.aiGraphcore

    def f(self, *shape: int, of: str = "FLOAT") -> str:
        return str(self.builder.addInputTensor(popart.TensorInfo(of, list(shape))))

    def i(self, *shape: int) -> str:
        return self.f(*shape, of="INT32")

    def k(self, *numbers: float, of: type = np.int64) -> str:
        return str(self.onnx.constant(np.array(numbers, of)))


Write = Callable[[Written], Any]


def refused(write: Write, opset: int) -> str:
    """The error of a session for a model that the builder accepted."""
    written = Written(opset)
    made = write(written)
    anchor = made if isinstance(made, str) else written.own.nop([written.f(1)])
    if not isinstance(made, str) and made:
        anchor = made[0]
    with pytest.raises(popart.popart_exception) as caught:
        popart.InferenceSession(written.builder.getModelProto(), popart.DataFlow(1, [anchor]))
    return str(caught.value.args[0])


ONNX: list[tuple[Write, int, str]] = [
    (
        lambda w: written_in_place(w, "__inplace_op_names", ["ReluInplace"]),
        10,
        "Either BOTH or NEITHER of the fields __inplace_op_names and __inplace_op_priorities must "
        "be set, but only __inplace_op_names is set",
    ),
    (
        lambda w: written_in_place(w, "__inplace_op_priorities", [1.0]),
        10,
        "For fields __inplace_op_priorities and __inplace_op_names, the number of elements must be "
        "the same [ 1 != 2 ]",
    ),
    (
        lambda w: w.onnx.upsample([w.f(1, 1, 2, 2), w.k(1, 2, of=np.float32)]),
        9,
        "There should be at exactly 4 elements in upsample op inputs, scales. Scales has 2 "
        "elements.",
    ),
    (
        lambda w: w.onnx.matmul([w.f(2, 2, 3), w.f(3, 3, 2)]),
        9,
        "np broadcasting failed on 'Op 100 (ai.onnx.MatMul:9)', frames [2] and [3] are not aligned",
    ),
    (
        lambda w: w.onnx.randomuniformlike([w.i(2)]),
        9,
        "ai.onnx.RandomUniformLike:1 : Unsupported data type requested: INT32",
    ),
    (
        lambda w: serialised(w, "input_channels", 3),
        10,
        "Invalid serialisation factor 3 for input channels dim 4. input_channels dim should be a "
        "multiple of the serialisation factor ",
    ),
    (
        lambda w: serialised(w, "reducing_dim", 4),
        10,
        "Invalid serialisation factor 4 for reducing dimension 6. reducing_dim dim should be a "
        "multiple of the serialisation factor ",
    ),
    (
        lambda w: serialised(w, "output_channels", 3),
        10,
        "Invalid serialisation factor 3 for output channels dim 8. output_channels dim should be "
        "a multiple of the serialisation factor ",
    ),
    (
        lambda w: serialised(w, "output_channels", 0),
        10,
        "Invalid serialisation factor 0. Serialisation factor must be a non-zero positive integer.",
    ),
    (
        lambda w: w.onnx.argmax([w.f()]),
        10,
        "ArgExtremaOp input rank must be greater than 0, invalid ArgExtremaOp 100 "
        "(ai.onnx.ArgMax:1).",
    ),
    (
        lambda w: w.onnx.argmin([w.f(2, 3)], axis=2),
        10,
        "Cannot compute ArgExtremaOp on axis 2 when input rank is 2, invalid ArgExtremaOp 100 "
        "(ai.onnx.ArgMin:1).",
    ),
    (
        lambda w: w.onnx.argmax([w.f(2, 3)], axis=-3),
        11,
        "Axis -3 is out of acceptable range [-2, 1]",
    ),
    (
        lambda w: w.onnx.batchnormalization([w.f(4, 3), *(w.f(3) for _ in range(4))], 1),
        9,
        "batch norm requires X to have a rank >= 3.  x has rank 2",
    ),
    (
        lambda w: w.onnx.concat([w.f(2, 3), w.f(2)], axis=0),
        10,
        "Input 1 of 2 to concat does not have matching output rank. Input 1 has rank 1 ([2]) while "
        "the output has rank 2 ([2 3]).Concat axis 0.",
    ),
    (
        lambda w: w.onnx.concat([w.f(2, 3), w.f(2, 4)], axis=0),
        10,
        "Input 1 to concat does not have matching shape. In ConcatOp::getOutputShape, axis = 0 and "
        "shapes : \n[2 3]\n[2 4]",
    ),
    (
        lambda w: w.onnx.concat([w.f(2, 3), w.i(2, 3)], axis=0),
        10,
        "All input tensor types to a concat operation must be equal. This is for op "
        "Op(ai.onnx.Concat:4, inputs=[input, input/1], outputs=[Concat:0])",
    ),
    (
        lambda w: w.onnx.conv([w.f(1, 4, 5, 5), w.f(6, 3, 3, 3)], group=2),
        10,
        "Invalid value for group (2) in Op(ai.onnx.Conv:1, inputs=[input, input/1], "
        "outputs=[Conv:0]). number of input channels (4) / group (2) should be equal to the weight "
        "inputs second dimension (3)",
    ),
    (
        lambda w: w.onnx.conv([w.f(1, 4, 5, 5), w.f(6, 4, 3, 3)], group=0),
        10,
        "group attribute in Op(ai.onnx.Conv:1, inputs=[input, input/1], outputs=[Conv:0]) must be "
        "greater than zero",
    ),
    (
        lambda w: w.onnx.conv([w.f(1, 4, 5, 5), w.f(6, 4, 3, 3)], auto_pad="SAME"),
        10,
        "Invalid auto_pad provied: SAME",
    ),
    (
        lambda w: w.onnx.convtranspose([w.f(1, 4, 5, 5), w.f(3, 6, 3, 3)]),
        10,
        "Unexpected number of channels in the input tensor: 4. Given non-transposed weight tensor "
        "of shape [3 6 3 3], transposed convolution expects input tensor of size [1 4 5 5] to have "
        "3 channels.",
    ),
    (
        lambda w: w.onnx.convtranspose(
            [w.f(1, 4, 5, 5), w.f(4, 6, 3, 3)], auto_pad="VALID", output_shape=[7, 7]
        ),
        10,
        "`VALID` type for auto_pad cannot be used if the `output_shape` is also set",
    ),
    (
        lambda w: w.onnx.cumsum([w.f(3), w.k(0, 1)]),
        11,
        "CumSum op, 'axis' tensor must have one element.",
    ),
    (
        lambda w: w.onnx.cumsum([w.f(3), w.i()]),
        11,
        "For CumSum op Op(ai.onnx.CumSum:11, inputs=[input, input/1], outputs=[CumSum:0]), the "
        "axis tensor input/1 does not have data.",
    ),
    (
        lambda w: w.onnx.cumsum([w.f(3), w.k(0)], exclusive=2),
        11,
        "CumSum op, 'exclusive' attributes must be 0 or 1.",
    ),
    (
        lambda w: w.onnx.dropout([w.f(3)], 1, ratio=1.5),
        10,
        "ai.onnx.Dropout:10 ratio value 1.5 is not valid. Please use a value in the interval [0,1)",
    ),
    (
        lambda w: w.onnx.expand([w.f(2, 3), w.k(4, 3)]),
        10,
        "Need the value of the ai.onnx.Expand:8 input 'shape' to determine the output shape, but "
        "was unable because Expand shape constraint: corresponding dimensions must have the same "
        "value or one of them must be 1",
    ),
    (lambda w: w.onnx.flatten([w.f(2, 3)], axis=3), 10, "invalid axis 3 in flattenOpFactory"),
    (
        lambda w: w.onnx.gather([w.f(2, 3), w.i(1)], axis=2),
        11,
        "GatherOp::setup axis = 2 is outside the acceptable range [-2, 1]",
    ),
    (
        lambda w: w.onnx.gru([w.f(2, 1, 3), w.f(1, 6, 3), w.f(1, 6, 2)], 1, clip=1.0),
        10,
        "GRUOp attribute `clip' is not supported",
    ),
    (
        lambda w: w.onnx.gru(
            [w.f(2, 1, 3), w.f(1, 6, 3), w.f(1, 6, 2)], 1, activations=["Sigmoid", "Tanh"]
        ),
        10,
        "GRUOp attribute `activations' is not supported",
    ),
    (
        lambda w: w.onnx.logsoftmax([w.f(2, 3)], axis=2),
        10,
        "LogSoftmax axis, 2, is outside of acceptable range [-2, 1]",
    ),
    (lambda w: w.onnx.lrn([w.f(1, 3, 2, 2)], 0), 10, "LRN requires size to be >= 1. size is 0"),
    (
        lambda w: w.onnx.lstm([w.f(2, 1, 3), w.f(1, 8, 3), w.f(1, 8, 2)], 1, direction="reverse"),
        10,
        "LSTMOp attribute `direction' must be unset or `forward'",
    ),
    (
        lambda w: w.onnx.lstm(
            [w.f(2, 1, 3), w.f(1, 8, 3), w.f(1, 8, 2)], 1, activations=["Sigmoid", "Tanh", "Relu"]
        ),
        10,
        "LSTM activations must be the same for output and forget gates.",
    ),
    (
        lambda w: w.onnx.lstm([w.f(2, 1, 3), w.f(1, 8, 3), w.f(1, 8, 2)], 1, input_forget=1),
        10,
        "LSTMOp attribute `input_forget' must be set to 0",
    ),
    (
        lambda w: w.onnx.lstm(
            [w.f(2, 1, 3), w.f(1, 8, 3), w.f(1, 8, 2), "", w.i(2)],
            1,
        ),
        10,
        "Incorrect sequence len shape : [2] != [1]",
    ),
    (
        lambda w: w.onnx.max([w.f(2, 3), w.f(3)]),
        7,
        "Inputs to ai.onnx.Max:6 do not all the same type & shape, with opid.version = 6",
    ),
    (
        lambda w: w.onnx.onehot([w.i(3), w.i(1), w.f(2)]),
        10,
        "The depth Tensor `input/1' does not have data",
    ),
    (
        lambda w: w.onnx.reducesum([w.f(2, 3)], axes=[2]),
        10,
        "Axis 2 is out of acceptable range [-2, 1]",
    ),
    (
        lambda w: w.onnx.reshape([w.f(2, 3), w.k(4, 2)]),
        10,
        "Failure in ReshapeOp::setup() for Op(ai.onnx.Reshape:5, inputs=[input, Constant:0], "
        "outputs=[Reshape:0]). Trying to reshape from [2 3] to [4 2]. The number of elements of "
        "the input is 6, while the number of elements of the output is 8. The number of elements "
        "cannot change for a ReshapeOp",
    ),
    (
        lambda w: w.onnx.reshape([w.f(2, 3), w.k(4, -1)]),
        10,
        "Need the value of the ai.onnx.Reshape:5 input 'shape' to determine the output shape, but "
        "was unable because Incompatible inferred dimension, not whole number.",
    ),
    (
        lambda w: w.onnx.reshape([w.f(2, 3), w.k(2, -3)]),
        10,
        "Need the value of the ai.onnx.Reshape:5 input 'shape' to determine the output shape, but "
        "was unable because Dimension, -3, of new shape for Reshape cannot be smaller than -1.",
    ),
    (
        lambda w: w.onnx.resize([w.f(2, 3), w.k(2.0, of=np.float32)]),
        10,
        "The number of dimensions of the resize op scales (1) must match the number of dimensions "
        "of the input (2)",
    ),
    (
        lambda w: w.onnx.resize([w.f(2, 3), w.f(2)]),
        10,
        "The tensor `input/1` does not have data",
    ),
    (
        lambda w: w.onnx.roialign([w.f(1, 2, 4, 4), w.f(3, 4), w.f(3, 1, of="INT64")]),
        10,
        "The size of input batch_index must be 1",
    ),
    (
        lambda w: w.onnx.slice([w.f(2, 3)], axes=[-3], starts=[0], ends=[1]),
        9,
        "slice op input tensor input, rank 2, axis -3 is out of range",
    ),
    (
        lambda w: w.onnx.tile([w.f(2, 3), w.k(0, 1)]),
        10,
        "'Repeats' tensor `Constant:0' has invalid value `0' at index 0",
    ),
    (
        lambda w: w.onnx.topk([w.f(2, 3), w.k(4)], axis=1),
        10,
        "Cannot take top-4 on dim of size 1, invalid Op 101 (ai.onnx.TopK:10)",
    ),
    (
        lambda w: w.onnx.transpose([w.f(2, 3)], perm=[0]),
        10,
        "Rank of permutation tensor [0], rank 1 must be equal to rank of input tensor, shape "
        "[2 3], rank 2.",
    ),
    *(
        (
            write,
            8,
            f"np broadcasting failed on 'Op 100 (ai.onnx.{name})', frames {told} are not aligned",
        )
        for write, name, told in (
            (lambda w: w.onnx.max([w.f(2), w.f(2, 1), w.f(3)]), "Max:8", "[2, 2] and [3]"),
            (lambda w: w.onnx.sum([w.f(2), w.f(3)]), "Sum:8", "[2] and [3]"),
        )
    ),
    (
        lambda w: w.onnx.mean([w.f(2), w.f(1, of="FLOAT16")]),
        8,
        "np broadcasting failed on Op 100 (ai.onnx.Mean:8), incompatible types FLOAT and FLOAT16 "
        "(shapes [2] and [1])",
    ),
    (
        lambda w: w.onnx.where([w.f(2, of="BOOL"), w.f(3), w.f(2)]),
        9,
        "np broadcasting failed on 'Op 100 (ai.onnx.Where:9)', frames [2] and [3] are not aligned",
    ),
    (
        lambda w: w.onnx.prelu([w.f(2, 3), w.f(5)]),
        9,
        "np broadcasting failed on 'Op 100 (ai.onnx.PRelu:9)', frames [2, 3] and [5] are not "
        "aligned",
    ),
    (
        lambda w: w.onnx.gemm([w.f(2, 3), w.f(5, 4), w.f(5)], transB=1),
        10,
        "Op(ai.onnx.MatMul:9, inputs=[input, Gemm:0_onnxtoonnxd_0], "
        "outputs=[Gemm:0_onnxtoonnxd_1]) contracting dimensions unequal: lhs 'input' [2 3], rhs "
        "'Gemm:0_onnxtoonnxd_0' [4 5]",
    ),
    (
        lambda w: w.onnx.gemm([w.f(2, 4), w.f(4, 5), w.f(7)]),
        10,
        "np broadcasting failed on 'Op 100 (ai.onnx.Add:7)', frames [2, 5] and [7] are not aligned",
    ),
    (
        lambda w: w.onnx.gemm([w.f(2, 3, 4), w.f(4, 5), w.f(5)], transA=1),
        10,
        "Rank of permutation tensor [1 0], rank 2 must be equal to rank of input tensor, shape "
        "[2 3 4], rank 3.",
    ),
    (
        lambda w: w.onnx.scatter([w.f(2, 4), w.i(2, 4), w.f(2, 4)], axis=5),
        10,
        "ScatterReduceOp::setup axis = 5 is outside the acceptable range [-2, 1]",
    ),
    (
        lambda w: w.onnx.scatterelements([w.f(2, 4), w.i(3, 4), w.f(2, 4)]),
        11,
        "Failed to expand 'indices' shape (3,4) to match 'src' shape (2,4) using reduction axis "
        "= 0.",
    ),
    (
        lambda w: w.onnx.spacetodepth([w.f(1, 8, 2, 2)], blocksize=3),
        10,
        "Failure in ReshapeOp::setup() for Op(ai.graphcore.Reshape:1, inputs=[input], "
        "outputs=[SpaceToDepth:0_onnxtoonnxd_0]). Trying to reshape from [1 8 2 2] to [1 8 2 3 0 "
        "3]. The number of elements of the input is 32, while the number of elements of the "
        "output is 0. The number of elements cannot change for a ReshapeOp",
    ),
    (
        lambda w: w.onnx.depthtospace([w.f(1, 8, 2, 2)], blocksize=2, mode="XX"),
        11,
        "Unrecognised DepthToSpaceMode XX",
    ),
    (
        lambda w: w.onnx.pad([w.f(2, 4)], [0, 1, 0, 1], "wrap"),
        10,
        "Invalid pad mode `wrap' in padGrow. Expected one of (edge, reflect, constant)",
    ),
    (
        lambda w: w.onnx.cumsum([w.f(3), w.k(1)]),
        11,
        "CumSumOpx op, 'axis' value out of range.",
    ),
    (
        lambda w: w.onnx.constantofshape([w.f(2, of="INT64")]),
        10,
        "the tensor `input` does not have data",
    ),
    (
        lambda w: w.onnx.upsample([w.f(1, 2, 5, 5), w.k(1, 1, 2, 2, of=np.int32)]),
        9,
        "Can not import scales from tensor of type INT32",
    ),
    (lambda w: added_up_in(w, "FOO"), 10, PARTIALS),
]

OWN: list[tuple[Write, str]] = [
    (
        lambda w: w.own.depthtospace([w.f(1, 8, 2, 2)], blocksize=2, mode="XX"),
        "Unrecognised DepthToSpaceMode XX",
    ),
    (
        lambda w: w.own.subsample([w.f(4, 2)], [1]),
        "Op 100 (ai.graphcore.Subsample:1) has 1 strides for the 2 axes of its input",
    ),
    (
        lambda w: w.own.dynamicslice([w.f(4, 2), w.f(1, of="UINT32")], [0, 1], [1]),
        "Op 100 (ai.graphcore.DynamicSlice:1) has 2 axes, but 1 sizes",
    ),
    (lambda w: w.own.abort([w.f(2)]), "Conditional abort op can only test a scalar tensor"),
    (
        lambda w: w.own.atan2([w.f(2), w.f(3)]),
        "np broadcasting failed on 'Op 100 (ai.graphcore.Atan2:1)', frames [2] and [3] are not "
        "aligned",
    ),
    (
        lambda w: w.own.bucketize([w.f(2), w.f(3)], right=2),
        "BucketizeOp right = 2 is not valid: must be either 0 or 1.",
    ),
    (
        lambda w: w.own.bucketize([w.f(2), w.f(3, 1)]),
        "BucketizeOp::setup The boundaries tensor is not a 1-D tensor. The boundaries tensor rank "
        "= 2.",
    ),
    (
        lambda w: w.own.bucketize([w.f(2), w.i(3)]),
        "BucketizeOp::setup The input and boundaries tensors have different data types. The input "
        "tensor data type = float32. The boundaries tensor data type = int32.",
    ),
    (
        lambda w: w.own.ctcloss([w.f(5, 2), w.i(2, 3), w.i(2), w.i(2)]),
        "Unsupported shape for input 0 of Op 100 (ai.graphcore.Ctc:1) (expected a 'logarithmized "
        "probabilities' tensor of rank 3, got a tensor with shape [5 2]).",
    ),
    (
        lambda w: w.own.ctcloss([w.f(5, 2, 4), w.i(2, 3), w.i(2), w.i(2)], outDataType="INT32"),
        "Unsupported data type for output 0 of Op 100 (ai.graphcore.Ctc:1) (expected a floating "
        "point type, got INT32).",
    ),
    (
        lambda w: w.own.ctcloss([w.f(5, 2, 4), w.i(3, 3), w.i(2), w.i(2)]),
        "Unsupported shape for input 1 of Op 100 (ai.graphcore.Ctc:1) (expected a 'targets' tensor "
        "of rank 2 with the size of the first dimension being 2 to match the size of the second "
        "dimension of the 'logarithmized probabilities' tensor, got [5 2 4]).",
    ),
    (
        lambda w: w.own.ctcloss([w.f(5, 2, 4), w.i(2, 3), w.i(3), w.i(2)]),
        "Unsupported shape for input 2 of Op 100 (ai.graphcore.Ctc:1) (expected a 'input lengths' "
        "tensor of shape [2], got [3]).",
    ),
    (
        lambda w: w.own.ctcloss([w.f(5, 2, 4), w.i(2, 3), w.i(2), w.f(2)]),
        "Unsupported data type for input 3 of Op 100 (ai.graphcore.Ctc:1) (expected a 'target "
        "lengths' tensor of type UINT32 or type INT32, got FLOAT).",
    ),
    (
        lambda w: w.own.ctcbeamsearchdecoder([w.f(5, 2, 4), w.i(2)]),
        "Unsupported data type for input 1 of Op 100 (ai.graphcore.CtcBeamSearchDecoder:1) "
        "(expected a 'input lengths' tensor of type UINT32, got INT32).",
    ),
    (
        lambda w: w.own.groupedgather([w.f(2, 3), w.i(2, 1)], axis=0, group_size=2),
        "GatherOp::setup axis = 0 indicates the dimension of the group",
    ),
    (lambda w: w.own.l1loss([w.f()], 0.1), "L1Op not valid for rank-0 tensor (scalar)"),
    (
        lambda w: w.own.lstm([w.f(2, 1, 3), w.f(4, 4, 2), w.f(4, 2), w.f(2, 1, 2)]),
        "Bad weights shape 1, should be [4 5 2]",
    ),
    (
        lambda w: w.own.nllloss([w.f(2, 4, 3), w.i(2, 5)]),
        "The label tensor (INT32   [2 5]) must have shape [2 4] to match all but the final "
        "dimension of the probabilities tensor (FLOAT   [2 4 3]) in Op 100 (ai.graphcore.Nll:1). ",
    ),
    (
        lambda w: w.own.nllloss([w.f(2, 3), w.f(2)]),
        "Expected the label tensor NllOp to be an integer data type (fixed point), not the case "
        "for input with info: FLOAT   [2]. This error for Op 100 (ai.graphcore.Nll:1). ",
    ),
    (
        lambda w: w.own.normalize_image([w.f(2, 4), w.f(3), w.f(3)]),
        "requires the inner dimension to be 3.",
    ),
    (
        lambda w: w.own.normalize_image([w.f(2, 3), w.f(3), w.f(3)], scale=0.0),
        "[normalizeImageOpCreator] scale should be greater than 0.",
    ),
    (lambda w: w.own.reducemedian([w.f(2, 2)], [3]), "Axis 3 is out of acceptable range [-2, 1]"),
    (
        lambda w: w.own.reducemedian([w.f()], [0]),
        "Reduce input rank must be greater than 0, invalid Reduce 100 "
        "(ai.graphcore.ReduceMedian:1).",
    ),
    (
        lambda w: w.own.reshape([w.f(2, 3)], [-1, -1]),
        "shape input to ReshapeOp can only use -1 to specify one unknown dimension",
    ),
    (
        lambda w: w.own.reverse([w.f(2, 3)], [-1]),
        "ReverseOp '100 (ai.graphcore.Reverse:1)' invalid dimension '-1'. Only positive dimensions "
        "are supported",
    ),
    (
        lambda w: w.own.shapeddropout([w.f(4, 3)], [2, 3]),
        "ShapedDropout: incompatible input tensor and dropout shape. ai.graphcore.ShapedDropout:1 "
        "is configured with shape [2 3] which is not broadcastable to the input tensor with shape "
        "[4 3].",
    ),
    (
        lambda w: w.own.sort([w.f()]),
        "BaseSortOp input rank must be greater than 0, invalid BaseSortOp 100 "
        "(ai.graphcore.Sort:1).",
    ),
    (
        lambda w: w.own.splinebasis([w.f(2, 2), w.i(2), w.f(2, of="UINT8")], degree=4),
        "SplineBasisOp degree = 4 is not valid: must be between 0 and 3.",
    ),
    (
        lambda w: w.own.splinebasis([w.f(2, 2), w.i(2, 1), w.f(2, of="UINT8")]),
        "SplineBasisOp::setup: kernelSize tensor is not a 1-D tensor. KernelSize tensor rank = 2.",
    ),
    (
        lambda w: w.own.slice([w.f(2)], [1, 1], [0, 0]),
        "Invalid input shape in BaseSliceOp::getSlices. The input shape has rank 1, but axis = 1. "
        "axis must be less than the input shape's rank. This error is for Op 100 "
        "(ai.graphcore.Slice:1).",
    ),
    (
        lambda w: w.own.splineweighting([w.f(2, 2), w.f(2, 2), w.f(2, 2), w.i(2, 2)]),
        "SplineWeightingOp::setup: weight tensor is not a 3-D tensor. Weight tensor rank = 2.",
    ),
    (
        lambda w: w.own.splineweighting(
            [w.f(2, 2), w.f(3, 2, 2, of="FLOAT16"), w.f(2, 2), w.i(2, 2)]
        ),
        "SplineWeightingOp::setup: The input and weight tensors have different data types. The "
        "input tensor data type = float32. The weight tensor data type = float16.",
    ),
]


@pytest.mark.parametrize(("write", "opset", "said"), ONNX)
def test_sessions_refuse_invalid_onnx_operators(write: Write, opset: int, said: str) -> None:
    assert refused(write, opset) == said


@pytest.mark.parametrize(("write", "said"), OWN)
def test_sessions_refuse_invalid_popart_operators(write: Write, said: str) -> None:
    assert refused(write, 10) == said


@pytest.mark.parametrize(("write", "said"), OWN)
def test_popgraph_s_builder_refuses_invalid_operators_at_the_call(write: Write, said: str) -> None:
    with pytest.raises(PopgraphError) as caught:
        write(Written(10, popgraph.Builder))
    assert str(caught.value.args[0]) == said


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (
            lambda w: w.onnx.split([w.f(4, 3)], 2, axis=2),
            "Invalid value of attribute 'axis'. Rank=2 Value=2",
        ),
        (
            lambda w: w.onnx.split([w.f(4, 3)], 2, split=[1, 1, 2]),
            "Mismatch between number of splits (3) and outputs (2)",
        ),
        (
            lambda w: w.onnx.split([w.f(4, 3)], 2, split=[1, 2]),
            "Mismatch between the sum of 'split' (3) and the split dimension of the input (4)",
        ),
        (lambda w: w.onnx.split([w.f(4, 3)], 3), "The input is not evenly splittable"),
        (
            lambda w: w.onnx.add([w.f(2)]),
            "Add has invalid number of inputs 1. Must be between 2..2",
        ),
        (
            lambda w: w.onnx.concat([], axis=0),
            "Concat has invalid number of inputs 0. Must be between 1..inf",
        ),
        (
            lambda w: w.own.scatterreduce([w.f(2)], 3),
            "ScatterReduce has invalid number of inputs 1. Must be between 2..3",
        ),
        (
            lambda w: w.onnx.tile([w.f(2, 4), w.k(1, -2)]),
            "Output 'Tile:0' of node 'Tile' has invalid shape, [2 -8]. Values must be non-negative "
            "in each shape dimension.",
        ),
        (lambda w: w.own.subsample([w.f(4, 3)], [2, 0]), "Strides invalid. 0 stride at index 1"),
        (
            lambda w: w.onnx.dropout([w.f(2)], 3),
            "Dropout has an invalid number of outputs 3. Must be between 0..2",
        ),
        (
            lambda w: w.own.multiconv(
                [[w.f(1, 1, 3), w.f(1, 1, 2)]], partialsTypes=["half", "half"], debugContext="two"
            ),
            "For MultiConvOp 'two', number of partialsTypes parameter sets (2) does not match the "
            "number of input sets (1)",
        ),
        (
            lambda w: w.own.multiconv([[w.f(1, 1, 3), w.f(1, 1, 2)]], pads=[[1]]),
            "Padding vector (length 1) does not have 2 values for each spatial dimension 1",
        ),
        (
            lambda w: w.own.multiconv([[w.f(1, 1, 3), w.f(1, 1, 8)]], inDilations=[[2]]),
            "Window parameter values combine to give invalid spatial output shape: [-2]",
        ),
        (
            lambda w: w.onnx.upsample([w.f(1, 1, 2, 2), w.k(1, 1, 2, 2, of=np.float32)]),
            "operator Upsample was removed in opset 10 of domain ai.onnx",
        ),
        (lambda w: w.onnx.cast([w.f(2)], "FOO"), UNKNOWN_TYPE),
        (lambda w: w.f(2, of="FOO"), UNKNOWN_TYPE),
        (
            lambda w: w.builder.customOp("C", 1, "d", [w.f(2)], {"x": [1, "a"]}),
            "Invalid or mismatched python list type provided in custom op attribute 'x'",
        ),
        (
            lambda w: w.builder.customOp("C", 1, "d", [w.f(2)], {"x": None}),
            "Invalid type provided in custom op attribute 'x'",
        ),
        (lambda w: w.onnx.relu(["no"]), "Unknown tensor 'no' (there are no valid tensors yet)."),
        (
            lambda w: w.own.scale([w.f(1) + "x"], 2.0),
            "Unknown tensor 'inputx' (valid tensors are input).",
        ),
        (
            lambda w: w.onnx.clip([w.f(2), "", "no"]),
            "Unknown tensor 'no' (valid tensors are input).",
        ),
    ],
)
def test_builders_refuse_invalid_operators_at_the_call(write: Write, said: str) -> None:
    with pytest.raises(popart.popart_exception) as caught:
        write(Written(11))
    assert caught.value.args[0] == said


@pytest.mark.parametrize(
    ("outputs", "attributes", "said"),
    [
        (2, {"axis": -3}, "Split op input tensor x, rank 2, axis -3 is out of range"),
        (
            2,
            {"split": [1, 1, 2]},
            "Number of outputs does not match number of requested splits",
        ),
        (2, {"axis": 2, "split": [1, 1]}, "Axis 2 is out of range for tensor with 2 dims"),
        (2, {"split": [1, 2]}, "splits 3 invalid for dimension of size 4"),
        (3, {}, "Tensor x ([4 3]) may not be split into equally sized parts along axis 0"),
    ],
)
def test_sessions_refuse_invalid_splits_of_files(
    outputs: int, attributes: dict[str, Any], said: str
) -> None:
    names = [f"y{number}" for number in range(outputs)]
    graph = helper.make_graph(
        [helper.make_node("Split", ["x"], names, **attributes)],
        "splits",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 3])],
        [helper.make_tensor_value_info("y0", TensorProto.FLOAT, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)])
    with pytest.raises(popart.popart_exception) as caught:
        popart.InferenceSession(model.SerializeToString(), popart.DataFlow(1, ["y0"]))
    assert str(caught.value.args[0]) == said


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes", "said"),
    [
        (
            "Reverse",
            1,
            {"dimensions": 0},
            "the attribute 'dimensions' must be a list of integers, not 0",
        ),
        ("L1", 1, {"reduction": 0.5}, "the attribute 'reduction' must be a string, not 0.5"),
        ("Sort", 1, {"axis": [0]}, "the attribute 'axis' must be an integer, not [0]"),
        ("MultiConv", 2, {}, "MultiConv takes pairs of image and weight, not [4, 3] and [4, 3]"),
        ("Abort", 0, {}, "Abort has no results for others to read"),
    ],
)
def test_sessions_refuse_invalid_operators_without_a_schema(
    op_type: str, inputs: int, attributes: dict[str, Any], said: str
) -> None:
    graph = helper.make_graph(
        [helper.make_node(op_type, ["x"] * inputs, ["y"], domain="ai.graphcore", **attributes)],
        "own",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    opsets = [helper.make_opsetid("", 11), helper.make_opsetid("ai.graphcore", 1)]
    model = helper.make_model(graph, opset_imports=opsets)
    with pytest.raises(popart.popart_exception) as caught:
        popart.InferenceSession(model.SerializeToString(), popart.DataFlow(1, ["y"]))
    assert str(caught.value.args[0]).startswith(said)


def test_pads_with_negative_results_are_refused_at_the_call() -> None:
    written = Written(10)
    with pytest.raises(popart.popart_exception, match=r"invalid shape, \[2 -4\]. Values must be"):
        written.onnx.pad([written.f(2, 4)], [0, -9, 0, 1])


def test_popart_depth_to_space() -> None:
    written = Written(10)
    moved = written.own.depthtospace([written.f(1, 8, 2, 2)], blocksize=2, mode="CRD")
    assert written.builder.getTensorShape(moved) == [1, 2, 4, 4]


def test_operators_in_inner_graphs_are_checked() -> None:
    written = Written(10)
    x = written.f(2, 3)
    callee = written.builder.createSubgraphBuilder()
    inner = callee.addInputTensor("FLOAT", [2, 3])
    callee.addOutputTensor(callee.aiGraphcore.reducemedian([inner], [4])[0])
    (y,) = written.own.call([x], 1, callee)
    with pytest.raises(popart.popart_exception, match=r"Axis 4 is out of acceptable range"):
        popart.InferenceSession(written.builder.getModelProto(), popart.DataFlow(1, [y]))


def test_the_table_of_checks_lists_existing_operators() -> None:
    known = {(one.domain, one.type) for one in getSupportedOperations(includeInternal=True)}
    asked = {(domain or "ai.onnx", op_type) for domain, op_type in CHECKS}
    asked |= {("ai.graphcore", op_type) for op_type in OPERANDS}
    assert not asked - known


def trained(write: Callable[[Written, str], str], detached: bool = False) -> None:
    """Trains a session whose operator takes the product of a weight and an image."""
    written = Written(10)
    image = np.ones((2, 3, 4, 4), np.float32)
    weight = written.builder.addInitializedInputTensor(image)
    product = written.onnx.mul([weight, written.f(2, 3, 4, 4)])
    made = write(written, written.own.detach([product]) if detached else product)
    made = written.onnx.add([made, written.onnx.reducesum([product])])
    loss = written.own.identityloss([made])
    popart.TrainingSession(
        written.builder.getModelProto(), popart.DataFlow(1, [loss]), loss, popart.SGD(0.1)
    )


def normalized(written: Written, image: str, outputs: int = 1) -> str:
    four = [written.builder.addInitializedInputTensor(np.ones(3, np.float32)) for _ in range(4)]
    return str(written.onnx.batchnormalization([image, *four], outputs)[0])


def test_an_inference_batch_norm_is_not_trained(capfd: pytest.CaptureFixture[str]) -> None:
    said = r'BatchNorm Op "101 \(ai\.onnx\.BatchNormalization:9\)" has 1 output\(s\) which means'
    with pytest.raises(popart.popart_exception, match=said):
        trained(normalized)
    assert "is in training mode, yet this batch-normalization Op" in capfd.readouterr().err
    trained(lambda written, image: normalized(written, image, 5))
