"""The names of PopART's patterns, and which are always on, on by default, or off."""

from __future__ import annotations

_NAMES = {
    "mandatory": """
        AbsGradOp AllReduceToIdentity Atan2Arg0GradOp Atan2Arg1GradOp ConvDataGrad
        ConvFlipWeightsGradOp ConvTranspose CosGradOp CoshOp DivArg0GradOp DivArg1GradOp ExpGradOp
        Expm1GradOp FmodArg0GradOp Log1pGradOp LogGradOp LoopScanOut MatMulLhsGradOp MatMulOp
        MatMulRhsGradOp MulArgGradOp PowArg0GradOp PowArg1GradOp RandomNormalLikeOpPattern
        RandomUniformLikeOpPattern ReciprocalGradOp ScanToLoop SinGradOp SqrtGradOp
        SubtractArg1GradOp ZerosLikeOpPattern
    """,
    "default": """
        ConvFlipWeightsDoubleFlip DecomposeBinaryConstScalar ExpandCast InitAccumulate
        LambSerialisedWeight NegativeOneScale NlllWithSoftmaxGradDirect OpToIdentity
        PackedDataBlock PadSum PostNRepl PreUniRepl RemoveUnnecessaryLossGradCast SoftmaxGradDirect
        SplitGradOpToConcat SplitOp SumToAdd TransposeToIdentityOrReshapePattern UpsampleToResize
    """,
    "optional": "LSTMOp Slice2SliceSubsample SplitGather TiedGather TiedGatherAccumulate",
}
MANDATORY, DEFAULT, OPTIONAL = (frozenset(names.split()) for names in _NAMES.values())
PRE_ALIAS = MANDATORY | DEFAULT | OPTIONAL
PATTERNS = PRE_ALIAS | {"InPlace", "UpdateInplacePrioritiesForIpu"}
