"""Ctrl-C inside a test's own process."""

import os
import signal


class Interrupt:
    """Sends SIGINT to this process at its first call, once.

    A program that does not handle it would end pytest without a word, so that is checked before.
    """

    def __init__(self):
        self.is_sent = False

    def __call__(self):
        if self.is_sent:
            return
        handler = signal.getsignal(signal.SIGINT)
        assert handler not in (signal.SIG_DFL, signal.SIG_IGN, signal.default_int_handler)
        self.is_sent = True
        os.kill(os.getpid(), signal.SIGINT)
