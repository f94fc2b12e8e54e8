"""The machine: devices, threads, child processes, compiled kernels, and numbers as text."""
