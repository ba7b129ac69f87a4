"""Building: the C compiler, its flags, the targets, and the objects it made before."""
