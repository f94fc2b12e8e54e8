from collections.abc import Callable, Iterator, Sequence
from typing import Any

# A tensor, or a tuple, list or dict of nests.
Nest = Any

class ClosedBatchingQueue(RuntimeError):
    """An item was put into a closed queue or batcher, or its outputs were awaited at closing."""

class AsyncError(RuntimeError):
    """A batch of inference inputs was dropped without outputs."""

class NestError(ValueError):
    """Nests that must have one structure, type and shape do not."""

class BatchingQueue:
    """A closable queue of nests of tensors, iterated in batches.

    Batches have between ``minimum_batch_size`` and ``maximum_batch_size`` items side by side along
    ``batch_dim``; fewer when ``timeout_ms`` (milliseconds; None: wait for ever) passed since the
    consumer found the first item, or at the end. With ``maximum_queue_size`` items inside,
    ``enqueue`` waits. ``check_inputs``: whether ``enqueue`` checks that there are tensors and how
    many dimensions they have.
    ``allocator(num_bytes)`` may return a tensor of bytes to build batches in, e.g. pinned ones; it
    is asked for arrays of 4 KiB or more, and must not refer to the queue.
    After ``close`` what is inside is still handed out.
    """

    def __init__(
        self,
        batch_dim: int = 1,
        minimum_batch_size: int = 1,
        maximum_batch_size: int = 1024,
        timeout_ms: float | None = None,
        check_inputs: bool = True,
        maximum_queue_size: int | None = None,
        allocator: Callable[[int], Any] | None = None,
    ) -> None: ...
    def enqueue(self, inputs: Nest) -> None:
        """Adds an item, keeping a reference to its tensors. Batches are copies of them.

        Raises ``ValueError`` for a nest without tensors or with one of too few dimensions and
        ``ClosedBatchingQueue`` if the queue is or gets closed.
        """

    def close(self) -> None:
        """Refuses further items; raises ``RuntimeError`` the second time."""

    def is_closed(self) -> bool:
        """Whether :meth:`close` was called."""

    def size(self) -> int:
        """Returns the number of items inside."""

    def __iter__(self) -> Iterator[Nest]: ...
    def __next__(self) -> Nest: ...

class Batch:
    """Inputs of several ``compute`` calls, for one thread at a time. Dropped unanswered, it raises
    ``AsyncError`` in them.
    """

    def get_inputs(self) -> Nest:
        """Returns the inputs side by side along ``batch_dim``; each time the same arrays."""

    def set_outputs(self, outputs: Nest) -> None:
        """Answers the calls with their rows of ``outputs``; ``RuntimeError`` the second time.

        ``outputs`` have one row along ``batch_dim`` for each call.
        """

class DynamicBatcher:
    """Where callers with inputs meet model threads that answer many at once.

    Callers use ``compute``; model threads iterate and answer each :class:`Batch`. Sizes and timeout
    as in :class:`BatchingQueue`. ``check_outputs``: whether ``set_outputs`` checks shapes.
    """

    def __init__(
        self,
        batch_dim: int = 1,
        minimum_batch_size: int = 1,
        maximum_batch_size: int = 1024,
        timeout_ms: float | None = 100,
        check_outputs: bool = True,
    ) -> None: ...
    def compute(self, inputs: Nest) -> Nest:
        """Waits for the model's outputs for ``inputs`` and returns them.

        Raises ``AsyncError`` if the inputs are dropped without outputs, ``ClosedBatchingQueue`` if
        the batcher is closed by then.
        """

    def close(self) -> None:
        """Ends with ``ClosedBatchingQueue`` all calls whose inputs no model thread has taken yet.

        Raises ``RuntimeError`` the second time.
        """

    def is_closed(self) -> bool:
        """Whether :meth:`close` was called."""

    def size(self) -> int:
        """Returns how many inputs wait for a model thread."""

    def __iter__(self) -> Iterator[Batch]: ...
    def __next__(self) -> Batch: ...

class ActorPool:
    """Steps the environments of many servers and enqueues their rollouts.

    One stream to each of ``env_server_addresses`` (``unix:PATH`` or ``HOST:PORT``; an address may
    occur several times; an empty one waits for :meth:`set_address`), each with
    ``environments_per_stream`` environments (one number, or one per stream). All servers have
    observations of one structure. Inference inputs are ``(env_output, agent_state)``, outputs
    ``(agent_output, agent_state)`` whose first leaf is the action, int64. Leaves are ``[1, B,
    ...]``, but those of the agent's state ``[L, B, ...]``, in ``initial_agent_state`` with B = 1.
    Learner items are ``((env_output, agent_output), initial_agent_state)`` with leaves
    ``[unroll_length + 1, 1, ...]`` and
    ``env_output = (observation, reward, done, task, episode_step, episode_return, truncated,
    game_over, last_action)``.

    An environment that raises, or whose reward is not finite, is replaced by its server; its
    episode is truncated there. A stream that breaks is opened again; its unfinished rollouts are
    dropped.

    Args:
        unroll_length: Steps in a rollout.
        connect_timeout_s: Seconds that a stream may be without an answered step, at the start and
            after its server went away, until :meth:`run` raises. A server that went away may stay
            away longer while others answer: its streams connect again when it comes back.
        max_environment_failures: How often within ten minutes an environment may fail until
            :meth:`run` raises.
        tls: PEM texts (certificate, key, root), needed for addresses beyond this machine.
        step_timeout_s: Seconds that a step of a stream's environments may take.
        tls_server_name: The name that the servers' certificates must have, whatever their addresses
            are. By default that of the address.
        num_threads: Threads that talk to the servers, each with some of the streams. One handles
            20,000 to 100,000 steps per second. With ``GRPC_POLL_STRATEGY=poll`` in the process's
            environment each waits for its own connections only.
        environments: What the environments of each task must be, in the words of
            ``Server(environment=...)``. :meth:`run` raises if a server says something else, or has
            a task beyond these. Empty: anything will do.
    """

    def __init__(
        self,
        unroll_length: int,
        learner_queue: BatchingQueue,
        inference_batcher: DynamicBatcher,
        env_server_addresses: Sequence[str],
        initial_agent_state: Nest,
        environments_per_stream: int | Sequence[int] = 1,
        connect_timeout_s: float = 600.0,
        max_environment_failures: int = 5,
        tls: Sequence[str] | None = None,
        step_timeout_s: float = 300.0,
        tls_server_name: str = "",
        num_threads: int = 1,
        environments: Sequence[str] = (),
    ) -> None: ...
    def run(self) -> None:
        """Runs until the queue or the batcher is closed. Raises the first error of any actor."""

    def set_address(self, stream: int, address: str) -> None:
        """Moves a stream to the server at ``address``, from any thread, also before :meth:`run`.

        Its connection and unfinished rollouts are dropped, which counts as no failure. With an
        empty address the stream waits, as long as it takes, for the next call. The address that it
        has changes nothing. Raises ``IndexError`` if there is no such stream.
        """

    def count(self) -> int:
        """Returns the number of agent steps in the rollouts enqueued so far."""

