"""The table of contents: which module of this package is the page of which operators."""

from __future__ import annotations

from popgraph.dialects.onnx.record import list_pages

TABLE = """
arithmetic ai.onnx And BitwiseAnd Or BitwiseOr Xor BitwiseXor Not BitwiseNot IsNaN Neg Exp Log Add
arithmetic ai.onnx Sum Sub Mul Div Max Min Where Sign Floor Ceil Round Abs Relu Sqrt Reciprocal Sin
arithmetic ai.onnx Cos Tan Atan Erf Tanh Sigmoid Asin Acos Sinh Cosh Asinh Acosh Atanh Equal Greater
arithmetic ai.onnx GreaterOrEqual Less LessOrEqual Identity OptionalGetElement Pow Mod PRelu
arithmetic ai.onnx Softplus Elu Celu Selu Mean Clip LeakyRelu Gelu Cast CastLike IsInf
arithmetic ai.graphcore BitwiseAnd BitwiseOr BitwiseXor BitwiseNot Round NearbyInt Log1p Expm1 Atan2
arithmetic ai.graphcore Nop TensorRemap PrintTensor Swish IncrementMod CopyVarUpdate BitwiseXnor
arithmetic ai.graphcore Fmod Remainder ScaledAdd Gelu GeluErf Scale
bits ai.onnx BitShift BitCast
collectives ai.graphcore ReplicatedAllReduce ReplicatedReduceScatter ReplicatedAllGather
constants ai.onnx Constant ConstantOfShape Shape OptionalHasElement Size Range EyeLike
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
features ai.onnx.ml OneHotEncoder LabelEncoder
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
randomness ai.onnx Dropout RandomUniform RandomUniformLike RandomNormal RandomNormalLike Multinomial
randomness ai.onnx Bernoulli
randomness ai.graphcore ShapedDropout
recurrent ai.onnx RNN GRU LSTM
reductions ai.onnx ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceSumSquare
reductions ai.onnx ReduceL2 ReduceLogSum ReduceLogSumExp ArgMax ArgMin
resize ai.onnx Upsample Resize
roi_align ai.onnx RoiAlign
scan ai.onnx Scan
scatter_reduce ai.graphcore ScatterReduce
scattering ai.onnx Scatter ScatterElements ScatterND TensorScatter
signals ai.onnx DFT STFT MelWeightMatrix
selections ai.popgraph NonZero Compress NonMaxSuppression
sorting ai.graphcore Sort ReduceMedian Bucketize
splines ai.graphcore SplineBasis SplineWeighting
support_vectors ai.onnx.ml SVMRegressor SVMClassifier
unique ai.popgraph Unique
tree_ensembles ai.onnx.ml TreeEnsembleRegressor TreeEnsemble TreeEnsembleClassifier
windows ai.onnx MaxPool AveragePool LpPool GlobalLpPool GlobalAveragePool GlobalMaxPool
microsoft.attention com.microsoft Attention MultiHeadAttention DecoderMaskedMultiHeadAttention
microsoft.attention com.microsoft RotaryEmbedding MRotaryEmbedding GroupQueryAttention
microsoft.attention com.microsoft SparseAttention
microsoft.experts com.microsoft MoE MoEGroupRouter QMoE
microsoft.fusions com.microsoft Gelu BiasGelu FastGelu QuickGelu BiasSoftmax BiasDropout FusedMatMul
microsoft.fusions com.microsoft TransposeMatMul FusedGemm FusedConv NhwcConv NhwcFusedConv
microsoft.movement com.microsoft SampleOp ExpandDims GatherND Trilu Range Pad UnfoldTensor CDist
microsoft.movement com.microsoft GridSample NhwcMaxPool ConvTransposeWithDynamicPads CropAndResize
microsoft.movement com.microsoft MaxpoolWithMask Inverse
microsoft.normalizations com.microsoft SkipLayerNormalization SkipSimplifiedLayerNormalization
microsoft.normalizations com.microsoft EmbedLayerNormalization ScaledSiLU GatedAdd GatedRMSNorm
microsoft.normalizations com.microsoft LinearAttentionGate BranchwiseRMSNorm HyperConnectionPreMix
microsoft.normalizations com.microsoft HyperConnectionPostMix EngramGate
microsoft.normalizations ai.onnx SimplifiedLayerNormalization
microsoft.packed_weights com.microsoft MatMulNBits MatMulBnb4 GatherBlockQuantized GatherPacked
microsoft.quantized com.microsoft QuantizeLinear DequantizeLinear QLinearAdd QLinearMul QLinearWhere
microsoft.quantized com.microsoft QLinearSigmoid QLinearLeakyRelu QLinearSoftmax
microsoft.quantized com.microsoft QLinearGlobalAveragePool QLinearAveragePool QLinearConv
microsoft.quantized com.microsoft QLinearConcat QGemm MatMulIntegerToFloat DynamicQuantizeMatMul
microsoft.quantized com.microsoft MatMulInteger16 QAttention QEmbedLayerNormalization
microsoft.recurrent com.microsoft DynamicQuantizeLSTM AttnLSTM
microsoft.searches com.microsoft GreedySearch DynamicTimeWarping
microsoft.searches ai.graphcore CtcBeamSearchDecoder
microsoft.states com.microsoft CausalConvWithState LinearAttention VarlenCausalConvWithState
microsoft.states com.microsoft GatedDeltaNet
microsoft.tokens com.microsoft Unique MurmurHash3 NGramHashMapping WordConvEmbedding
microsoft.tokens com.microsoft VarlenNGramHashMapping NGramRepeatBlock BifurcationDetector
host_constants ai.onnx Constant Identity Shape Size
dictionaries ai.onnx.ml CastMap CategoryMapper DictVectorizer LabelEncoder OneHotEncoder ZipMap
images ai.onnx ImageDecoder
host_selections ai.onnx Compress NonMaxSuppression NonZero Unique
host_sequences ai.onnx ConcatFromSequence SequenceAt SequenceConstruct SequenceEmpty SequenceErase
host_sequences ai.onnx SequenceInsert SequenceLength SplitToSequence
strings ai.onnx RegexFullMatch StringConcat StringNormalizer StringSplit
term_counts ai.onnx TfIdfVectorizer
requirements.attentions ai.onnx RotaryEmbedding Attention LinearAttention CausalConvWithState
requirements.lookups ai.onnx Gather Scatter ScatterElements ScatterND TensorScatter GatherElements
requirements.lookups ai.onnx GatherND ReverseSequence OneHot
requirements.losses ai.onnx NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss
requirements.matrices ai.onnx Gemm MatMul Det Einsum PRelu Clip Dropout Celu Multinomial
requirements.movement ai.onnx Concat Flatten Transpose Split Slice Pad Squeeze Unsqueeze Reshape
requirements.movement ai.onnx Expand Tile DepthToSpace SpaceToDepth
requirements.normalizations ai.onnx Hardmax LogSoftmax Softmax ArgMax ArgMin TopK
requirements.normalizations ai.onnx MeanVarianceNormalization BatchNormalization
requirements.normalizations ai.onnx InstanceNormalization GroupNormalization LpNormalization
requirements.normalizations ai.onnx LayerNormalization RMSNormalization LRN ReduceL1 ReduceL2
requirements.normalizations ai.onnx ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin
requirements.normalizations ai.onnx ReduceProd ReduceSum ReduceSumSquare
requirements.optimizers ai.onnx.preview.training Gradient Momentum Adagrad Adam
requirements.recurrences ai.onnx RNN GRU LSTM
requirements.resizing ai.onnx Resize Upsample GridSample MaxRoiPool RoiAlign
requirements.sequences ai.onnx Range Constant ConstantOfShape RandomNormal RandomUniform EyeLike
requirements.sequences ai.onnx Trilu CumProd CumSum BlackmanWindow HammingWindow HannWindow
requirements.sequences ai.onnx AffineGrid CenterCropPad
requirements.signals ai.onnx DFT STFT MelWeightMatrix
requirements.windows ai.onnx AveragePool LpPool MaxPool GlobalAveragePool GlobalLpPool GlobalMaxPool
requirements.windows ai.onnx Conv DeformConv ConvTranspose MaxUnpool Col2Im
schema_bodies ai.onnx AffineGrid Attention CenterCropPad Shrink
indexing ai.onnx Gather Scatter ScatterElements ScatterND
scattering ai.onnx TensorScatter
losses ai.onnx NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss
"""

list_pages(__package__, TABLE)
# A network uses some of them: importing all takes 0.03 s of every start.
