"""The model of an IPU: tile mappings, cycles of bulk-synchronous steps, and memory of tiles."""
