import copy
import itertools
import json
import math

import pytest
import torch

from torchbeast.core.types import UsageError
from torchbeast.records import checkpoint
from torchbeast.train import make_plan
from torchbeast.train.start import check_resumable, make_learner, resume_or_start

# What depends on the number of actions or games.
HEADS = ("policy", "baseline", "core", "cell", "query", "answer")


def make(plan, state):
    return make_learner(plan, state, lambda _: None, lambda: None)


def edit_args(run, **changes):
    """Makes a run one that was started with other flags; None: with a program that lacked them."""
    meta = json.loads((run / "meta.json").read_text())
    for name, value in changes.items():
        if value is None:
            del meta["args"][name]
        else:
            meta["args"][name] = value
    (run / "meta.json").write_text(json.dumps(meta))


def test_the_same_seed_makes_the_same_new_agent(make_config):
    setups = [make_plan(make_config(f"--seed={seed}")) for seed in (1, 1, 2)]
    first, same, other = (make(s, resume_or_start(s)).agent.state_dict() for s in setups)
    assert all(torch.equal(first[name], same[name]) for name in first)
    assert not torch.equal(first["policy.weight"], other["policy.weight"])


@pytest.mark.parametrize("network", ["atari", "resnet", "aaa"])
def test_encoders_of_the_same_seed_begin_alike_whatever_the_games(make_config, network):
    flags = [["--env=Pong"], ["--env=Pong,Breakout"], ["--env=Pong,Breakout", "--use_popart"]]
    if network != "aaa":  # It always has a memory.
        flags += [["--env=Pong", "--use_lstm"], ["--env=Pong,Breakout", "--use_lstm"]]
    if network != "atari":  # Measuring the games takes seconds.
        flags[2].append("--unit_statistics")
    setups = [make_plan(make_config(*games, f"--agent_type={network}")) for games in flags]
    agents = [make(plan, resume_or_start(plan)).agent for plan in setups]
    encoders = [
        {name: x for name, x in agent.named_parameters() if not name.startswith(HEADS)}
        for agent in agents
    ]
    assert len(encoders[0]) > 6
    for other in encoders[1:]:
        assert all(torch.equal(x, other[name]) for name, x in encoders[0].items())


def test_a_resumed_run_has_the_state_of_its_checkpoint(make_config, finished_run):
    saved = checkpoint.load(finished_run / "model.tar")
    config = make_config()._replace(seed=None)
    plan = make_plan(config)
    state = resume_or_start(plan)
    assert (state.steps, state.seed, state.changes) == (40, 5, ())
    learner = make(plan, state)
    assert (learner.steps, learner.learner_steps) == (40, saved["learner_steps"])
    weights = learner.agent.state_dict()
    assert all(torch.equal(weights[name], x) for name, x in saved["model_state_dict"].items())


def test_a_resumed_run_with_another_seed_draws_other_numbers(make_config, finished_run):
    states = []
    for seed in (5, 6, 7):
        plan = make_plan(make_config(f"--seed={seed}"))
        make(plan, resume_or_start(plan))
        states.append(torch.get_rng_state())
    assert all(not torch.equal(a, b) for a, b in itertools.combinations(states, 2))


def test_what_changed_since_the_checkpoint_is_told(make_config, finished_run):
    config = make_config("--reward_clipping=abs_one", "--num_episodes=3")
    assert resume_or_start(make_plan(config)).changes == ()  # Another way to say the same.
    config = make_config("--total_steps=80", "--cores=2", "--max_learner_queue_size=9", "--seed=6")
    assert set(resume_or_start(make_plan(config)).changes) == {
        "--total_steps 40 -> 80",
        "--cores 1 -> 2",
        "--max_learner_queue_size default -> 9",
        "--seed 5 -> 6",
    }


def test_a_flag_that_an_earlier_version_lacked_is_no_change(make_config, finished_run):
    edit_args(finished_run, cores=None, batch_size=4)
    state = resume_or_start(make_plan(make_config("--cores=2")))
    assert state.changes == ("--batch_size 4 -> 2",)
    (finished_run / "meta.json").unlink()
    assert resume_or_start(make_plan(make_config("--cores=2"))).changes == ()


def test_a_run_without_checkpoints_does_not_overwrite_one_that_has_them(make_config, finished_run):
    plan = make_plan(make_config("--disable_checkpoint"))
    with pytest.raises(UsageError, match="choose another --xpid, or leave out --disable_check"):
        resume_or_start(plan)
    (finished_run / "model.tar").unlink()
    assert resume_or_start(plan).checkpoint is None


def test_popart_may_change_its_step_while_a_run_is_stopped(make_config, finished_run):
    changed = ["--beta=0.1", "--beta_per=batch", "--sigma_floor=0"]
    plan = make_plan(make_config(*changed))
    state = resume_or_start(plan)
    assert state.steps == 40
    assert "--beta 1e-05 -> 0.1" in state.changes
    config = make_learner(plan, state, lambda _: None, lambda: None).agent.config
    assert (config.beta, config.beta_per, config.sigma_floor) == (0.1, "batch", 0)


