"""Work in other threads."""

import threading


def start(function, *arguments):
    """Starts a thread. Returns it and a list that will have what it returned or raised."""
    results = []

    def work():
        try:
            results.append(function(*arguments))
        except Exception as error:
            results.append(error.with_traceback(None))  # Its frames would keep tensors alive.

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread, results
