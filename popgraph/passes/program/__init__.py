"""Memory planning: the last step, from kernels on tensors to calls on buffers."""
