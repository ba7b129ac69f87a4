"""Schedules of contractions: the cost model, the candidates, and what overrides them."""
