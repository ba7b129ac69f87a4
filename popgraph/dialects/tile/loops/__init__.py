"""The loops level: kernels with explicit loops, on tensors."""
