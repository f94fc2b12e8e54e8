"""A terminal for tests: a pseudo-terminal with an emulated screen."""

import contextlib
import fcntl
import os
import struct
import termios
import threading

import pyte


class Terminal:
    """A pseudo-terminal. ``stream`` is the program's end of it."""

    def __init__(self, columns=80, lines=24):
        self._master, slave = os.openpty()
        self.stream = os.fdopen(slave, "w")
        self._screen = pyte.HistoryScreen(columns, lines, history=1000)
        self._emulator = pyte.ByteStream(self._screen)
        self._changed = threading.Condition()
        # A terminal holds a few kilobytes only: somebody has to read while the program writes.
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._num_waits = 0
        self.resize(columns, lines)

    def resize(self, columns, lines):
        self.wait()
        size = struct.pack("HHHH", lines, columns, 0, 0)
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)
        self._screen.resize(lines, columns)

    def wait(self):
        """Waits until the screen shows all that was written so far."""
        self._num_waits += 1
        title = str(self._num_waits)
        self.write_directly(f"\x1b]2;{title}\x07")
        with self._changed:
            assert self._changed.wait_for(lambda: self._screen.title == title, timeout=60)

    def _read(self):
        # The other end is closed: OSError.
        with contextlib.suppress(OSError):
            while data := os.read(self._master, 65536):
                with self._changed:
                    self._emulator.feed(data)
                    self._changed.notify_all()

    @property
    def screen(self):
        """The lines of the screen without the blank ones at its end."""
        self.wait()
        return "\n".join(line.rstrip() for line in self._screen.display).rstrip().split("\n")

    @property
    def text(self):
        """All lines, those that scrolled away included."""
        screen = self.screen
        history = [
            "".join(line[x].data for x in range(self._screen.columns)).rstrip()
            for line in self._screen.history.top
        ]
        return history + screen

    def press(self, keys):
        """Types, as a user does."""
        os.write(self._master, keys.encode())

    def write_directly(self, text):
        """Writes as another process with the same terminal does."""
        os.write(self.stream.fileno(), text.encode())

    def close(self):
        with contextlib.suppress(OSError):
            self.stream.close()
        self._reader.join()
        os.close(self._master)
