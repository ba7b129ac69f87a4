"""The folder on the module path of child processes, where `import popart` finds these stubs."""
