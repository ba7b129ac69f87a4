"""Pipelines: which stage computes what, and the graph of each stage."""
