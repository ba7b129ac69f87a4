"""Which operators PopART computes gradients with, and what these read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from popgraph.session.popart_ir.graph import Op, words


@dataclass(frozen=True)
class GradientRule:
    """
    An operator of a gradient: its type, what it reads, and of which inputs it gives the gradients.

    It reads `g0`, the gradient of output 0, `i0`, input 0, and `o0`, output 0.
    """

    type: str
    reads: tuple[str, ...]
    gives: tuple[int, ...]


_TABLE = """
Abs: AbsGrad g0 i0 > 0
Add: AddArg0Grad g0 > 0; AddArg1Grad g0 > 1
AddBias: AddBiasDataGrad g0 > 0; AddBiasBiasGrad g0 > 1
Asin: AsinGrad g0 i0 > 0
Atan: AtanGrad g0 i0 > 0
Atan2: Atan2Arg0Grad g0 i0 i1 o0 > 0; Atan2Arg1Grad g0 i0 i1 o0 > 1
AveragePool: AveragePoolGrad i0 o0 g0 > 0
BatchNormalization: BatchNormalizationGrad i0 i1 o3 o4 g0 > 0 1 2
Cast: CastGrad g0 > 0
Ceil: UnaryZeroGrad g0 > 0
Clip: ClipGrad g0 o0 > 0
Conv: ConvDataGrad i1 g0 > 0; ConvWeightsGrad g0 i0 > 1
ConvFlipWeights: ConvFlipWeightsGrad g0 > 0
Cos: CosGrad g0 i0 > 0
Ctc: CtcGrad o1 i2 g0 > 0
CumSum: CumSumGrad g0 i0 > 0
Div: DivArg0Grad g0 i0 i1 o0 > 0; DivArg1Grad g0 i0 i1 o0 > 1
Dropout: DropoutGrad g0 i1 > 0
DynamicAdd: IdentityGrad g0 > 0; DynamicUpdateUpdaterGrad g0 i1 > 2
DynamicSlice: DynamicSlicePadGrad g0 i1 > 0
DynamicUpdate: DynamicUpdateToUpdateGrad g0 i1 > 0; DynamicUpdateUpdaterGrad g0 i1 > 2
DynamicZero: DynamicZeroGrad g0 i1 > 0
Elu: EluGrad g0 i0 > 0
Erf: ErfGrad g0 i0 > 0
Exp: ExpGrad g0 o0 > 0
Expand: ExpandGrad g0 > 0
Expm1: Expm1Grad g0 o0 > 0
Flatten: ReshapeGrad g0 > 0
Floor: UnaryZeroGrad g0 > 0
Fmod: FmodArg0Grad g0 i0 i1 o0 > 0
Gather: GatherGrad g0 i1 > 0
Gelu: GeluGrad g0 i0 > 0
GeluErf: GeluErfGrad g0 i0 > 0
GlobalAveragePool: GlobalAveragePoolGrad i0 o0 g0 > 0
GlobalMaxPool: GlobalMaxPoolGrad i0 o0 g0 > 0
GroupNormalization: GroupNormalizationGrad i0 i1 o1 o2 g0 > 0 1 2
GroupedGather: GroupedGatherGrad g0 i1 > 0
GRU: GRUGrad i1 i2 i3 i5 i0 o0 g0 g1 > 0 1 2 3 5
HardSigmoid: HardSigmoidGrad g0 i0 > 0
Identity: IdentityGrad g0 > 0
IdentityLoss: IdentityLossGrad g0 > 0
InstanceNormalization: InstanceNormalizationGrad i0 i1 g0 > 0 1 2
L1: L1Grad i0 g0 > 0
LRN: LRNGrad g0 i0 > 0
LSTM: LSTMGrad i1 i2 i3 i5 i6 i0 o0 g0 g1 g2 > 0 1 2 3 5 6
LeakyRelu: LeakyReluGrad g0 o0 > 0
Log: LogGrad g0 i0 > 0
Log1p: Log1pGrad g0 i0 > 0
LogSoftmax: LogSoftmaxGrad g0 i0 > 0
MatMul: MatMulLhsGrad g0 i1 > 0; MatMulRhsGrad g0 i0 > 1
MaxPool: MaxPoolGrad i0 o0 g0 > 0
Mul: MulArg0Grad g0 i0 i1 o0 > 0; MulArg1Grad g0 i0 i1 o0 > 1
NearbyInt: UnaryZeroGrad g0 > 0
Neg: NegGrad g0 > 0
Nll: NllGrad i0 i1 g0 > 0
OneHot: OneHotGrad g0 i0 > 2
Pad: PadGrad g0 > 0
Pow: PowArg0Grad g0 i0 i1 o0 > 0; PowArg1Grad g0 i0 i1 o0 > 1
PopartTiedGather: PopartTiedGatherGrad g0 i1 > 0
PrintTensor: PrintTensor g0 > 0
RNN: RNNGrad i1 i2 i3 i5 i0 o0 g0 g1 > 0 1 2 3 5
Reciprocal: ReciprocalGrad g0 i0 > 0
ReduceL1: ReduceL1Grad g0 i0 > 0
ReduceL2: ReduceL2Grad g0 i0 o0 > 0
ReduceLogSum: ReduceLogSumGrad g0 o0 > 0
ReduceLogSumExp: ReduceLogSumExpGrad g0 i0 o0 > 0
ReduceMax: ReduceMaxGrad g0 i0 o0 > 0
ReduceMean: ReduceMeanGrad g0 > 0
ReduceMedian: ReduceMedianGrad g0 o1 > 0
ReduceMin: ReduceMinGrad g0 i0 o0 > 0
ReduceProd: ReduceProdGrad g0 i0 > 0
ReduceSum: ReduceSumGrad g0 > 0
ReduceSumSquare: ReduceSumSquareGrad g0 i0 > 0
Relu: ReluGrad g0 o0 > 0
Reshape: ReshapeGrad g0 > 0
Resize: ResizeGrad g0 > 0
Reverse: ReverseGrad g0 > 0
RoiAlign: RoiAlignGrad g0 i1 i2 i0 > 0
Round: UnaryZeroGrad g0 > 0
Scale: ScaleGrad g0 > 0
Scatter: ScatterDataGrad g0 i1 > 0; ScatterUpdateGrad g0 i1 > 2
ScatterElements: ScatterDataGrad g0 i1 > 0; ScatterUpdateGrad g0 i1 > 2
ScatterReduce: ScatterReduceGradOp g0 i1 > 0
Selu: SeluGrad g0 i0 > 0
ShapedDropout: ShapedDropoutGrad g0 i1 > 0
Shrink: ShrinkGrad g0 i0 > 0
Sigmoid: SigmoidGrad g0 o0 > 0
Sign: UnaryZeroGrad g0 > 0
Sin: SinGrad g0 i0 > 0
Sinh: SinhGrad g0 i0 > 0
Slice: SliceGrad g0 > 0
Softmax: SoftmaxGrad g0 o0 > 0
Softplus: SoftPlusGrad g0 i0 > 0
Softsign: SoftSignGrad g0 i0 > 0
Sqrt: SqrtGrad g0 o0 > 0
Sub: SubArg0Grad g0 > 0; SubArg1Grad g0 i0 i1 o0 > 1
Subsample: SubsampleGrad g0 > 0
Swish: SwishGrad g0 i0 > 0
Tanh: TanhGrad g0 o0 > 0
TensorRemap: TensorRemap g0 i0 > 0
ThresholdedRelu: ThresholdedReluGrad g0 i0 > 0
Tile: TileGrad g0 > 0
TopK: TopKGrad g0 o1 > 0
Transpose: TransposeGrad g0 > 0
Where: WhereXGrad i0 g0 > 1; WhereYGrad i0 g0 > 2
"""


def _rule(text: str) -> GradientRule:
    reads, gives = text.split(">")
    type_, *read = reads.split()
    return GradientRule(type_, tuple(read), tuple(map(int, gives.split())))


_RULES = {
    line.split(": ")[0]: [_rule(one) for one in line.split(": ")[1].split("; ")]
    for line in _TABLE.strip().splitlines()
}

_WITHOUT = words(
    """
    And ArgMax ArgMin BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXnor BitwiseXor
    Bucketize ConstantOfShape Detach Equal EyeLike Greater GreaterOrEqual IncrementMod Init
    IsInf IsNaN Less LessOrEqual Loop NonMaxSuppression NonZero Nop Not Or RandomNormal
    RandomNormalLike RandomUniform RandomUniformLike Range Shape Size Sort Xor
    """
)
"""Operators through which no gradient flows."""

_EACH = {"Sum": "SumArgGrad", "Mean": "MeanArgGrad", "Concat": "ConcatGrad"}
_EACH_OF_EXTREME = {"Max": "MaxArgGrad", "Min": "MinArgGrad"}


def gradient_types() -> set[str]:
    """The names of all operators of gradients."""
    known = {rule.type for rules in _RULES.values() for rule in rules}
    return known.union(_EACH.values(), _EACH_OF_EXTREME.values()) - set(_RULES)


def rules_of(op: Op) -> Iterator[GradientRule]:
    """The operators of the gradient of an operator."""
    if op.type in _WITHOUT:
        return
    if op.type in _RULES:
        yield from _RULES[op.type]
    elif op.type in _EACH:
        for index in op.inputs:
            yield GradientRule(_EACH[op.type], ("g0",), (index,))
    elif op.type in _EACH_OF_EXTREME:
        for index in op.inputs:
            yield GradientRule(_EACH_OF_EXTREME[op.type], ("g0", f"i{index}", "o0"), (index,))
    else:
        yield _any(op)


def _any(op: Op) -> GradientRule:
    """One operator that reads all gradients and all inputs, as those of calls and of PopART's."""
    gradients = tuple(f"g{index}" for index in op.outputs)
    inputs = () if op.type == "Split" else tuple(f"i{index}" for index in op.inputs)
    return GradientRule(f"{op.type}Grad", gradients + inputs, tuple(op.inputs))
