"""Passes of the program level: from kernels on tensors to calls on planned buffers."""
