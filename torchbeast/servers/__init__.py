"""Environment servers: where they listen, and the process that starts and replaces them."""
