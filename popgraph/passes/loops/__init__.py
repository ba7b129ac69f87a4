"""Loop transformations: kernels as structured-to-loops writes them become those that run."""
