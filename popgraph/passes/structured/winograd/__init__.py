"""Winograd's transforms of 3x3 convolutions and of their weight gradients."""
