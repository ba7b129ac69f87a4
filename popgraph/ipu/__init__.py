"""The IPU model: tile mappings, cycles of bulk-synchronous steps, and tile memory."""
