"""Parallel loops: chunks of kernels for threads, and the order of chunks in one thread."""
