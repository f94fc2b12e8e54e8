"""PolyBeast: ``python -m torchbeast.polybeast``. Flags, then wiring.

Environment servers step games; the actor pool streams their observations to inference threads and
whole rollouts to learner threads.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from torchbeast.core import flags as flags_lib
from torchbeast.core.types import AgentOutput, EnvOutput, UsageError

if TYPE_CHECKING:
    import torch

    from torchbeast.core.learner import Learner, PublishedWeights, StepStats
    from torchbeast.core.threads import ThreadPlan
    from torchbeast.envs import EnvSpec

log = logging.getLogger("torchbeast")

REPORT_INTERVAL_S = 5.0


def make_parser() -> argparse.ArgumentParser:
    parser = flags_lib.Parser("polybeast", "Trains and tests agents on one or many Atari games.")
    parser.add_argument("--mode", choices=["train", "test"], default="train")
    flags_lib.add_env_flags(parser)
    flags_lib.add_run_flags(parser)
    flags_lib.add_agent_flags(parser)
    flags_lib.add_learner_flags(parser)
    flags_lib.add_machine_flags(parser)
    flags_lib.add_server_flags(parser)
    group = parser.add_argument_group("only here")
    group.add_argument("--start_servers", dest="start_servers", action="store_true", default=True)
    group.add_argument(
        "--no_start_servers",
        dest="start_servers",
        action="store_false",
        help="Connect to servers that run already (see torchbeast.polybeast_env).",
    )
    group.add_argument(
        "--write_profiler_trace",
        action="store_true",
        help="Write a trace of some learner steps for chrome://tracing to the run's directory.",
    )
    flags_lib.add_test_flags(parser)
    return parser


class Setup(NamedTuple):
    """What the flags amount to on this machine. Flags themselves are never changed."""

    games: tuple[str, ...]
    spec: EnvSpec
    plan: ThreadPlan
    xpid: str
    seed: int
    clip_rewards: bool
    envs_per_server: list[int]


def prepare(flags: argparse.Namespace) -> Setup:
    """Checks everything that can be wrong before anything is started. Raises UsageError."""
    from torchbeast.core.file_writer import default_xpid
    from torchbeast.core.servers import check_basename
    from torchbeast.core.threads import available_cores, plan_threads
    from torchbeast.envs import parse_games, plan_envs

    games = parse_games(flags.env)
    if len(games) > flags.num_actors:
        raise UsageError(
            f"{len(games)} games need at least as many actors: --num_actors {flags.num_actors}"
        )
    spec = plan_envs(games, flags.preprocessing)
    if flags.num_actions is not None and flags.num_actions != spec.num_actions:
        raise UsageError(
            f"--num_actions {flags.num_actions} contradicts the games, which have "
            f"{spec.num_actions}; leave it out"
        )
    if flags.total_steps < 1:
        raise UsageError("--total_steps must be at least 1")
    queue_size = flags.max_learner_queue_size or flags.batch_size
    if queue_size < flags.batch_size:
        raise UsageError("--max_learner_queue_size must be at least --batch_size")
    plan = plan_threads(
        flags.cores or available_cores(),
        flags.num_actors,
        len(games),
        cuda=use_cuda(flags),
        learner_threads=flags.num_learner_threads,
        inference_threads=flags.num_inference_threads,
        servers=flags.num_servers,
    )
    if plan.servers < len(games):
        raise UsageError(f"{len(games)} games need at least as many servers, not {plan.servers}")
    if flags.pipes_basename is not None:
        check_basename(flags.pipes_basename, plan.servers)
    elif not flags.start_servers:
        raise UsageError("--no_start_servers needs --pipes_basename: where the servers are")
    if flags.use_popart and flags.reward_clipping == "abs_one":
        log.warning(
            "--use_popart with --reward_clipping abs_one normalises clipped rewards: the scales of "
            "the games, which PopArt is for, are lost before it sees them"
        )
    clipping = flags.reward_clipping or ("none" if flags.use_popart else "abs_one")
    return Setup(
        games=games,
        spec=spec,
        plan=plan,
        xpid=flags.xpid or default_xpid(),
        seed=flags.seed if flags.seed is not None else int.from_bytes(os.urandom(4), "little"),
        clip_rewards=clipping == "abs_one",
        envs_per_server=[
            flags.num_actors // plan.servers + (i < flags.num_actors % plan.servers)
            for i in range(plan.servers)
        ],
    )


def use_cuda(flags: argparse.Namespace) -> bool:
    if flags.disable_cuda:
        return False
    import torch

    return torch.cuda.is_available()


def make_agent(flags: argparse.Namespace, setup: Setup, device: torch.device) -> Any:
    """A new agent for the games, with measured input statistics."""
    from torchbeast.core.precision import choose_dtype
    from torchbeast.envs import measure_frames
    from torchbeast.models import AgentConfig, make_agent

    agent = make_agent(
        AgentConfig(
            agent_type=flags.agent_type,
            observation_shape=setup.spec.observation_shape,
            num_actions=setup.spec.num_actions,
            tasks=setup.games,
            use_lstm=flags.use_lstm,
            use_popart=flags.use_popart,
            beta=flags.beta,
        )
    )
    if not flags.fixed_input_scale:
        mean, std = measure_frames(
            setup.games,
            preprocessing=flags.preprocessing,
            full_action_space=setup.spec.full_action_space,
            seed=setup.seed,
        )
        agent.set_frame_statistics(mean, std)
    agent.compute_dtype = choose_dtype(flags.precision, device)
    return agent.to(device)


def make_learner(
    flags: argparse.Namespace, setup: Setup, agent: Any, on_step: Callable[[StepStats], None]
) -> Learner:
    from torchbeast.core.learner import Learner, OptimizerConfig
    from torchbeast.core.losses import LossConfig

    return Learner(
        agent,
        LossConfig(
            discounting=flags.discounting,
            baseline_cost=flags.baseline_cost,
            entropy_cost=flags.entropy_cost,
            clip_rewards=setup.clip_rewards,
            use_popart=flags.use_popart,
        ),
        OptimizerConfig(**{name: getattr(flags, name) for name in OptimizerConfig._fields}),
        flags.batch_size,
        on_step,
    )


def inference_loop(batcher: Any, weights: PublishedWeights, device: torch.device) -> None:
    """An inference thread: answers batches until the batcher is closed."""
    import torch

    import nest

    with torch.inference_mode():
        for batch in batcher:
            env_output, state = batch.get_inputs()
            if device.type != "cpu":
                env_output, state = nest.map(lambda t: t.to(device), (env_output, state))
            with weights.reading() as (agent, _):
                outputs = agent(EnvOutput(*env_output), state)
            if device.type != "cpu":
                outputs = nest.map(lambda t: t.cpu(), outputs)
            batch.set_outputs(outputs)


def learner_loop(queue: Any, learner: Learner, device: torch.device) -> None:
    """A learner thread: learns from rollouts until there is nothing more to learn."""
    import nest
    from torchbeast.core.learner import LearnerClosed

    for item in queue:
        if device.type != "cpu":
            item = nest.map(lambda t: t.to(device, non_blocking=True), item)
        (env_output, agent_output), state = item
        try:
            learner.learn(EnvOutput(*env_output), AgentOutput(*agent_output), state)
        except LearnerClosed:
            return


class Threads:
    """Threads whose first failure ends the run instead of passing unseen."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.changed = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self, name: str, function: Callable[..., None], *args: Any) -> None:
        def run() -> None:
            try:
                function(*args)
            except BaseException as error:
                if self.error is None:
                    self.error = error
            finally:
                self.changed.set()

        # Daemons: a thread inside a stuck call must not keep the program from ending.
        thread = threading.Thread(target=run, name=name, daemon=True)
        thread.start()
        self._threads.append(thread)

    def join(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))


