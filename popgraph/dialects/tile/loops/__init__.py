"""The loops level: kernels whose loops are written out, on tensors."""
