"""Processes that run environments: where they listen, who starts, watches and replaces them."""