def test_value_heads_say_nothing_beside_popart(make_config, tmp_path):
    plan = make_plan(make_config("--use_popart", "--unit_statistics"))
    other = make_plan(make_config("--use_popart", "--value_heads=game"))
    contents = make(plan, resume_or_start(plan)).state_dict()
    check_resumable(contents, tmp_path / "model.tar", other.agent, plan.config.observation)


def test_a_checkpoint_of_another_agent_is_refused(make_config, finished_run):
    plan = make_plan(make_config("--use_lstm", "--agent_type=resnet", "--beta=0.1"))
    changed = "another agent: agent_type atari -> resnet; use_lstm False -> True; repeat"
    with pytest.raises(UsageError, match=changed):
        resume_or_start(plan)


def test_a_checkpoint_of_an_agent_that_saw_other_pictures_is_refused(make_config, finished_run):
    contents = checkpoint.load(finished_run / "model.tar")
    checkpoint.save(finished_run / "model.tar", {**contents, "preprocessing": "machado"})
    with pytest.raises(UsageError, match="another agent: preprocessing machado -> deepmind"):
        resume_or_start(make_plan(make_config()))


@pytest.mark.parametrize("text", ["{", '{"args": {"env": 5}}'])
def test_a_damaged_meta_json_is_told_and_the_run_resumes(make_config, finished_run, caplog, text):
    (finished_run / "meta.json").write_text(text)
    state = resume_or_start(make_plan(make_config("--total_steps=80")))
    assert (state.steps, state.changes) == (40, ())
    assert "flags that changed since then are not listed" in caplog.text


def test_a_resumed_run_ignores_where_another_would_begin(make_config, finished_run, caplog):
    caplog.set_level("INFO")
    state = resume_or_start(make_plan(make_config("--init_from=no-such-run")))
    assert (state.steps, state.changes) == (40, ())
    assert caplog.text.count("--init_from is ignored") == 1


def files(run):
    return {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}


def remove(*keys):
    def change(contents):
        for key in keys[:-1]:
            contents = contents[key]
        del contents[keys[-1]]

    return change


def put(value, *keys):
    def change(contents):
        for key in keys[:-1]:
            contents = contents[key]
        contents[keys[-1]] = value

    return change


def test_the_message_names_the_weight_that_does_not_fit(make_config, change):
    change(remove("model_state_dict", "policy.weight"))
    with pytest.raises(UsageError, match=r'is damaged \(Missing key.*"policy.weight"'):
        resume_or_start(make_plan(make_config()))


def make_like_2019(contents):
    for name in set(contents) - {"model_state_dict", "optimizer_state_dict"}:
        del contents[name]


DAMAGE = {
    "weights of another shape": put(torch.zeros(3), "model_state_dict", "policy.bias"),
    "averages that are not finite": lambda contents: contents["optimizer_state_dict"]["state"][0][
        "square_avg"
    ].fill_(math.inf),
    "agent": put(7, "agent"),
    "steps": put(1.5, "steps"),
    "task_steps": put([1, 2], "task_steps"),
    "seed": put("5", "seed"),
    "optimizer": put([], "optimizer_state_dict"),
    "averages of another shape": put(
        torch.zeros(3), "optimizer_state_dict", "state", 0, "square_avg"
    ),
    "progress": put([], "progress"),
}


@pytest.fixture
def change(finished_run):
    """Changes the checkpoint of a finished run; returns its directory."""

    def apply(change_contents):
        path = finished_run / "model.tar"
        contents = copy.deepcopy(checkpoint.load(path))
        change_contents(contents)
        torch.save(contents, path)
        return finished_run

    return apply


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=list(DAMAGE))
def test_a_damaged_checkpoint_is_one_line_and_nothing_is_written(make_config, change, damage):
    run = change(damage)
    before = files(run)
    with pytest.raises(
        UsageError, match=r"is damaged .*: choose another one, or move it away to start anew"
    ) as error:
        resume_or_start(make_plan(make_config()))
    assert "\n" not in str(error.value)
    assert files(run) == before


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            remove("optimizer_state_dict"),
            "has no optimizer state, as shipped agents and checkpoints in intermediate/",
        ),
        (make_like_2019, "of the program of 2019; its optimizer state has another format"),
    ],
)
def test_what_holds_weights_alone_can_be_begun_from(make_config, change, damage, message):
    run = change(damage)
    with pytest.raises(UsageError, match=message + ".*--init_from .*model.tar") as error:
        resume_or_start(make_plan(make_config()))
    assert "\n" not in str(error.value)
    config = make_config("--xpid=other", f"--init_from={run / 'model.tar'}")
    state = resume_or_start(make_plan(config))
    assert state.initialisation.source.path == run / "model.tar"


def test_what_an_earlier_version_did_not_save_is_not_missed(make_config, change):
    def age(contents):
        for name in ("progress", "seed"):
            del contents[name]
        del contents["agent"]["lstm_reset"]

    change(age)
    assert resume_or_start(make_plan(make_config())).steps == 40