class Server:
    """Serves environments: every stream gets its own, made by ``env_init()``.

    ``server_address`` is ``unix:PATH`` or ``HOST:PORT``; port 0 is one that is free. One that other
    machines can reach needs ``tls``, PEM texts (certificate, key, root). ``task`` is the index of
    the game among the learner's tasks. Environments follow Gymnasium or the older gym;
    ``truncated`` must be a bool, since TorchBeast's multi-task extension had the task there. A
    stream has at most 1024 environments. ``env_class`` is TorchBeast's name for ``env_init``.
    ``environment`` says what the environments are, for an :class:`ActorPool` that compares it.
    """

    def __init__(
        self,
        env_init: Callable[[], Any] | None = None,
        server_address: str = "unix:/tmp/polybeast",
        task: int = 0,
        tls: Sequence[str] | None = None,
        env_class: Callable[[], Any] | None = None,
        environment: str = "",
    ) -> None: ...
    def run(self) -> None:
        """Serves until :meth:`stop`. ``RuntimeError`` if the address cannot be bound."""

    @property
    def port(self) -> int:
        """The port it listens on; 0 before that, and for a Unix socket."""

    def stop(self) -> None:
        """Makes :meth:`run` return. From any thread or a signal handler."""

def is_local(address: str) -> bool:
    """Whether only this machine can reach an address, ``unix:PATH`` or ``HOST:PORT``.

    Raises:
        ValueError: it is neither, or a path too long for a socket, or one that gRPC would decode.
    """

def has_kernels() -> bool:
    """Whether this processor can run the functions below (x86-64 with AVX-512 and AVX512-BF16).

    Elsewhere they are missing, or an illegal instruction ends the process. Matrix tiles (AMX) are
    used where the processor has them, too, and the operating system is Linux.
    """

def normalize_frames(stacks: Any, means: Any, scales: Any, games: Any, outputs: Any) -> None:
    """Computes ``(stacks - means) * scales`` in float32, each stack with those of its game.

    Args:
        stacks: uint8 ``[N, 4, H, W]``, dense.
        means: float32 ``[K, H, W, 4]``, dense.
        scales: float32 ``[K]``.
        games: int32 ``[N]``.
        outputs: gets the results, int16 ``[N, H, W, 4]``: bits of bfloat16 numbers, rounded once.

    Raises:
        ValueError: shapes do not fit.
        IndexError: a game is not one of K.
    """

def residual_section(
    inputs: Any, weights: Any, biases: Any, outputs: Any, kept: Any | None = None
) -> None:
    """A section of IMPALA's ResNet: a convolution, max pooling and two residual blocks.

    Args:
        inputs: bits of bfloat16 numbers as int16, ``[N, H, W, C]``, dense; C is 4, 16 or 32.
        weights: of the five convolutions, float32 ``[D, 3, 3, C]`` and four of ``[D, 3, 3, D]``,
            dense; D is 16 or 32.
        biases: likewise, float32 ``[D]``.
        outputs: gets the results, int16 ``[N, (H + 1) // 2, (W + 1) // 2, D]``.
        kept: gets what the backward pass needs, five arrays of the outputs' shape: the indices of
            the maxima in their windows (uint8, 0 to 8 row by row), what the first block gets, what
            its first convolution computes, and the same two of the second block.

    Raises:
        ValueError: shapes do not fit.
    """

def residual_section_backward(
    inputs: Any,
    weights: Any,
    biases: Any,
    kept: Any,
    gradients: Any,
    input_gradients: Any | None,
    weight_gradients: Any,
    bias_gradients: Any,
) -> None:
    """The gradients of :func:`residual_section`.

    Args:
        inputs: as there, and so are the next two.
        weights: of the five convolutions.
        biases: likewise.
        kept: what :func:`residual_section` kept.
        gradients: of the outputs, int16.
        input_gradients: gets those of the inputs, int16; None if C is 4, or if nobody needs them.
        weight_gradients: gets those of the weights, float32.
        bias_gradients: gets those of the biases, float32.
    """
