"""Loop transformations of kernels: split, interchange, vectorization, unrolling, prefetches."""
