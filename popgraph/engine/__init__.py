"""The engine: programs of many micro-batches, replicas and stages, for every door."""
