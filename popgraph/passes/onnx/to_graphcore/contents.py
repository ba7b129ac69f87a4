"""The table of contents: which module of this package lowers which operators."""

from __future__ import annotations

from popgraph.support.pages import pages

_TABLE = """
arithmetic ai.onnx And BitwiseAnd Or BitwiseOr Xor BitwiseXor Not BitwiseNot IsNaN Neg Exp Log Add
arithmetic ai.onnx Sum Sub Mul Div Max Min Where Sign Floor Ceil Round Abs Relu Sqrt Reciprocal Sin
arithmetic ai.onnx Cos Tan Atan Erf Tanh Sigmoid Asin Acos Sinh Cosh Asinh Acosh Atanh
arithmetic ai.onnx Greater GreaterOrEqual Less LessOrEqual Identity Pow Mod
arithmetic ai.onnx PRelu Softplus Elu Celu Selu Mean Clip LeakyRelu Gelu Cast CastLike IsInf
arithmetic ai.graphcore BitwiseAnd BitwiseOr BitwiseXor BitwiseNot Round NearbyInt Log1p Expm1
arithmetic ai.graphcore Atan2 Nop TensorRemap PrintTensor Swish IncrementMod CopyVarUpdate
arithmetic ai.graphcore BitwiseXnor Fmod Remainder ScaledAdd Gelu GeluErf Scale
bits ai.onnx BitShift BitCast
collectives ai.graphcore ReplicatedAllReduce ReplicatedReduceScatter ReplicatedAllGather
constants ai.onnx Constant ConstantOfShape Shape Size Range EyeLike
contractions ai.onnx MatMul Gemm Conv ConvTranspose
contractions ai.graphcore MultiConv
control ai.onnx If Loop
control ai.graphcore Call
ctc ai.graphcore Ctc
deform_conv ai.onnx DeformConv
derivatives ai.onnx.preview.training Gradient
determinant ai.onnx Det
dynamic_slices ai.graphcore Init DynamicSlice DynamicUpdate DynamicAdd DynamicZero SequenceSlice
einsum ai.onnx Einsum
features ai.onnx.ml ArrayFeatureExtractor Binarizer Scaler Normalizer Imputer FeatureVectorizer
features ai.onnx.ml OneHotEncoder
folding ai.onnx Col2Im MaxUnpool
grid_sample ai.onnx GridSample
indexing ai.onnx GatherElements TopK GatherND ReverseSequence CumSum CumProd
indexing ai.graphcore GroupedGather
indexing ai.popgraph CheckIndices
linear_models ai.onnx.ml LinearRegressor LinearClassifier
losses ai.graphcore Nll L1 IdentityLoss Detach
max_roi_pool ai.onnx MaxRoiPool
movement ai.onnx Reshape Flatten Transpose Concat Split Slice Pad Squeeze Unsqueeze Expand Tile
movement ai.onnx Gather DepthToSpace SpaceToDepth Trilu OneHot
movement ai.graphcore Reshape Slice Subsample Reverse DepthToSpace
normalization ai.onnx Softmax LogSoftmax Hardmax BatchNormalization InstanceNormalization
normalization ai.onnx MeanVarianceNormalization GroupNormalization LpNormalization
normalization ai.onnx LayerNormalization LRN
normalization ai.graphcore BatchNormalization GroupNormalization NormalizeImage
optimizer_steps ai.onnx.preview.training Momentum Adagrad Adam
packed_data ai.graphcore PackedDataBlock
popart_lstm ai.graphcore LSTM
quantization ai.onnx QuantizeLinear DequantizeLinear MatMulInteger QLinearMatMul ConvInteger
quantization ai.onnx QLinearConv
randomness ai.onnx Dropout RandomUniform RandomUniformLike RandomNormal RandomNormalLike
randomness ai.onnx Multinomial Bernoulli
randomness ai.graphcore ShapedDropout
recurrent ai.onnx RNN GRU LSTM
reductions ai.onnx ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceSumSquare
reductions ai.onnx ReduceL2 ReduceLogSum ReduceLogSumExp ArgMax ArgMin
resize ai.onnx Upsample Resize
roi_align ai.onnx RoiAlign
scan ai.onnx Scan
scatter_reduce ai.graphcore ScatterReduce
scattering ai.onnx Scatter ScatterElements ScatterND TensorScatter
sequences ai.onnx SequenceConstruct SequenceEmpty SequenceLength SequenceAt SequenceErase
sequences ai.onnx SequenceInsert SplitToSequence ConcatFromSequence Optional OptionalHasElement
sequences ai.onnx OptionalGetElement
signals ai.onnx DFT STFT MelWeightMatrix
selections ai.popgraph NonZero Compress NonMaxSuppression
sorting ai.graphcore Sort ReduceMedian Bucketize
splines ai.graphcore SplineBasis SplineWeighting
strings ai.onnx Equal
strings ai.onnx.ml LabelEncoder
strings ai.popgraph Strings
support_vectors ai.onnx.ml SVMRegressor SVMClassifier
unique ai.popgraph Unique
term_counts ai.onnx TfIdfVectorizer
tree_ensembles ai.onnx.ml TreeEnsembleRegressor TreeEnsemble TreeEnsembleClassifier
windows ai.onnx MaxPool AveragePool LpPool GlobalLpPool GlobalAveragePool GlobalMaxPool
"""

PAGES = pages(__package__, _TABLE)
"""A network uses some of them: importing all 40 takes 0.03 s of every start."""
