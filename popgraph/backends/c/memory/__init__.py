"""The memory of programs: pointer table, pages, zero-copy inputs and outputs."""
