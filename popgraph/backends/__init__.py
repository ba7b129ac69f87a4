"""What runs a module: NumPy at every level, C at the lowest."""
