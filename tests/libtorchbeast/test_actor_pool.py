"""The actor pool against real server processes, which are killed, stopped and made to fail."""

import asyncio
import multiprocessing
import os
import socket

import numpy as np
import pytest
import torch

from libtorchbeast import ActorPool, BatchingQueue, DynamicBatcher
from tests.libtorchbeast.environments import serve
from tests.libtorchbeast.pools import Pool, T
from tests.processes import wait_until


@pytest.fixture
def start_server(tmp_path):
    """Starts servers in processes."""
    context = multiprocessing.get_context("spawn")
    processes = []

    def start(kind="counting", task=0, name="server", environment="", **behaviour):
        address = f"unix:{tmp_path}/{name}"
        arguments = (address, kind, behaviour, task, environment)
        process = context.Process(target=serve, args=arguments, daemon=True)
        process.start()
        processes.append(process)
        return address, process

    yield start
    for process in processes:
        process.kill()
        process.join()


def check_rollouts(rollouts):
    """Every slot of one environment's consecutive rollouts of a Counting environment."""
    previous_last = None
    for (env_output, agent_output), _ in rollouts:
        frame, reward, done, _, step, _, truncated, game_over, action = env_output
        assert frame.shape == (T + 1, 1, 4, 2, 3)
        assert done.dtype == torch.bool
        assert step.dtype == torch.int32
        newest = frame[:, 0, :, 0, 0].to(torch.int64)
        for t in range(1, T + 1):
            if done[t, 0]:  # A new stack: four times its first picture.
                assert newest[t].unique().numel() == 1
            else:
                assert torch.equal(newest[t, :3], newest[t - 1, 1:])
            assert (newest[t, 3] - newest[t - 1, 3]) % 256 in (1, 2)
        # The action of row t led to the reward of row t, but for those that only start an episode.
        is_step = ~truncated[:-1]
        assert torch.equal(reward[1:], agent_output[0][1:, :, 0] * is_step.to(torch.float32))
        assert torch.equal(action[1:], agent_output[0][1:, :, 0])
        assert not (truncated & done).any()
        assert done[1:][~is_step].all()
        assert not (game_over & ~done).any()
        if previous_last is not None:
            for mine, theirs in zip(env_output, previous_last[0], strict=True):
                assert torch.equal(mine[0], theirs[-1])
            for mine, theirs in zip(agent_output, previous_last[1], strict=True):
                assert torch.equal(mine[0], theirs[-1])
        previous_last = (env_output, agent_output)


@pytest.mark.parametrize("envs", [1, 3])
def test_rollouts_hold_what_the_environment_did(start_server, envs):
    address, _ = start_server(task=4)
    endless = {"connect_timeout_s": float("inf"), "step_timeout_s": float("inf")}
    with Pool([address], envs, **endless) as pool:
        items = [next(pool.queue) for _ in range(8 * envs)]
    for e in range(envs):
        rollouts = items[e::envs]
        check_rollouts(rollouts)
        # No action led to the very first row: it has the first output, which the learner ignores.
        action = rollouts[0][0][1][0]
        assert torch.equal(action[0], action[1])
        done = torch.cat([item[0][0][2][1:, 0] for item in rollouts])
        assert done.nonzero().flatten().tolist() == [6, 13, 21, 28, 35]
        truncated = torch.cat([item[0][0][6][1:, 0] for item in rollouts])
        assert truncated.nonzero().flatten().tolist() == [20]
        # Full games last two training episodes; counts go on across the first one's end.
        steps = torch.cat([item[0][0][4][1:, 0] for item in rollouts])
        assert steps[:16].tolist() == [*range(1, 15), 1, 2]
        assert all(item[0][0][3].eq(4).all() for item in rollouts)
        returns = torch.cat([item[0][0][5][1:, 0] for item in rollouts])
        rewards = torch.cat([item[0][0][1][1:, 0] for item in rollouts])
        assert returns[13] == rewards[:14].sum()
    assert pool.error is None
    assert pool.pool.count() >= 8 * envs * T


