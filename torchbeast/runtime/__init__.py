"""The machine: devices, threads, child processes, alarms, ranks; and numbers as text."""
