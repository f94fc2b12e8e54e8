"""Command lines: flags, presets, typed configurations, signals and exit codes."""
