"""The machine: devices, threads, worker processes and environment servers."""