def train(flags: argparse.Namespace) -> int:
    """Trains until --total_steps or a signal. Returns the exit code."""
    received: list[int] = []
    threads = Threads()

    def on_signal(signum: int, _frame: Any) -> None:
        if received:  # The second time: now.
            os._exit(128 + signum)
        received.append(signum)
        threads.changed.set()

    setup = prepare(flags)
    import torch

    from torchbeast.core import checkpoint
    from torchbeast.core.file_writer import FileWriter
    from torchbeast.core.precision import keep_freed_pages
    from torchbeast.core.progress import Progress, log_fields
    from torchbeast.core.servers import EnvServers, socket_directory
    from torchbeast.envs.games import short_name

    keep_freed_pages()
    torch.set_num_threads(setup.plan.torch_threads)
    torch.manual_seed(setup.seed)
    device = torch.device("cuda" if use_cuda(flags) else "cpu")
    names = [short_name(game) for game in setup.games]
    meta = {
        "args": vars(flags),
        "xpid": setup.xpid,
        "seed": setup.seed,
        "tasks": setup.games,
        "num_actions": setup.spec.num_actions,
        "reward_clipping": "abs_one" if setup.clip_rewards else "none",
        "threads": setup.plan._asdict(),
    }
    with contextlib.ExitStack() as stack:
        writer = stack.enter_context(
            FileWriter(flags.savedir, setup.xpid, meta, log_fields(names, flags.use_popart))
        )
        model_path = writer.path / "model.tar"
        agent = make_agent(flags, setup, device)
        progress: Progress
        learner: Learner

        def on_step(stats: StepStats) -> None:
            weights.publish(learner.agent, stats.learner_steps)
            progress.record(stats)
            every = flags.save_model_every_nsteps
            before = stats.steps - sum(stats.task_steps)
            if every and stats.steps // every > before // every:
                contents = save_contents()
                contents.pop("optimizer_state_dict")
                checkpoint.save(
                    checkpoint.intermediate_path(writer.path, contents["steps"]), contents
                )

        def save_contents() -> dict[str, Any]:
            return {
                **learner.state_dict(),
                "preprocessing": flags.preprocessing,
                "seed": setup.seed,
            }

        learner = make_learner(flags, setup, agent, on_step)
        if model_path.exists() and not flags.disable_checkpoint:
            resume(learner, model_path)
        progress = Progress(writer, names, flags.total_steps, learner.steps)
        weights = make_weights(flags, setup, agent, device)
        weights.publish(agent, learner.learner_steps)

        for signum in (signal.SIGINT, signal.SIGTERM):
            stack.callback(signal.signal, signum, signal.signal(signum, on_signal))
        basename = stack.enter_context(socket_directory(flags.pipes_basename))
        servers = None
        if flags.start_servers:
            servers = stack.enter_context(
                EnvServers(
                    basename,
                    setup.plan.servers,
                    flags.pipes_basename is None,
                    server_arguments(flags, setup),
                )
            )
        log.info("Run %s in %s: %s on %s", setup.xpid, writer.path, setup.plan, device)
        log.info("Curves: tensorboard --logdir %s", writer.path.parent)
        queue, batcher, pool = make_pool(flags, setup, basename, agent, device)
        for i in range(setup.plan.inference_threads):
            threads.start(f"inference-{i}", inference_loop, batcher, weights, device)
        for i in range(setup.plan.learner_threads):
            threads.start(f"learner-{i}", learner_loop, queue, learner, device)
        threads.start("actors", pool.run)

        def save() -> None:
            if flags.disable_checkpoint or learner.learner_steps == 0:
                return
            try:
                checkpoint.save(model_path, save_contents())
            except OSError as error:
                log.error("Cannot save %s (the last one stays): %s", model_path, error)

        popart = agent.baseline if flags.use_popart else None
        next_save = time.monotonic() + flags.checkpoint_interval_s
        next_report = time.monotonic() + REPORT_INTERVAL_S
        try:
            while not received and threads.error is None and learner.steps < flags.total_steps:
                threads.changed.wait(timeout=0.5)
                threads.changed.clear()
                if servers is not None:
                    servers.check()
                if time.monotonic() >= next_report:
                    queues = {"learner": queue.size(), "inference": batcher.size()}
                    progress.report(queues, popart)
                    next_report = time.monotonic() + REPORT_INTERVAL_S
                if time.monotonic() >= next_save:
                    save()
                    next_save = time.monotonic() + flags.checkpoint_interval_s
        finally:
            queues = {"learner": queue.size(), "inference": batcher.size()}
            learner.close()
            queue.close()
            batcher.close()
            threads.join(timeout=3.0)
            save()
            progress.report(queues, popart)
            lines = progress.finish()
        if threads.error is not None and not received:
            raise threads.error
        for line in lines:
            print(line)
        print(f"{learner.steps:,} steps; run in {writer.path}", flush=True)
    return 128 + received[0] if received else 0


