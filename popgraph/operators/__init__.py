"""The pages of operators: requirements, bounds of indices, lowerings, functions in NumPy."""
