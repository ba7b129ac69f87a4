"""Building: the C compiler, its flags, the targets, and the object cache."""
