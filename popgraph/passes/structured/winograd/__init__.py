"""Winograd's transforms of convolutions and of their weight gradients."""