def resume(learner: Learner, path: Path) -> None:
    from torchbeast.core import checkpoint

    contents = checkpoint.load(path)
    config = learner.agent.config._asdict()
    saved = {**contents.get("agent", {})}
    changed = [k for k, v in config.items() if k in saved and k != "beta" and saved[k] != v]
    if changed:
        raise UsageError(
            f"{path} is of another agent: {', '.join(changed)} changed; choose another --xpid"
        )
    learner.load_state_dict(contents)
    log.info("Going on at step %s of %s", f"{learner.steps:,}", path)


def make_weights(
    flags: argparse.Namespace, setup: Setup, agent: Any, device: torch.device
) -> PublishedWeights:
    import copy

    from torchbeast.core.learner import PublishedWeights

    def make_copy() -> Any:
        result = copy.deepcopy(agent)
        return result.requires_grad_(False)

    return PublishedWeights(make_copy, setup.plan.inference_threads)


def server_arguments(flags: argparse.Namespace, setup: Setup) -> list[str]:
    return [
        f"--env={','.join(setup.games)}",
        f"--preprocessing={flags.preprocessing}",
        f"--seed={setup.seed}",
        *([f"--tls_dir={flags.tls_dir}"] if flags.tls_dir else []),
    ]


def make_pool(
    flags: argparse.Namespace, setup: Setup, basename: str, agent: Any, device: torch.device
) -> tuple[Any, Any, Any]:
    """Learner queue, inference batcher and actor pool."""
    import torch

    from libtorchbeast import ActorPool, BatchingQueue, DynamicBatcher
    from torchbeast.polybeast_env import load_tls

    cuda = device.type == "cuda"
    # On the CPU a rollout at a time keeps the activations in the cache; a GPU wants whole batches.
    learner_batch = flags.batch_size if cuda else 1
    queue = BatchingQueue(
        batch_dim=1,
        minimum_batch_size=learner_batch,
        maximum_batch_size=learner_batch,
        maximum_queue_size=flags.max_learner_queue_size or flags.batch_size,
        allocator=(lambda n: torch.empty(n, dtype=torch.uint8, pin_memory=True)) if cuda else None,
    )
    batcher = DynamicBatcher(batch_dim=1, maximum_batch_size=512, timeout_ms=100)
    pool = ActorPool(
        unroll_length=flags.unroll_length,
        learner_queue=queue,
        inference_batcher=batcher,
        env_server_addresses=[
            flags_lib.server_address(basename, i) for i in range(setup.plan.servers)
        ],
        initial_agent_state=tuple(s.cpu() for s in agent.initial_state(1)),
        environments_per_stream=setup.envs_per_server,
        tls=load_tls(flags.tls_dir),
    )
    return queue, batcher, pool


def test(flags: argparse.Namespace) -> int:
    """Plays full games with a trained agent."""
    from torchbeast import evaluate
    from torchbeast.core import checkpoint
    from torchbeast.models.loading import from_contents

    xpid = flags.xpid or "latest"
    path = checkpoint.model_path(flags.savedir, xpid, flags.intermediate_model_id)
    contents = checkpoint.load(path)
    agent = from_contents(contents, path)
    games = evaluate.choose_games(agent, flags.env if was_given("--env") else None)
    evaluate.run_test(
        agent,
        games,
        flags.num_episodes,
        label=f"{xpid},{flags.intermediate_model_id or contents.get('steps', 'model')}",
        preprocessing=contents.get("preprocessing", "deepmind"),
        greedy=flags.greedy,
        seed=flags.seed if flags.seed is not None else 0,
        as_json=flags.json,
    )
    return 0


def was_given(flag: str) -> bool:
    return any(a == flag or a.startswith(flag + "=") for a in sys.argv)


def main(argv: list[str] | None = None) -> int:
    flags = make_parser().parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        return train(flags) if flags.mode == "train" else test(flags)
    except UsageError as error:
        print(f"polybeast: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        log.exception("%s", error)
        return 1


if __name__ == "__main__":
    sys.exit(main())
