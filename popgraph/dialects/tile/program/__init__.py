"""The program level: calls of kernels on buffers in one arena."""
