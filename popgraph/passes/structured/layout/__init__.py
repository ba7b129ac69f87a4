"""Layouts: the order of axes in memory, and the halos around tensors."""
