"""The table of contents: the page of each operator, a module of this package."""

from __future__ import annotations

from popgraph.dialects.onnx.record import list_pages

TABLE = """
arithmetic ai.graphcore BitwiseAnd BitwiseOr BitwiseXor BitwiseNot Round NearbyInt Log1p Expm1 Atan2
arithmetic ai.graphcore BitwiseXnor Nop TensorRemap PrintTensor Fmod Remainder IncrementMod
arithmetic ai.graphcore ScaledAdd Scale CopyVarUpdate Gelu GeluErf Swish
arithmetic ai.onnx And BitwiseAnd Or BitwiseOr Xor BitwiseXor Not BitwiseNot IsNaN Neg Exp Log Add
arithmetic ai.onnx Sum Sub Mul Div Max Min Where Sign Floor Ceil Round Abs Relu Sqrt Reciprocal Sin
arithmetic ai.onnx Cos Tan Atan Erf Tanh Sigmoid Asin Acos Sinh Cosh Asinh Acosh Atanh Less
arithmetic ai.onnx GreaterOrEqual LessOrEqual Greater IsInf Identity Pow Mod Mean PRelu Softplus
arithmetic ai.onnx LeakyRelu Elu Celu Selu Shrink Gelu Clip Cast CastLike BitShift BitCast
attention ai.onnx Attention LinearAttention RotaryEmbedding CausalConvWithState
collectives ai.graphcore ReplicatedAllReduce ReplicatedReduceScatter ReplicatedAllGather
compared_strings ai.onnx Equal
compared_strings ai.popgraph Strings
constants ai.onnx Constant ConstantOfShape Shape Size Range EyeLike
control ai.graphcore Call
control ai.onnx If Loop
convolution ai.graphcore MultiConv
convolution ai.onnx Conv ConvTranspose DeformConv Col2Im
derivatives ai.onnx.preview.training Gradient
dynamic_slices ai.graphcore Init DynamicSlice DynamicUpdate DynamicAdd DynamicZero SequenceSlice
dynamic_slices ai.graphcore PackedDataBlock
einsum ai.onnx Einsum
grids ai.onnx GridSample AffineGrid
images ai.onnx ImageDecoder CenterCropPad
lookups ai.graphcore GroupedGather
lookups ai.onnx Gather GatherElements GatherND ReverseSequence OneHot
lookups ai.popgraph CheckIndices
losses ai.graphcore Nll L1 IdentityLoss Detach Ctc
losses ai.onnx NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss
matrices ai.onnx MatMul Gemm Det
microsoft.attention com.microsoft Attention MultiHeadAttention DecoderMaskedMultiHeadAttention
microsoft.attention com.microsoft RotaryEmbedding MRotaryEmbedding GroupQueryAttention
microsoft.attention com.microsoft SparseAttention
microsoft.experts com.microsoft MoE MoEGroupRouter QMoE
microsoft.fusions com.microsoft Gelu BiasGelu FastGelu QuickGelu BiasSoftmax BiasDropout FusedMatMul
microsoft.fusions com.microsoft TransposeMatMul FusedGemm FusedConv NhwcConv NhwcFusedConv
microsoft.movement com.microsoft SampleOp ExpandDims GatherND Trilu Range Pad UnfoldTensor CDist
microsoft.movement com.microsoft GridSample NhwcMaxPool ConvTransposeWithDynamicPads CropAndResize
microsoft.movement com.microsoft MaxpoolWithMask Inverse
microsoft.normalizations ai.onnx SimplifiedLayerNormalization
microsoft.normalizations com.microsoft SkipLayerNormalization SkipSimplifiedLayerNormalization
microsoft.normalizations com.microsoft EmbedLayerNormalization ScaledSiLU GatedAdd GatedRMSNorm
microsoft.normalizations com.microsoft LinearAttentionGate BranchwiseRMSNorm HyperConnectionPreMix
microsoft.normalizations com.microsoft HyperConnectionPostMix EngramGate
microsoft.packed_weights com.microsoft MatMulNBits MatMulBnb4 GatherBlockQuantized GatherPacked
microsoft.quantized com.microsoft QuantizeLinear DequantizeLinear QLinearAdd QLinearMul QLinearWhere
microsoft.quantized com.microsoft QLinearSigmoid QLinearLeakyRelu QLinearSoftmax
microsoft.quantized com.microsoft QLinearGlobalAveragePool QLinearAveragePool QLinearConv
microsoft.quantized com.microsoft QLinearConcat QGemm MatMulIntegerToFloat DynamicQuantizeMatMul
microsoft.quantized com.microsoft MatMulInteger16 QAttention QEmbedLayerNormalization
microsoft.recurrent com.microsoft DynamicQuantizeLSTM AttnLSTM
microsoft.searches ai.graphcore CtcBeamSearchDecoder
microsoft.searches com.microsoft GreedySearch DynamicTimeWarping
microsoft.states com.microsoft CausalConvWithState LinearAttention VarlenCausalConvWithState
microsoft.states com.microsoft GatedDeltaNet
microsoft.tokens com.microsoft Unique MurmurHash3 NGramHashMapping VarlenNGramHashMapping
microsoft.tokens com.microsoft NGramRepeatBlock BifurcationDetector WordConvEmbedding
ml.features ai.onnx.ml ArrayFeatureExtractor Binarizer Scaler Normalizer Imputer FeatureVectorizer
ml.features ai.onnx.ml LabelEncoder OneHotEncoder CategoryMapper DictVectorizer CastMap ZipMap
ml.linear_models ai.onnx.ml LinearClassifier LinearRegressor
ml.support_vectors ai.onnx.ml SVMClassifier SVMRegressor
ml.tree_ensembles ai.onnx.ml TreeEnsemble TreeEnsembleClassifier TreeEnsembleRegressor
movement ai.graphcore Reshape Slice Subsample Reverse DepthToSpace
movement ai.onnx Reshape Flatten Squeeze Unsqueeze Transpose Concat Split Slice Pad Expand Tile
movement ai.onnx DepthToSpace SpaceToDepth Trilu
normalization ai.graphcore BatchNormalization GroupNormalization NormalizeImage
normalization ai.onnx Hardmax LogSoftmax Softmax BatchNormalization InstanceNormalization
normalization ai.onnx MeanVarianceNormalization GroupNormalization LpNormalization
normalization ai.onnx LayerNormalization RMSNormalization LRN
optimizer_steps ai.onnx.preview.training Momentum Adagrad Adam
pooling ai.onnx AveragePool LpPool MaxPool GlobalAveragePool GlobalLpPool GlobalMaxPool MaxUnpool
quantization ai.popgraph FitGrid
quantization ai.onnx QuantizeLinear QLinearConv QLinearMatMul DequantizeLinear ConvInteger
quantization ai.onnx MatMulInteger
randomness ai.graphcore ShapedDropout
randomness ai.onnx Dropout RandomNormal RandomUniform RandomUniformLike RandomNormalLike Multinomial
randomness ai.onnx Bernoulli
recurrent ai.graphcore LSTM
recurrent ai.onnx RNN GRU LSTM
reductions ai.onnx ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin
reductions ai.onnx ReduceProd ReduceSum ReduceSumSquare ArgMax ArgMin CumSum CumProd
regions ai.onnx MaxRoiPool RoiAlign
resizing ai.onnx Resize Upsample
scan ai.onnx Scan
scattering ai.graphcore ScatterReduce
scattering ai.onnx Scatter ScatterElements ScatterND TensorScatter
selections ai.onnx NonZero Compress NonMaxSuppression Unique
selections ai.popgraph NonZero Compress NonMaxSuppression Unique
sequences ai.onnx SequenceConstruct SequenceEmpty SequenceLength SequenceAt SequenceErase
sequences ai.onnx SequenceInsert SplitToSequence ConcatFromSequence Optional OptionalHasElement
sequences ai.onnx OptionalGetElement
signals ai.onnx DFT STFT MelWeightMatrix BlackmanWindow HammingWindow HannWindow
sorting ai.graphcore Sort ReduceMedian Bucketize
sorting ai.onnx TopK
splines ai.graphcore SplineBasis SplineWeighting
strings ai.onnx StringConcat StringSplit StringNormalizer RegexFullMatch
term_counts ai.onnx TfIdfVectorizer
"""

list_pages(__package__, TABLE)
# Pages are imported on first use: importing all of them takes 0.03 s of every start.
