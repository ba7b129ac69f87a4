"""For test suites, ours and our users': strategies that draw programs, checkers of meaning."""
