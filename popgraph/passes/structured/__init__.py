"""Passes over structured operations on tensors, and their lowering to loops."""
