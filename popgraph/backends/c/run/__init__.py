"""Running: the loaded library, the executable, its profile, and warm starts."""
