"""TorchBeast PopArt: one agent that learns many Atari games at once."""

__version__ = "1.0.0"
