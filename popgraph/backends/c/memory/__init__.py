"""The memory of programs: the table of pointers, pages, and arrays used without a copy."""