def test_old_gym_environments_are_stepped_and_nests_keep_their_structure(start_server):
    address, _ = start_server("old")
    with Pool([address]) as pool:
        (env_output, _), _ = next(pool.queue)
        (following, _), _ = next(pool.queue)
    observation, done = env_output[0], env_output[2]
    assert done[:, 0].tolist() == [False, False, False, True, False, False]
    # The second episode is cut off, and another one starts a step later.
    assert not env_output[6].any()
    assert following[6][:, 0].tolist() == [False, True, False, False, False, True]
    assert following[2][:, 0].tolist() == [False, False, True, False, False, False]
    assert observation["a"][1][:, 0].tolist() == [0, 1, 2, 0, 1, 2]
    assert observation["a"][0].dtype == torch.bool
    assert observation["b"].shape == (T + 1, 1, 3, 2)
    assert observation["b"].dtype == torch.float64
    assert observation["b"][1, 0].tolist() == [[1, 4], [2, 5], [3, 6]]


def test_agent_state_is_carried_from_step_to_step(start_server):
    address, _ = start_server()
    with Pool([address], envs=2, state=(torch.zeros(1, 1, 3),)) as pool:
        items = [next(pool.queue) for _ in range(6)]
    # The state before the first row of a rollout: as many steps as were made before it.
    for i, (_, state) in enumerate(items):
        assert state[0].tolist() == [[[float(T * (i // 2))] * 3]]


def test_a_new_server_begins_with_the_initial_agent_state(start_server):
    address, process = start_server()
    with Pool([address], state=(torch.zeros(1, 1, 3),)) as pool:
        next(pool.queue)
        assert next(pool.queue)[1][0].any()
        process.kill()
        process.join()
        start_server()
        wait_until(lambda: not next(pool.queue)[1][0].any(), 60)


@pytest.mark.parametrize(
    ("environments", "message"),
    [
        (["A", "B"], None),
        (["B", "A"], "it serves B, this run needs A there; give both sides the same flags"),
        (["B"], "it serves game 1 of its list, this run has 1, counted from 0"),
    ],
)
def test_a_server_of_other_environments_is_refused(start_server, environments, message):
    address, _ = start_server(task=1, environment="B")
    silent, _ = start_server(task=0, name="silent")
    with Pool([address, silent], environments=environments) as pool:
        if message is None:
            wait_for_task(pool, 0)
            wait_for_task(pool, 1)
        else:
            wait_until(lambda: pool.error is not None)
    assert message is None or f"{address}: {message}" in str(pool.error)


def test_an_environment_that_exits_ends_its_server(start_server):
    address, server = start_server(exit_at=3)
    with Pool([address], connect_timeout_s=60):
        server.join(timeout=30)
        assert server.exitcode == 3


def wait_for_task(pool, task):
    """Waits for a rollout of the game ``task``."""
    wait_until(lambda: next(pool.queue)[0][0][3][0, 0] == task, 60)


def wait_for_sockets(directory, *names):
    """Waits for servers that start: their imports would take most of a short connect timeout."""
    for name in names:
        wait_until((directory / name).exists, 60)


def test_a_lost_server_may_stay_away_while_another_one_answers(start_server, tmp_path, caplog):
    (first, _), (second, process) = (start_server(task=i, name=f"s{i}") for i in range(2))
    wait_for_sockets(tmp_path, "s0", "s1")
    with Pool([first, second], queue_size=2, connect_timeout_s=4, num_threads=2) as pool:
        wait_for_task(pool, 1)
        process.kill()
        process.join()
        wait_until(lambda: next(pool.queue) and f"{second}: still away: " in caplog.text, 60)
        assert pool.error is None
        start_server(task=1, name="s1")
        wait_for_task(pool, 1)
    assert pool.error is None


def test_a_stream_follows_its_server_to_another_address(start_server):
    first, process = start_server(task=1, name="first")
    with Pool(["", ""], connect_timeout_s=60) as pool:
        assert pool.pool.count() == 0
        pool.pool.set_address(0, first)
        assert next(pool.queue)[0][0][3][0, 0] == 1
        process.kill()
        second, _ = start_server(task=2, name="second")
        pool.pool.set_address(0, second)
        wait_for_task(pool, 2)
    assert pool.error is None


def test_when_all_servers_stay_away_the_pool_ends(start_server, tmp_path):
    servers = [start_server(name=f"s{i}") for i in range(2)]
    wait_for_sockets(tmp_path, "s0", "s1")
    with Pool([address for address, _ in servers], connect_timeout_s=5) as pool:
        for _ in range(4):
            next(pool.queue)
        for _, process in servers:
            process.kill()
        assert "No environment server answered at" in pool.wait_for_error()


def test_failing_environment_ends_the_pool_with_its_traceback(start_server):
    address, _ = start_server(
        task=5, bad_at=3, bad={"text": "broken environment", "error": KeyError}
    )
    with Pool([address], max_environment_failures=2) as pool:
        message = pool.wait_for_error()
    assert f"Environment 0 of {address} (game 5) failed at its step 4" in message
    assert ", 2 times within 600 s: KeyError: 'broken environment'\n" in message
    assert "in step" in message


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"reward": float("nan")}, "its reward is nan"),
        ({"reward": None}, "its reward is None, which is no number"),
        ({"reward": 3e38, "at": 2}, "its return is"),
        ({"truncated": 0}, "its step() returned 0 for `truncated`, which is no bool"),
        ({"truncated": np.int64(3)}, "for `truncated`, which is no bool"),
        (
            {"frame": np.zeros((4, 2, 3), np.float32)},
            r"its observation is float32[4, 2, 3], the first one was uint8[4, 2, 3]",
        ),
        ({"text": "é" * 2000 + "\ud800"}, "é" * 2000 + "\\ud800"),
        ({"text": "of its own", "error": asyncio.CancelledError}, "CancelledError: of its own"),
    ],
)
def test_what_an_environment_must_not_do_is_named(start_server, bad, message):
    address, _ = start_server(task=2, bad_at=bad.get("at", 3), bad=bad)
    with Pool([address], 2, max_environment_failures=1) as pool:
        error = pool.wait_for_error()
    assert f"Environment 0 of {address} (game 2) failed at its step 4" in error
    assert message in error


def test_another_users_socket_is_not_connected_to(tmp_path):
    with socket.socket(socket.AF_UNIX) as squatter:
        squatter.bind(str(tmp_path / "server"))
        squatter.listen()
        try:
            os.chown(tmp_path / "server", 12345, -1)
        except OSError:  # Not root, or one without this user.
            pytest.skip("cannot give a file away")
        (tmp_path / "mine").symlink_to("server")
        (tmp_path / "theirs").symlink_to("server")
        os.chown(tmp_path / "theirs", 12345, -1, follow_symlinks=False)
        for name in ("server", "mine"):
            with Pool([f"unix:{tmp_path}/{name}"]) as pool:
                assert "belongs to user 12345, not to user 0" in pool.wait_for_error()
        os.chown(tmp_path / "server", 0, -1)
        with Pool([f"unix:{tmp_path}/theirs"]) as pool:
            assert "belongs to user 12345, not to user 0" in pool.wait_for_error()


def test_a_socket_is_not_connected_to_before_it_is_there(start_server, tmp_path):
    with Pool([f"unix:{tmp_path}/missing"], connect_timeout_s=1) as pool:
        assert "within 1 s: there is no such socket" in pool.wait_for_error()
    with Pool([f"unix:{tmp_path}/late"]) as pool:
        start_server(task=1, name="late")
        wait_for_task(pool, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"addresses": []}, "No environment server addresses"),
        ({"addresses": ["192.0.2.1:4000"]}, "without TLS"),
        ({"environments_per_stream": [1, 2]}, "one number per address"),
        ({"connect_timeout_s": float("nan")}, "connect_timeout_s must be >= 0"),
        ({"unroll_length": 2**62 - 1}, "unroll_length must be from 1 to 1048576"),
        ({"max_environment_failures": 0}, "max_environment_failures must be from 1"),
        ({"tls": ["certificate", "key"]}, "tls must be"),
        ({"tls": ["", "", ""]}, "tls must be"),
        ({"tls_server_name": "here"}, "tls_server_name needs tls"),
        ({"num_threads": 0}, "num_threads must be >= 1"),
        ({"batch_dim": 0}, "The learner queue must have batch_dim 1"),
    ],
)
def test_wrong_options_are_refused(options, message):
    options = {"unroll_length": 1, "addresses": ["unix:/tmp/x"], **options}
    unroll_length, addresses = options.pop("unroll_length"), options.pop("addresses")
    queue = BatchingQueue(options.pop("batch_dim", 1))
    with pytest.raises(ValueError, match=message):
        ActorPool(unroll_length, queue, DynamicBatcher(), addresses, (), **options)
