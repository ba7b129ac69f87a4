"""The viewer: one browser page with a model's graph at each level, its C, memory and passes."""
