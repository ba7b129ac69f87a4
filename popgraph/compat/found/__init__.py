"""The folder on the module path of processes that a program starts; `import popart` finds this."""
