"""The thresholds of decisions: when a transformation pays, and how far it goes."""

from __future__ import annotations

from dataclasses import dataclass

from popgraph.support.machine import Machine


@dataclass(frozen=True)
class PerTile:
    """A figure for each size of Winograd's tiles."""

    two: float
    """Of tiles of 2x2 results."""
    four: float
    """Of tiles of 4x4 results."""

    def __getitem__(self, size: int) -> float:
        return {2: self.two, 4: self.four}[size]


@dataclass(frozen=True)
class Tuning:
    """
    Every threshold of a decision; tests pass small ones to meet each decision in small programs.

    A field that ends in `_l1` or `_l2` is a share of that cache of the machine.
    """

    # Accuracy of sums

    chain_terms: int = 256
    """Terms: the longest chain of float32 additions in a contraction."""
    chain_terms_f64: int = 0
    """Terms of a chain of float64 additions; 0: any number is accurate."""
    winograd_chain_terms: int = 64
    """Terms: shorter than others, since the transforms make numbers of different size."""
    partial_sums: int = 32
    """Terms, or sums of them, that are added up before that is added to what they are part of."""

    # Control flow

    most_unrolled_turns: int = 64
    """Turns of a loop, with those around it, that are written out where shapes change in it."""

    # Products of small numbers

    least_word_terms: int = 8
    """Terms along the summed axis, from which on it pays to put them in words."""

    # Padding of convolutions

    least_skipped: float = 1 / 8
    """Share of the products: where more of them multiply padding, a convolution is cut."""
    least_piece: int = 8
    """Results along an axis: fewer of them do not fill the registers."""
    most_pieces: int = 3
    """Along an axis: where taps are three, as they mostly are, more would save nothing."""

    # Convolutions over volumes

    least_folded_channels: int = 32
    """Channels from which on transforms of images save more than the copies of depth take."""

    # Factors in fewer bits

    most_narrow_uses: int = 6
    """Where more results share an element, it is widened once, not whenever it is read."""

    least_block_terms: int = 16
    """Where fewer rows of weights share a scale, there would be too many sums to scale."""

    # Gradients of strided convolutions

    most_phases: int = 16
    """Convolutions for the phases of one; where there would be more, one computes all of them."""
    few_channels: int = 8
    """Channels up to which one does as well: each phase alone would leave vectors half empty."""
    least_filled: float = 0.9
    """Share of the lanes: where one fills less, and rows of a phase do so, phases are apart."""

    # Layouts

    least_channels: int = 8
    """Channels from which on it pays to have them innermost."""
    pixel_lanes: int = 16
    """Pixels that fill a vector, where results have too few channels for that."""
    least_row_share: float = 0.7
    """Share of the lanes that a row fills, whose end is taken in ever shorter vectors."""
    least_pixel_products: int = 16
    """Products of an element: for fewer, pixels are not put side by side where channels are."""

    # Schedules of contractions

    least_products: int = 4096
    """Multiplications from which on a contraction gets a schedule; others stay plain loops."""
    plain_cycles: float = 3.0
    """Cycles of a plain loop per vector of products."""
    plain_scalar_cycles: float = 1.5
    """Cycles of a plain loop per product, where it does not run on vectors."""
    least_packed_extent: int = 4
    """Elements of a loop from which on it is worth running along vectors."""
    near_contractions: int = 4
    """
    Contractions: so far apart, two share what is packed even where values are recomputed.

    Those of a layer's gradients and its neighbour's are; it would be kept long for others.
    """
    most_vectors: int = 8
    """Vectors of a panel."""
    chunk_cycles: float = 1.5
    """Cycles per vector of sums for each chunk of terms that is added to its total."""
    window_overlap: float = 1.5
    """Slowdown of a step that reads what another row read before."""
    hidden_results: float = 1 / 8
    """Share of a tile's own time in which it waits for the results of the one before for free."""
    panels_l2: float = 0.5
    """Panels that stay in L2 while rows stream by."""
    panel_l1: float = 1.0
    """A panel that stays in L1 while all rows go by."""
    streamed_l2: float = 2.0
    """A factor that no L2 keeps from one run to the next."""
    gemv_strips: int = 4
    """Strips of a large matrix-vector product: 1.5 times as fast as one, eight hardly faster."""
    least_strip_results: int = 32
    """Results of a strip that are worth it: some whole vectors."""

    # Loops of contractions

    prefetched_blocks: int = 40
    """Blocks of rows: a panel that more of them use has long arrived when it is read again."""
    prefetched_elements: int = 4 * 1024
    """Elements of a panel that are worth prefetching."""
    chunk_sums_l2: float = 1 / 16
    """Sums that stay in L2 beside a chunk of a panel and what it meets."""
    k_outer_totals_l2: float = 0.5
    """Totals beside the results: what a factor leaves of L2."""

    # Winograd's transforms

    winograd_gain: float = 1.1
    """So many times as fast as the sums themselves the transforms must be, by estimate."""
    winograd_vectors: int = 2
    """Vectors of results beside each other in registers."""
    max_tiles_in_registers: int = 14
    """Tiles whose sums are in registers at once."""
    winograd_rounds: int = 4
    """Blocks of tiles may be this many times as large as what registers hold."""
    winograd_scratch_l2: float = 0.75
    """Transformed tiles and sums that stay in L2 while weights go by."""
    winograd_kept_l2: float = 0.5
    """What of that stays there at no cost."""
    winograd_crowd_cycles: float = 0.5
    """Cycles for each byte of a block beyond that, as weights go by beside it."""
    winograd_utilization: float = 0.9
    """Share of the time that multipliers are busy in a long sum."""
    winograd_overlap: float = 0.35
    """Of products and the arrival of weights: the share of the shorter that the other hides."""
    winograd_output_cycles: PerTile = PerTile(30.0, 90.0)
    """Cycles to transform the results of a tile back, per vector of channels."""
    winograd_tile_cycles: PerTile = PerTile(40.0, 120.0)
    """Cycles to transform a tile of the image, per vector of channels."""
    winograd_weight_cycles: float = 24.0
    """Cycles per vector of transformed weights, where they are transformed in every run."""
    winograd_permute_cycles: float = 3.0
    """Cycles per weight that is permuted before."""
    least_shared_blocks: int = 4
    """Blocks of tiles below which threads share panels of weights instead."""
    most_panel_blocks: int = 16
    """Blocks that may read a panel of weights one after the other."""
    late_tile_cycles: PerTile = PerTile(1.2, 1.75)
    """
    Cycles for each byte of transformed tiles, there and back, that L2 does not hold.

    A tile goes to as many places far apart as it has taps: 16 of them are prefetched, 36 are not.
    """
    late_sum_cycles: PerTile = PerTile(0.5, 1.0)
    """The same for sums of products, which are long rows in each place."""
    gradient_utilization: float = 0.8
    """Share of the time that multipliers are busy in sums over tiles."""
    gradient_back_cycles: float = 2.0
    """Cycles per vector of a term in the transform of a gradient's sums."""
    transform_ahead_lines: int = 2
    """Lines of each tap that a core transforms while memory answers."""

    # Fusion

    most_inputs: int = 16
    """Operands of an operation: one that reads more is slower than two that read less."""
    amortized_elements: int = 16
    """Work that is done once per so many elements costs next to nothing."""
    longest_body: int = 64
    """
    Operations on one element: they hide the time of a load, one more that is fused saves nothing.

    Every fusion writes the body again, so without a limit chains would take the square of their
    length.
    """
    most_taps: int = 16
    """Elements that a resized one is a sum of while each is looked up where it is needed."""
    joined_results: int = 4
    """Partial results that a round of a running sum joins, all out of one copy."""
    longest_dense_transform: int = 256
    """Fourier transforms that are one product: the matrix of a longer one leaves the caches."""
    attention_scores_l2: float = 1.0
    """A matrix of scores that is smaller stays near between the products."""
    attention_rows_l2: float = 1 / 8
    """The scores of one block of rows, with a copy; they are gone through three times."""
    most_local_bytes: int = 512 * 1024
    """Bytes of scores, with a copy: a kernel has its local memory on a thread's stack."""
    row_buffer_l2: float = 1 / 32
    """What a long row may take instead: it is read again from there, not from memory."""
    attention_block_l2: float = 1 / 2
    """What one block of long rows may take, with its copy, so that no matrix goes to memory."""
    row_buffer_l1: float = 0.5
    """Local memory of fused rows: it leaves room for the operands in L1."""
    least_rows: int = 8
    """Fused rows: enough that threads can share them."""
    shortest_row: int = 8
    """Elements of the longest fused row; vectors run along rows."""
    most_row_operations: int = 16
    """Operations of one fused kernel."""
    most_distance: int = 64
    """Operations between two that are looked at together."""
    most_statements: int = 64
    """Statements in a row of one kernel: GCC's time grows with the square of their number."""
    channel_image_l2: float = 0.75
    """The image of some channels; it stays in L2 beside what it is made of."""
    line_buffer_l2: float = 0.25
    """A buffer of rows, where whole images are too large."""
    most_buffered_rows: int = 4
    """Rows that are made at a time: more save nothing."""
    channel_image_l1: float = 1.5
    """An image of more channels is worth having while L1 and what is read again of L2 hold it."""
    least_iterations: int = 8
    """Groups of channels: enough for threads to share; more channels at a time are worth less."""
    repeated_rows: int = 14
    """Parts of an image make the rows between them twice: at most one of so many."""
    uneven_channels: float = 1.15
    """So many times its share of channels the slowest thread may have to do."""
    reread_l2: float = 1.0
    """What every group of channels reads again must stay near."""

    # Threads

    least_chunk_work: int = 16 * 1024
    """Elements touched: less work is not worth handing to another thread."""
    chunks_per_thread: int = 12
    """Chunks for each thread: one that starts late takes fewer, and that costs little."""
    last_chunk_wait: float = 0.1
    """Share of a chunk that all others wait for whoever takes the last one."""
    uneven_work: float = 1.05
    """So many times its share the slowest thread may do before two loops are cut together."""
    alternating_l2: float = 1.0
    """What every turn of a loop reads once; more does not stay in L2 until the next turn."""
    alternating_chunks: int = 4
    """So many chunks of it would fit into L2."""
    chunk_reread_l2: float = 0.5
    """What a chunk touches and finds again in the next one."""
    products_per_touch: int = 8
    """Multiplications that count as much as touching one element."""
    short_span_bytes: int = 16 * 1024
    """Bytes: a loop that goes over less before it begins again (channels) touches short pieces."""

    # Loops

    most_interleaved: int = 8
    """Vectors that are interleaved with fewer instructions than elements are moved."""
    reduction_vectors: int = 4
    """Vectors that are reduced side by side: the next addition need not wait for the last."""
    longest_short_row: int = 32
    """Vectors of a row up to which it pays to add up the lanes of several rows together."""
    rows_together_l1: float = 1 / 4
    """Local memory of short rows that run together, phase by phase: more hides no more waiting."""
    least_rows_together: int = 4
    """Rows whose lanes are worth adding up together."""
    most_rows_together: int = 16
    """Rows that run together: a vector holds no more of their totals."""
    most_transposed: int = 16
    """Rows of a square that is transposed in registers."""

    least_merged: int = 16
    """Positions that are worth sorting by merging runs: fewer are taken out of a heap."""
    most_merged: int = 64 * 1024
    """Positions that are merged in local memory; that of a thread may be half a megabyte."""

    # Compile time

    small_literal_bytes: int = 64 * 1024
    """Bytes up to which a literal costs less than the operation that would compute it."""
    large_literal_bytes: int = 16 * 1024 * 1024
    """Bytes from which on literals are not transposed: readers can, and NumPy takes seconds."""

    def fills_vectors(self, pixels: int) -> bool:
        """Whether it pays to run along a row of so many pixels instead of along channels."""
        whole, rest = divmod(pixels, self.pixel_lanes)
        lanes = (whole + rest.bit_count()) * self.pixel_lanes
        return whole > 0 and pixels >= self.least_row_share * lanes


@dataclass(frozen=True)
class Target:
    """What a pass knows besides the module: the machine, and when something pays there."""

    machine: Machine = Machine()
    tuning: Tuning = Tuning()

    def l1(self, share: float) -> int:
        """Bytes of a share of the first cache."""
        return int(share * self.machine.l1_bytes)

    def l2(self, share: float) -> int:
        """Bytes of a share of the second cache."""
        return int(share * self.machine.l2_bytes)

    @staticmethod
    def of(vector_bytes: int, registers: int = 32, tuning: Tuning | None = None) -> Target:
        """A generic machine with such vectors."""
        machine = Machine().with_vectors(vector_bytes, registers)
        return Target(machine, tuning or Tuning())
