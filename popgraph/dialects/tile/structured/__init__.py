"""The structured level: operations on tensors with index maps, layouts and schedules."""
