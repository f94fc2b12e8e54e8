"""Importing this module makes the process end with the one that started it.

For the fork servers of ``multiprocessing`` (:func:`torchbeast.runtime.workers.fork_context`): a
fork server and its children hold a pipe that keeps each other alive, and would outlive a parent
that is killed. The children end with the fork server by :func:`begin_worker`.
"""

from torchbeast.runtime.workers import begin_fork_server

begin_fork_server()
