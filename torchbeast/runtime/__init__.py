"""The machine: devices, threads, priority, compiled kernels, and numbers as text."""
