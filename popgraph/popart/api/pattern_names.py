"""The names of PopART's patterns, and which are always on, on by default, or off."""

from __future__ import annotations

MANDATORY = frozenset(
    [
        "AbsGradOp",
        "AllReduceToIdentity",
        "Atan2Arg0GradOp",
        "Atan2Arg1GradOp",
        "ConvDataGrad",
        "ConvFlipWeightsGradOp",
        "ConvTranspose",
        "CosGradOp",
        "CoshOp",
        "DivArg0GradOp",
        "DivArg1GradOp",
        "ExpGradOp",
        "Expm1GradOp",
        "FmodArg0GradOp",
        "Log1pGradOp",
        "LogGradOp",
        "LoopScanOut",
        "MatMulLhsGradOp",
        "MatMulOp",
        "MatMulRhsGradOp",
        "MulArgGradOp",
        "PowArg0GradOp",
        "PowArg1GradOp",
        "RandomNormalLikeOpPattern",
        "RandomUniformLikeOpPattern",
        "ReciprocalGradOp",
        "ScanToLoop",
        "SinGradOp",
        "SqrtGradOp",
        "SubtractArg1GradOp",
        "ZerosLikeOpPattern",
    ]
)
DEFAULT = frozenset(
    [
        "ConvFlipWeightsDoubleFlip",
        "DecomposeBinaryConstScalar",
        "ExpandCast",
        "InitAccumulate",
        "LambSerialisedWeight",
        "NegativeOneScale",
        "NlllWithSoftmaxGradDirect",
        "OpToIdentity",
        "PackedDataBlock",
        "PadSum",
        "PostNRepl",
        "PreUniRepl",
        "RemoveUnnecessaryLossGradCast",
        "SoftmaxGradDirect",
        "SplitGradOpToConcat",
        "SplitOp",
        "SumToAdd",
        "TransposeToIdentityOrReshapePattern",
        "UpsampleToResize",
    ]
)
OPTIONAL = frozenset(
    ["LSTMOp", "Slice2SliceSubsample", "SplitGather", "TiedGather", "TiedGatherAccumulate"]
)
PRE_ALIAS = MANDATORY | DEFAULT | OPTIONAL
OTHERS = frozenset(("InPlace", "UpdateInplacePrioritiesForIpu"))
