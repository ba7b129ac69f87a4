"""The engine runs training programs: micro-batches, replicas and pipeline stages, for every API."""
