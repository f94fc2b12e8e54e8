"""Looking at runs and agents: learning curves, filters, attention. Each command is a module."""
