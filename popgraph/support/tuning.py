"""Thresholds of decisions: when a transformation pays, and its bounds."""

from __future__ import annotations

from dataclasses import dataclass

from popgraph.support.argument_types import check_fields
from popgraph.support.machine import Machine

PIXEL_LANES = 16
"""Lanes of a float32 vector of AVX-512; layouts are the same on all machines."""


@dataclass(frozen=True)
class PerTile:
    """A cost for each size of Winograd's tiles."""

    two: float
    """Tiles of 2x2 results."""
    four: float
    """Tiles of 4x4 results."""

    def __getitem__(self, size: int) -> float:
        return {2: self.two, 4: self.four}[size]


@dataclass(frozen=True)
class Tuning:
    """
    The thresholds of all decisions.

    A field that ends in `_l1` or `_l2` is a fraction of that cache of the machine. Cycles are
    estimates of the cost model; `Machine` says where its own figures were measured. Tests pass
    small thresholds to reach each decision in small programs.

    A short hash in a docstring is the commit with the measurement. Ratios of time compare a program
    with the one before that commit.

    "Felt by" names the program that changes most if the value is halved or doubled, among the cases
    of `benchmarks/thresholds.json`: its machine and threads, and the ratios of its instructions and
    of the bytes that it loads and stores; "=" means unchanged. `benchmarks/thresholds.py` counts
    them on the final IR, which models no caches, and writes these lines. The record is not a full
    sweep: most cases tried only the thresholds that no earlier case had felt. "Unfelt" means that
    no recorded case changes; the docstring then says why the threshold stays, and what larger steps
    change: 1/64 to 64 times of it were tried on ten networks, on AVX2 and Zen 4.
    """

    # Accuracy of sums

    chain_terms: int = 256
    """
    Terms of the longest chain of float32 additions in a contraction.

    An accuracy bound: chains of 256 terms leave an error of 3e-7 to 5e-7 of the largest result,
    like onnxruntime's. On Zen 5, chunks cost 1 to 2 % of a large matmul.
    Felt by training/lenet (avx2 x2): halved 1.01/1.05, doubled 1.00/0.98.
    """
    chain_terms_f64: int = 0
    """
    Terms of the longest chain of float64 additions in a contraction; 0 means unlimited.

    By definition: the rounding error of float64 is far below what tests and users compare.
    Unfelt by the benchmarks: they compute in float32; the pass fuzz chunks float64 sums with it.
    """
    winograd_chain_terms: int = 64
    """
    Terms of the longest chain of float32 additions in Winograd's domain.

    An accuracy bound, shorter than `chain_terms` as the transforms amplify errors: with 512
    channels and 4x4 tiles, 64 terms leave 1e-6 of the largest result, one chain 3.6e-6 (Zen 5).
    Felt by inference/squeezenet (avx2 x2): halved 1.01/1.04, doubled =.
    """
    partial_sums: int = 32
    """
    Chunks, or sums of chunks, that one level of blocked summation adds in a chain.

    An accuracy bound: the error grows with `chain_terms` + 32 per level instead of all terms.
    Felt by training/lenet (avx2 x2): halved 1.00/1.00, doubled 1.00/1.00.
    """

    # Control flow

    most_unrolled_turns: int = 64
    """
    Iterations that are unrolled when shapes change between them, nested loops multiplied.

    A bound of compile time: the program grows by the body for each iteration.
    Unfelt by the benchmarks: a bound; tests reach both sides with it.
    """

    # Products of small integers

    least_word_terms: int = 8
    """
    Terms of a sum from which packed sub-byte vectors pay.

    Two words of four bytes: below it, packing touches as many elements as multiplying saves.
    squeezenet_qdq (avx2 x2) is the same from 4 to 16; 64 costs 1.18/1.09.
    Unfelt by the benchmarks: their sums are longer.
    """

    most_paired: int = 4
    """
    Words whose products are added in 16 bits, at most.

    Weights of seven bits with a normal distribution allow two or three: sums of four save the most.
    Unfelt by the benchmarks: a bound.
    """
    paired_cost: float = 0.78
    """
    Share of vector operations below which sums of a few words in 16 bits pay.

    Convolutions of resnet50_qdq (zen3 on Zen 5) are 1.11 to 1.18 times as fast with blocks of three
    words (0.67); with blocks of two (0.75), between 0.92 and 1.09 times, and those of
    squeezenet_qdq 1.02 to 1.15 times.
    Unfelt by the benchmarks: not swept yet.
    """

    least_moved_columns: int = 256
    """
    Columns of a matrix from which its terms are exchanged so that sums fit 16 bits.

    An exchange copies each factor byte by byte, in 2 cycles; sums in 16 bits save 0.3 of the
    products, 1/100 cycle for each column. In the LSTMs of text2tashkeel (avx2 on Zen 5), 1,024
    columns gain 1.3 to 1.5, and 73 columns gain nothing.
    Unfelt by the benchmarks: not swept yet.
    """

    # Padding of convolutions

    least_skipped: float = 1 / 8
    """
    Share of multiplications with padding above which a convolution is split to skip them.

    It is for dilated windows: a 3x3 window with padding 1 reaches it up to 10x10 results only.
    Unfelt by the benchmarks: they pad little; the fuzz reaches splits with small images.
    """
    least_piece: int = 8
    """
    Results along an axis that a split of a convolution has at least.

    Fewer rows do not fill a register tile: 14 rows with AVX-512, 6 with AVX2.
    Felt by inference/deeplabv3 (zen4 x2): halved =, doubled 1.50/1.51.
    """

    # 3-D convolutions

    least_folded_channels: int = 32
    """
    Input channels from which a 3-D convolution becomes 2-D convolutions.

    Winograd then saves more than the copies along the depth cost: r3d_18 takes half of the time
    (0cbf7ac4).
    Felt by operator/Conv#91 (avx2 x2): halved 0.34/0.36, doubled =.
    """

    # Narrow operands

    most_narrow_uses: int = 6
    """
    Uses of an element up to which it is widened at each read, not once for all.

    Each use costs a conversion; a widened copy costs a store and a load of 4 bytes. A decoder of
    float16 weights takes 0.35 of the time of float32 per token (83f6d851).
    ResNet-50 of bfloat16 weights (avx2 x2) is the same from 1 to 48; widening at every read gives
    1.00/0.66.
    Unfelt by the benchmarks: decoders read a weight once, or 128 times.
    """
    least_block_terms: int = 16
    """
    Rows of quantized weights that share a scale, at least, for sums to be scaled by block.

    Each block costs one multiply-add per result, 1/16 of its products. 4096 x 8192 weights of four
    bits in blocks of 32 take 0.6 of the time of float32 (bbcdc690).
    decoder_1x2048_w4 (zen4 x2) is the same from 1 to 32; 128 costs 1.54/6.13.
    Unfelt by the benchmarks: their blocks have 32 rows; the fuzz uses blocks of 2.
    """

    half_winograd_channels: int = 16
    """
    Channels from which a 3x3 convolution of bf16 is computed in f32, also in mixed precision.

    Winograd then saves more products than dot products of bf16. Zen 5, a convolution or the
    gradient of its input, f32 and bf16: 88 and 38 us with 8 channels at 32x32, 143 and 144 us with
    16, 371 and 650 us with 64 at 16x16, 700 and 1210 us with 128.
    Unfelt by the benchmarks: they train in f32, and their convolutions of bf16 are wider.
    """
    half_winograd_positions: int = 128
    """
    Positions of all images from which Winograd's transforms of 3x3 convolutions pay.

    Fewer share the reading of up to 36 transformed weights instead of 9. Zen 5, two convolutions
    of bf16, by transforms and by dot products: 1220 and 967 us with 512 channels at 7x7, 461 and
    480 us with 256 at 10x10, 52 and 69 us with 64 at 14x14, 3177 and 3917 us for 4 images of 7x7.
    Felt by inference/resnet50_bf16 (zen4 x2): halved =, doubled 1.04/1.04.
    """
    half_winograd_gradient_channels: int = 128
    """
    Channels from which the gradient of 3x3 weights stays f32 in mixed precision.

    Transforms of a gradient cost more than transforms of a convolution. Zen 5, f32 and bf16: 1150
    and 575 us with 64 channels at 16x16, 565 and 1225 us with 128.
    Unfelt by the benchmarks: they train in f32.
    """

    # Transposed and strided convolutions

    most_phases: int = 16
    """
    Phases of a transposed convolution that are separate convolutions; one computes more of them.

    A bound of compile time: each phase is a kernel.
    Felt by operator/ConvTranspose#101 (zen4 x2): halved 0.99/0.52, doubled =.
    """
    least_filled: float = 0.9
    """
    Share of filled lanes below which phases are separate, if their rows fill vectors.

    4 phases of 3 channels fill 12 of 16 lanes; separate phases are 1.4 times as fast (595cc8fc).
    Felt by operator/ConvTranspose#92 (zen4 x2): halved 1.81/0.49, doubled =.
    """

    # Layouts

    least_channels: int = 8
    """
    Channels from which they become the innermost axis: half a vector of AVX-512.

    Up to this number, one convolution computes all phases of a transposed one.
    Felt by training/lenet (avx2 x2): halved 1.00/1.00, doubled =.
    """
    least_row_share: float = 0.7
    """
    Share of filled lanes from which vectors run along rows of pixels.

    64 channels to 3 with 9x9 windows are then 3.8 times as fast, one 3x3 convolution to 2 channels
    1.1 to 2.4 times (595cc8fc).
    Felt by operator/ConvTranspose#92 (zen4 x2): halved =, doubled 1.81/0.49.
    """
    least_pixel_products: int = 16
    """
    Multiplications per element from which an image with few channels is vectorized by rows.
    Felt by inference/basic_pitch (zen4 x2): halved 0.99/0.97, doubled 1.02/1.13.
    """

    # Schedules of contractions

    least_products: int = 4096
    """
    Multiplications from which a contraction is scheduled; smaller ones stay plain loops.

    They take 128 cycles of AVX-512, the overhead of five register tiles.
    Felt by inference/mtcnn_onet (zen4 x2): halved 1.00/1.00, doubled 1.00/1.00.
    """
    quick_products: int = 16_000_000
    """
    Multiplications from which a contraction of a quick program is scheduled.

    A scheduled kernel takes 17 ms of CPU more in passes and GCC. Plain loops take 3 ms for 16
    million products (Zen 5), and several layers share a kernel.
    Unfelt by the benchmarks: their programs are tuned.
    """
    small_tile_registers: int = 10
    """
    Registers of the register tiles of a small program.

    On a Cortex-M4, MobileNet-v1 (0.25) has 7.6 kB of code and takes 23.6 million instructions. With
    20 registers, it has 13.9 kB and takes 19.8 million; with 32, 21.9 kB and 18.2 million.
    Unfelt by the benchmarks: they are built for speed.
    """
    plain_cycles: float = 3.0
    """
    Cycles per vector of products in a plain loop: two loads, a multiply-add and a store.

    A scalar product takes half as many.
    Felt by inference/squeezenet (avx2 x2): halved 1.07/1.18, doubled =.
    """
    least_packed_extent: int = 4
    """
    Iterations of a loop from which it can be vectorized along packed panels.

    One vector of 16 bytes.
    Felt by training/lenet (avx2 x2): halved =, doubled 1.51/2.73.
    """
    cycles_along_sizes: float = 2.0
    """
    Cost factor of vectors along a loop that ends at a size of the call.

    On average over all sizes up to the bound, half of the lanes are filled.
    Unfelt by the benchmarks: none has sizes; tests run both sides with it.
    """
    near_contractions: int = 4
    """
    Distance, in contractions, up to which two share a packed operand under recomputation.

    The gradients of a layer and its neighbour are this close; longer sharing keeps the panel
    alive, which recomputation is to avoid.
    Unfelt by the benchmarks: none recomputes.
    """
    most_vectors: int = 8
    """
    Vectors of a panel.

    A bound of the search: 8 vectors leave 3 rows in 32 registers.
    Felt by inference/efficientnet_lite0 (zen4 x2): halved 1.00/0.99, doubled =.
    """
    chunk_cycles: float = 1.5
    """
    Cycles per vector of sums to add one chunk of terms to its total: a load and a store.

    Unfelt by the benchmarks: without it, though, ResNet-50 has other schedules on Zen 4.
    """
    window_overlap: float = 1.5
    """
    Slowdown of a step that rereads elements of another row.

    Compilers keep them in registers, which spills sums. With channels innermost instead, 3x3
    convolutions reach 90 % of peak (3e997b3e).
    Felt by training/lenet (avx2 x2): halved 1.03/1.00, doubled =.
    """
    hidden_results: float = 1 / 8
    """
    Share of a tile's time in which stores of the previous tile cost nothing.
    Felt by inference/inception_v1 (avx2 x2): halved 1.00/1.01, doubled 1.00/0.97.
    """
    panels_l2: float = 0.5
    """
    Share of L2 for packed panels that stay while rows stream through the rest.

    With 1.0 for panels that were just packed, a training step of the transformer takes 1.09 times
    as long (2c9581ab).
    Felt by training/transformer (avx2 x2): halved 1.00/1.00, doubled 1.00/1.00.
    """
    panel_l1: float = 1.0
    """
    Share of L1 for one panel that all rows reuse.
    Felt by inference/silero_vad (zen4 x2): halved 1.03/1.01, doubled 1.00/1.00.
    """
    streamed_l2: float = 2.0
    """
    Operand size, in L2, from which each run reads it from memory again.

    With least-recently-used replacement nothing of it is left after a run.
    Felt by inference/inception_v1 (avx2 x2): halved =, doubled 1.00/1.00.
    """
    gemv_strips: int = 4
    """
    Streams of a large matrix-vector product.

    Zen 3: 1.5 times as fast as one stream, 8 streams hardly faster.
    Felt by inference/gru_1x64x512 (zen4 x2): halved 1.01/1.00, doubled 1.00/1.00.
    """
    least_strip_results: int = 32
    """
    Results of a stream of a matrix-vector product, at least: two vectors of AVX-512.

    Fewer would read padding: 28 % of it for 100 results and vectors of AVX2.
    gru_1x64x512 (zen4 x2) is the same from 1 to 256; without strips, it takes 1.02/1.00.
    Unfelt by the benchmarks: none of their matrices is so narrow and larger than L2.
    """

    # Loops of contractions

    prefetched_blocks: int = 40
    """
    Blocks of rows per panel up to which the next panel is prefetched.

    Zen 5: ResNet-50 with cold weights gains 3 %; more blocks leave hardware the time.
    Felt by inference/squeezenet (avx2 x2): halved 1.00/1.00, doubled 1.00/1.00.
    """
    prefetched_elements: int = 4 * 1024
    """
    Elements of a panel from which it is prefetched: hardware follows shorter ones.

    From 16,384, layers of 7x7 pixels take 1.1 to 1.3 times as long, ResNet-50 1.02 and EfficientNet
    1.04 times (84bda096).
    Felt by inference/squeezenet (avx2 x2): halved =, doubled 1.00/1.00.
    """
    chunk_sums_l2: float = 1 / 16
    """
    Share of L2 for sums of all rows while these read a panel chunk by chunk.

    Chunks and prefetches together make VGG-19 and AlexNet 1.08 times as fast, the encoder of 12x768
    1.04 times (9122259e).
    Felt by inference/efficientnet_lite0 (zen4 x2): halved 1.00/1.00, doubled =.
    """
    k_outer_totals_l2: float = 0.5
    """
    Share of L2 for totals of a contraction whose reduction is outermost.
    ResNet-18 in training (zen4 x1): 1/64 of it gives 0.99/1.00.
    Unfelt by the benchmarks: a bound of local memory, which the fuzz reaches.
    """

    # Winograd

    winograd_gain: float = 1.1
    """
    Speed-up over the direct convolution, by estimate, from which Winograd is chosen.
    Felt by inference/mtcnn_pnet (zen4 x2): halved =, doubled 0.91/0.85.
    """
    winograd_vectors: int = 2
    """
    Vectors of results in the register tile of Winograd's products.

    Zen 5: 2 vectors by 7 to 14 rows reach 93 to 95 % of peak, 4 by 7 88 %, 1 by 28 84 %.
    Felt by inference/squeezenet (avx2 x2): halved 1.06/0.99, doubled 1.01/1.21.
    """
    max_tiles_in_registers: int = 14
    """
    Rows of the register tile of Winograd's products.

    Zen 5: 6 to 14 rows reach 92 to 95 % of peak, 4 rows 62 %, 16 rows 89 %.
    Felt by inference/mtcnn_pnet (zen4 x2): halved 1.02/1.08, doubled 1.00/0.98.
    """
    winograd_rounds: int = 4
    """
    Register tiles per block of Winograd tiles, at most.

    A bound of the search; larger blocks leave L2 (10 to 30 % slower, Zen 5).
    Felt by inference/squeezenet (avx2 x2): halved 1.01/1.02, doubled 1.00/1.00.
    """
    winograd_scratch_l2: float = 0.75
    """
    Share of L2 for transformed tiles and sums while weights stream past.
    Felt by inference/mtcnn_onet (zen4 x2): halved 1.00/1.00, doubled =.
    """
    winograd_kept_l2: float = 0.5
    """
    Share of L2 that transformed tiles and sums fill without being evicted by weights.
    Felt by inference/mtcnn_onet (zen4 x2): halved 1.00/1.00, doubled =.
    """
    winograd_crowd_cycles: float = 0.5
    """
    Cycles per byte of transformed tiles beyond `winograd_kept_l2`, which weights evict.
    Felt by training/resnet18 (zen4 x1): halved 1.00/1.00, doubled 1.00/1.00.
    """
    winograd_utilization: float = 0.9
    """
    Share of peak of Winograd's products.

    Zen 5: 92 to 95 % in the direct convolutions of ResNet-50, 88 to 93 % with other blocks.
    Felt by inference/squeezenet (avx2 x2): halved 1.01/1.00, doubled 1.00/1.00.
    """
    winograd_overlap: float = 0.35
    """
    Share of the shorter of products and loads of weights that the other hides.

    Zen 4: with it, ResNet-18 is 1.19 times as fast, GoogLeNet 1.07 and ResNet-50 1.05 (a51b9c54).
    Felt by inference/squeezenet (avx2 x2): halved =, doubled 1.01/1.02.
    """
    winograd_output_cycles: PerTile = PerTile(30.0, 90.0)
    """
    Cycles of the output transform of a tile, per vector of channels.
    Felt by inference/mtcnn_pnet (zen4 x2): halved =, doubled 0.91/0.85.
    """
    winograd_tile_cycles: PerTile = PerTile(40.0, 120.0)
    """
    Cycles of the input transform of a tile, per vector of channels.
    Felt by inference/mtcnn_pnet (zen4 x2): halved =, doubled 0.91/0.85.
    """
    winograd_weight_cycles: float = 24.0
    """
    Cycles per vector of transformed weights, where each run transforms them (training).
    Felt by training/alexnet (avx2 x2): halved 0.97/1.00, doubled =.
    """
    winograd_permute_cycles: float = 3.0
    """
    Cycles per weight to permute it before each run's transform (training).
    ResNet-18 (zen4 x1): 1/64 of it gives 0.98/1.02, 64 times 1.22/1.18; AlexNet (avx2 x2) is the
    same down to 1/64, and 64 times gives 1.14/1.17.
    Unfelt by the benchmarks: a small term of the cost of training.
    """
    least_shared_blocks: int = 4
    """
    Blocks of tiles below which threads share panels of weights instead of blocks.

    Weights are then read once: 512 to 512 channels at 28x28 take 0.3 of the time of a direct
    convolution (a2ae98a1).
    Felt by inference/mtcnn_rnet (zen4 x1): halved 0.96/0.98, doubled =.
    """
    late_tile_cycles: PerTile = PerTile(1.2, 1.75)
    """
    Cycles per byte of transformed tiles beyond L2, written and read once.

    The taps of a tile go to 16 or 36 distant rows: hardware prefetches 16 of them, not 36. Tiles
    within L2 cost nothing: DenseNet's 3x3 convolutions take 0.7 of the time (76e7b95a).
    Felt by training/resnet18 (zen4 x1): halved 0.91/0.95, doubled 1.11/1.04.
    """
    late_sum_cycles: PerTile = PerTile(0.5, 1.0)
    """
    Cycles per byte of sums beyond L2 in the gradient of weights: long contiguous rows.
    Felt by training/resnet18 (zen4 x1): halved =, doubled 1.04/1.00.
    """
    gradient_utilization: float = 0.8
    """
    Share of peak of the products of Winograd's gradient of weights.

    A training step of ResNet-18 takes 0.86 of the time with these transforms (3aad5025).
    Felt by training/resnet18 (zen4 x1): halved 1.11/1.04, doubled =.
    """
    gradient_back_cycles: float = 2.0
    """
    Cycles per vector of a term in the transform of that gradient's sums.
    Felt by training/resnet18 (zen4 x1): halved =, doubled 1.04/1.00.
    """
    transform_ahead_lines: int = 2
    """
    Cache lines of each tap by which the input transform prefetches ahead.
    Felt by training/alexnet (avx2 x2): halved 1.00/1.00, doubled 1.00/1.00.
    """

    # Fusion

    most_inputs: int = 16
    """
    Operands of a fused operation.

    Each is a stream of loads; `Machine.prefetch_streams` of them are followed by hardware.
    Felt by operator/RoiAlign#225 (avx2 x2): halved 1.30/1.73, doubled =.
    """
    amortized_elements: int = 16
    """
    Reuses of a recomputed element from which recomputation costs next to nothing.
    Felt by training/lenet (avx2 x2): halved 1.00/1.00, doubled =.
    """
    longest_body: int = 64
    """
    Operations per element of a fused operation.

    A bound of compile time: without it, a chain of fusions costs the square of its length. So
    many operations hide the load that one more fusion would save.
    Felt by inference/decoder_1x2048_w4 (zen4 x2): halved 1.00/1.00, doubled =.
    """
    joined_results: int = 4
    """
    Shifted copies that a step of a running sum adds: log4(n) copies of the data, not log2(n).
    Felt by operator/CumSum#168 (zen4 x2): halved 1.14/1.39, doubled 1.14/1.07.
    """
    longest_dense_transform: int = 256
    """
    Length up to which a Fourier transform is one matmul; longer ones are factored.

    The matrix of 256 complex float32 numbers has 512 KiB, half of L2.
    Felt by operator/DFT#226 (zen4 x2): halved =, doubled 1.43/1.67.
    """
    attention_scores_l2: float = 4.0
    """
    Size of the scores of all heads, in L2, above which rows of them are computed at a time.

    Fewer scores stay in caches between the kernels. Zen 5, speed of rows at a time: 12 heads of 197
    tokens 1.00, of 256 0.98 to 1.02, of 577 1.04 to 1.07, of 1000 1.10; 4 heads of 384 tokens 0.98,
    8 heads of 1500 1.14.
    Unfelt by the benchmarks: the scores of their attentions have less than 2 MiB.
    """
    attention_rows_l2: float = 1 / 8
    """
    Share of L2 for a block of rows of scores and its copy; softmax reads them three times.
    Unfelt by the benchmarks: a bound of local memory, which the fuzz reaches.
    """
    most_local_bytes: int = 512 * 1024
    """
    Bytes of local memory of a kernel.

    A safety bound: they are on the stack of a thread.
    Unfelt by the benchmarks: a safety bound.
    """
    row_buffer_l2: float = 1 / 32
    """
    Share of L2 for the local memory of a fused long row, which is too large for L1.
    Felt by operator/RoiAlign#225 (avx2 x2): halved =, doubled 1.00/1.00.
    """
    attention_block_l2: float = 1 / 2
    """
    Share of L2 for one block of long rows of scores with its copy.

    12 heads of 4,096 tokens take 13 MB instead of 818, and 0.78 of the time (3af919ce).
    Unfelt by the benchmarks: a bound of local memory for long contexts.
    """
    row_buffer_l1: float = 0.5
    """
    Share of L1 for the local memory of fused rows; operands take the rest.
    The transformer in training (avx2 x2) is the same from 1/128 to 2; 32 gives 1.00/1.00.
    Unfelt by the benchmarks: a bound of local memory, which tests reach.
    """
    least_rows: int = 8
    """
    Rows of a fused loop nest, at least, so that threads can share them.
    LeNet (avx2 x2) is the same from 1 to 16; 64 gives 1.00/1.00.
    Unfelt by the benchmarks: the fuzz fuses fewer rows with it.
    """
    shortest_row: int = 8
    """
    Elements of a fused row, at least; it is vectorized along them.
    Felt by training/lenet (avx2 x2): halved =, doubled 1.00/1.00.
    """
    most_row_operations: int = 16
    """
    Operations of a fused loop nest over rows.
    Felt by training/lenet (avx2 x2): halved 1.00/1.00, doubled =.
    """
    most_distance: int = 64
    """
    Distance, in operations, of candidates for fusion into one nest.

    A bound of compile time: the search compares pairs within it.
    Felt by training/lenet (avx2 x2): halved 1.00/1.00, doubled =.
    """
    most_statements: int = 64
    """
    Statements of a basic block of a kernel.

    A bound of compile time: GCC's time grows with the square of their number.
    Unfelt by the benchmarks: a bound of compile time, which the fuzz reaches.
    """
    channel_image_l2: float = 0.75
    """
    Share of L2 for the image of the channels that two fused operations compute at a time.

    EfficientNet-Lite0 takes 0.93 of the time with this fusion (c9d5c535).
    Unfelt by the benchmarks: a bound of local memory, which tests reach.
    """
    line_buffer_l2: float = 0.25
    """
    Share of L2 for a line buffer, which replaces whole images that are too large.

    EfficientNet-Lite0 takes another 0.96 of the time with it (e596092a).
    Felt by inference/efficientnet_lite0 (zen4 x2): halved 1.00/1.00, doubled =.
    """
    most_buffered_rows: int = 4
    """
    Rows that a line buffer gains per step.
    Felt by inference/efficientnet_lite0 (zen4 x2): halved 1.00/1.01, doubled 1.00/0.99.
    """
    channel_image_l1: float = 1.5
    """
    Size of an image of several channel groups, in L1, up to which they run together.
    Felt by inference/efficientnet_lite0 (zen4 x2): halved 1.00/1.00, doubled 1.00/1.00.
    """
    least_iterations: int = 8
    """
    Iterations over groups of channels, at least, so that threads can share them.
    Felt by inference/efficientnet_lite0 (zen4 x2): halved =, doubled 1.00/1.00.
    """
    repeated_rows: int = 14
    """
    Rows of a split image per row that two splits both compute: at most 7 % repeated work.

    EfficientNet-Lite0 with two threads takes 0.90 of the time with such splits (3726deca).
    Felt by inference/efficientnet_lite0 (zen4 x2): halved 1.00/1.00, doubled 1.00/0.99.
    """
    uneven_channels: float = 1.15
    """
    Load of the slowest thread, over the mean, up to which groups of channels are shared.
    Felt by inference/efficientnet_lite0 (zen4 x2): halved 1.00/1.00, doubled 1.00/1.00.
    """
    reread_l2: float = 1.0
    """
    Share of L2 for operands that each group of channels reads again.
    Felt by inference/efficientnet_lite0 (zen4 x2): halved 1.00/1.00, doubled =.
    """

    # Threads

    least_chunk_work: int = 16 * 1024
    """
    Elements that a chunk of work touches, at least.

    They take 4096 cycles, 20 times `Machine.chunk_start_cycles`.
    Felt by training/lenet (avx2 x2): halved 1.00/1.00, doubled 1.00/0.98.
    """
    chunks_per_thread: int = 12
    """
    Chunks per thread: a thread that starts late loses 1/12 of its share at most.
    Felt by inference/squeezenet (avx2 x2): halved 1.00/1.00, doubled 1.00/1.00.
    """
    last_chunk_wait: float = 0.1
    """
    Share of a chunk's time in which the other threads wait for the last one.
    Felt by training/lenet (avx2 x2): halved 1.00/0.99, doubled 1.00/0.99.
    """
    uneven_work: float = 1.05
    """
    Load of the slowest thread, over the mean, above which two loops are cut together.
    Felt by training/lenet (avx2 x2): halved 1.00/1.00, doubled =.
    """
    alternating_l2: float = 1.0
    """
    Size of a constant operand, in L2, above which iterations read it forwards and backwards.

    Boustrophedon order finds the last chunk of the previous iteration in L2: an LSTM of 512 units
    and batch 1 is 1.17 times as fast (dabc8de9).
    Only the order of memory accesses differs, which the counts do not see.
    Felt by inference/lstm_1x64x512 (avx2 x1): halved 1.00/1.00, doubled 1.00/1.00.
    """
    alternating_chunks: int = 4
    """
    Chunks of such an operand that fit into L2 together.
    Felt by inference/lstm_1x64x512 (avx2 x1): halved 1.00/1.00, doubled 1.00/1.00.
    """
    chunk_reread_l2: float = 0.5
    """
    Share of L2 for data of a chunk that the next chunk reads again.

    Chunks that reread large weights cost: without them, ResNet-50 with two threads takes 0.94 of
    the time (9d597b0b).
    Felt by inference/encoder_4x256 (zen4 x2): halved 0.98/0.89, doubled =.
    """
    products_per_touch: int = 8
    """
    Multiplications that take as long as touching one element in memory.
    Felt by training/lenet (avx2 x2): halved 1.00/0.99, doubled 1.00/0.99.
    """
    short_span_bytes: int = 16 * 1024
    """
    Contiguous bytes below which a chunk counts as touching short runs of memory.
    Felt by training/lenet (avx2 x2): halved 1.00/1.00, doubled 1.00/1.00.
    """

    # Loops

    most_interleaved: int = 8
    """
    Vectors that are interleaved in registers.

    Beyond 8, shuffles are more instructions than elements moved one by one.
    Felt by training/lenet (avx2 x2): halved =, doubled 1.00/1.00.
    """
    most_chains: int = 4
    """
    Functions of vectors that a step of a map computes side by side.

    A polynomial is a chain of 20 dependent instructions. Zen 5 holds 114 waiting ones: of one chain
    after the other, too few are ready. GELU takes 0.84 of the time with 4, 0.93 with 2 (AVX-512);
    with AVX2, 0.90 with either.
    Unfelt by the benchmarks: not swept yet.
    """
    reduction_vectors: int = 4
    """
    Independent accumulators of a reduction.

    At a latency of 4 cycles they take a vector a cycle, twice what L2 delivers.
    Felt by inference/squeezenet (avx2 x2): halved 1.00/1.00, doubled 1.00/1.00.
    """
    longest_short_row: int = 32
    """
    Vectors of a row up to which lanes of several rows are added together.
    Felt by training/transformer (avx2 x2): halved 1.00/1.00, doubled =.
    """
    rows_together_l1: float = 1 / 4
    """
    Share of L1 for the local memory of short rows that run together, phase by phase.
    Felt by training/lenet (avx2 x2): halved 1.00/1.00, doubled 1.00/1.00.
    """
    least_rows_together: int = 4
    """
    Rows whose lanes are added together, at least.
    Felt by inference/mtcnn_pnet (zen4 x2): halved 1.00/1.03, doubled 1.02/0.93.
    """
    most_rows_together: int = 16
    """
    Rows that run together: a vector of AVX-512 holds 16 totals.
    Felt by training/lenet (avx2 x2): halved 1.00/1.00, doubled 1.00/1.00.
    """
    least_row_steps: int = 8
    """
    Steps of rows that run together, at least, if the rest gets code of its own.

    With fewer, a step divides all rows. 12 heads of 197 rows of scores on Zen 5: 81 us in steps of
    8 with a rest of 5, 104 us one by one.
    Unfelt by the benchmarks: numbers of rows in the cases tried are multiples of 8, or few.
    """
    most_halo_boxes: int = 64
    """
    Boxes of a halo that are zeroed one by one; with more, all memory of the result is zeroed.

    For small code, 0: one loop, which kernels with different halos share.
    Unfelt by the benchmarks: a halo has 2 boxes for each axis.
    """
    most_transposed: int = 16
    """
    Rows of a square that is transposed in registers.

    The lanes of a float32 vector of AVX-512, and half of its registers.
    Felt by inference/encoder_4x256 (zen4 x2): halved 1.00/1.00, doubled =.
    """

    transposed_l2: float = 1 / 8
    """
    Share of L2 for the lines that a run of transposed blocks touches in adjacent rows.

    Zen 5, 49152 x 576 of f32: with 1024 rows, 6.9 ms; 256 rows 7.7 ms, 16 rows 10.1 ms. 4096 rows
    take 7.3 ms.
    Unfelt by the benchmarks: not swept yet.
    """

    # Sorting

    least_distributed: int = 64
    """
    Results of TopK from which they are sorted by their bytes; fewer by the heap that selects them.

    On Zen 5, all of 64 elements take 4.1 instead of 5.0 us, 50 of 2,000 take 8.8 instead of 8.3.
    Unfelt by the benchmarks: they choose 5 results, or 300 and more.
    """
    most_distributed: int = 32 * 1024
    """
    Results of TopK up to which they are sorted by their bytes; groups whose maxima bound them.

    A safety bound: they take 256 KiB of the stack.
    Unfelt by the benchmarks: they choose 8,400 results at most, or 100,000.
    """

    # Compile time

    small_literal_bytes: int = 64 * 1024
    """
    Bytes of a literal up to which folding may create it.

    A bound of compile time and memory: larger results are folded only if operands shrink.
    Felt by operator/Attention#125 (zen4 x2): halved 1.00/0.97, doubled =.
    """
    large_literal_bytes: int = 16 * 1024 * 1024
    """
    Bytes of a literal from which it is not transposed at compile time.

    A bound of compile time: NumPy takes seconds, readers of the literal can read it strided.
    Felt by inference/bvlc_alexnet (zen4 x1): halved 1.00/1.00, doubled =.
    """

    def __post_init__(self) -> None:
        check_fields(self)

    def fills_vectors(self, pixels: int) -> bool:
        """Whether a row of pixels fills the lanes of vectors, the last ones in shorter vectors."""
        whole, rest = divmod(pixels, PIXEL_LANES)
        lanes = (whole + rest.bit_count()) * PIXEL_LANES
        return whole > 0 and pixels >= self.least_row_share * lanes


@dataclass(frozen=True)
class Target:
    """The machine and the thresholds that a pass decides by."""

    machine: Machine = Machine()
    tuning: Tuning = Tuning()
    portable: bool = False
    """Whether every target must compute the same bits: shapes alone decide the order of sums."""

    @property
    def deciding(self) -> Target:
        """
        The target by which choices are made that change bits.

        In portable programs, it is generic: neither the machine nor the thresholds of a user or of
        quick programs change bits.
        """
        return Target(Machine().portable(), portable=True) if self.portable else self

    def l1(self, share: float) -> int:
        """Bytes of a share of L1."""
        return int(share * self.machine.l1_bytes)

    def l2(self, share: float) -> int:
        """Bytes of a share of L2."""
        return int(share * self.machine.l2_bytes)

    @staticmethod
    def of(vector_bytes: int, registers: int = 32, tuning: Tuning | None = None) -> Target:
        """A generic machine with vectors of a size."""
        machine = Machine().with_vectors(vector_bytes, registers)
        return Target(machine, tuning or Tuning())
