"""The backends that run modules: NumPy at every level, C at the lowest."""
