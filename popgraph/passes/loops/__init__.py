"""Loop transformations of kernels: interchange, vectorization, unrolling, prefetches."""
