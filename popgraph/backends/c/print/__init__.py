"""Printing: types, expressions, statements, kernels and whole programs as C."""
