import functools
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tests import checkpoints
from torchbeast.analysis import analyze_resnet, filter_comp, filter_plots, filters
from torchbeast.analysis.filter_agents import RunAgent, find_agents
from torchbeast.models import AgentConfig, make_agent
from torchbeast.records import checkpoint, run_files
from torchbeast.records.csv_tables import Table

PONG, BREAKOUT = "PongNoFrameskip-v4", "BreakoutNoFrameskip-v4"


def save_agent(path, steps, seed=0, **config):
    torch.manual_seed(seed)
    for step in steps:
        agent = make_agent(AgentConfig(**config))
        checkpoints.save_agent(run_files.model_path(path, step), agent, steps=step)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    path = tmp_path_factory.mktemp("models")
    save_agent(path / "Pong", (100, 200, 300))
    save_agent(path / "Breakout", (100, 200), seed=1, tasks=(BREAKOUT,), num_actions=4)
    multi = {"tasks": (PONG, BREAKOUT), "num_actions": 18, "use_popart": True}
    save_agent(path / "Both", (100, 250), seed=2, **multi)
    # 2019: no description of the agent, the meta data tell; statistics also without PopArt.
    old = make_agent(AgentConfig(tasks=(PONG, BREAKOUT), num_actions=18)).state_dict()
    old |= {"baseline.mu": torch.zeros(1), "baseline.sigma": torch.ones(1)}
    (path / "MultiTask").mkdir()
    torch.save({"model_state_dict": old}, path / "MultiTask" / "model.tar")
    (path / "MultiTask" / "meta.json").write_text(
        json.dumps({"args": {"env": f"{PONG},{BREAKOUT}"}})
    )
    # What must not stop the rest.
    save_agent(path / "Shallow", (100,), agent_type="atari")
    (path / "Empty").mkdir()
    (path / "NoRows").mkdir()
    (path / "NoRows" / "filter_comp.csv").write_text("comparison\n")
    (path / "Pong" / "intermediate" / "model.best.tar").write_text("a copy under a name of its own")
    (path / "Corrupt" / "intermediate").mkdir(parents=True)
    (path / "Corrupt" / "intermediate" / "model.000000100.tar").write_text("nonsense")
    return path


def run(*arguments):
    return analyze_resnet.main([*map(str, arguments)])


def read(path):
    return Table(path / "filter_comp.csv").rows


@pytest.fixture(scope="module")
def results(directory, tmp_path_factory):
    path = tmp_path_factory.mktemp("results")
    few = functools.partial(filters.match_weights, starts=2)  # Many make it better, and slow.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(filters, "match_weights", few)
        assert run("--model_load_path", directory, "--comp_num_models=2", "--save_dir", path) == 0
    return path


def test_finds_agents_by_what_they_are_and_names_what_it_leaves_out(
    directory, tmp_path, caplog, capsys
):
    assert run("--load_path", directory, "--comp_between", "single_multi", "--save_dir", tmp_path,
               "--comp_no_optimal") == 0  # fmt: skip
    out = capsys.readouterr().out
    for line in ("Pong: single, 3", "Both: multipop, 2", "MultiTask: multi, 1"):
        assert line in out
    left_out = [r.getMessage() for r in caplog.records]
    assert any("Shallow is left out: it is no ResNet" in m for m in left_out)
    assert any("Empty is left out: there is no checkpoint" in m for m in left_out)
    assert any("Corrupt is left out" in m for m in left_out)
    assert {(row["agent_a"], row["agent_b"]) for row in read(tmp_path)} == {
        ("Pong", "MultiTask"),
        ("Breakout", "MultiTask"),
    }


def test_compares_all_pairs_in_all_layers(results):
    rows = read(results)
    pairs = {(r["comparison"], r["agent_a"], r["agent_b"], r["step_a"], r["step_b"]) for r in rows}
    assert ("single_multipop", "Pong", "Both", "300", "250") in pairs
    assert ("multi_multipop", "MultiTask", "Both", "0", "250") in pairs
    assert ("time_steps", "Pong", "Pong", "100", "300") in pairs
    assert len(rows) == len(pairs) * 15 * 3
    value = {(r["match"], *p): 0.0 for r in rows for p in pairs}
    for r in rows:
        key = (r["comparison"], r["agent_a"], r["agent_b"], r["step_a"], r["step_b"])
        value[(r["match"], *key)] += float(r["sum"])
    for pair in pairs:
        assert value[("optimal", *pair)] <= value[("default", *pair)]
        assert value[("rebasin", *pair)] <= value[("default", *pair)]


def test_controls_are_agents_of_the_same_games_and_untrained_networks(tmp_path):
    models, path = tmp_path / "models", tmp_path / "results"
    save_agent(models / "Pong", (100, 200))
    save_agent(models / "Pong-s2", (100, 200), seed=1)
    save_agent(models / "Breakout", (100, 200), seed=2, tasks=(BREAKOUT,), num_actions=4)
    kinds = ("single_single", "same_games", "untrained")
    assert run("--load_path", models, "--save_dir", path, "--comp_between", *kinds, "--metric",
               "default", "cka", "--cka_frames=8") == 0  # fmt: skip
    rows = read(path)
    same = {(r["agent_a"], r["agent_b"]) for r in rows if r["comparison"] == "same_games"}
    assert same == {("Pong", "Pong-s2")}
    untrained = [row for row in rows if row["comparison"] == "untrained"]
    pairs = {(r["agent_a"], r["agent_b"], r["step_a"], r["step_b"]) for r in untrained}
    assert pairs == {
        (f"untrained{a}", f"untrained{b}", "0", "0") for a, b in ((0, 1), (0, 2), (1, 2))
    }
    # Other seeds: the weights have nothing in common.
    distances = [float(r["relative"]) for r in untrained if r["match"] == "default"]
    assert np.mean(distances) == pytest.approx(1, abs=0.1)


def test_each_figure_is_drawn(results, capsys):
    assert run("--mode=filter_comp_plot", "--save_dir", results, "--save_figures", "--hide_plots",
               "--plot_heatmaps", "--plot_match_type=rebasin") == 0  # fmt: skip
    paths = capsys.readouterr().out.split()
    assert len(paths) == 5
    assert run("--mode=filter_comp_plot", "--load_path", results, "--save_figures",
               "--hide_plots", "--plot_summary") == 0  # fmt: skip
    paths += capsys.readouterr().out.split()
    assert paths[-1] == str(results / "summary_relative.png")
    for path in paths:
        with Image.open(path) as picture:
            assert np.asarray(picture.convert("L")).std() > 5


def test_a_summary_has_a_point_for_each_pair_at_the_end_of_training(results):
    rows = filter_comp.load(results)
    figure = filter_plots.summarize(rows, "relative")
    (panel,) = (p for p in figure.axes if p.get_title() == "distance (default, relative)")
    drawn = sorted(float(line.get_xdata()[0]) for line in panel.lines)
    ends = {}
    for row in rows:
        if row.match == "default":
            steps, pair = (row.step_a, row.step_b), (row.comparison, row.agent_a, row.agent_b)
            ends.setdefault(pair, {}).setdefault(steps, []).append(row.relative)
    assert drawn == pytest.approx(
        sorted(np.mean(by_steps[max(by_steps)]) for by_steps in ends.values())
    )
    kinds = [label.get_text() for label in panel.get_yticklabels()]
    assert kinds[:2] == ["one game each", "one game, several games"]
    assert kinds[-1] == "control: one checkpoint earlier"


def test_filters_are_drawn_as_a_sheet(directory, tmp_path, capsys):
    path = run_files.model_path(directory / "Pong", 300)
    for extra, name in (([], "feat_conv0"), (["--filter=3", "--layer=14"], "resnet2_2_3_3")):
        assert run("--mode=filter_vis", "--load_path", path, "--save_dir", tmp_path, *extra) == 0
        with Image.open(tmp_path / f"{name}.png") as picture:
            assert min(picture.size) >= 168


def test_the_filters_of_two_checkpoints_are_compared_one_by_one(directory, tmp_path, capsys):
    a, b = (run_files.model_path(directory / "Pong", step) for step in (100, 200))
    assert run("--mode=_filter_comp", "--load_path", a, "--other", b, "--layer=feat_conv0",
               "--save_dir", tmp_path) == 0  # fmt: skip
    table = np.load(capsys.readouterr().out.split()[-1])["distances"]
    one, other = (
        filters.read_weights(checkpoint.load(path)["model_state_dict"])["feat_conv0"]
        for path in (a, b)
    )
    assert table[3, 5] == pytest.approx(np.square(one[3] - other[5]).sum(), rel=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--load_path=/nowhere"], "/nowhere is not a directory"),
        (["--mode=filter_comp_plot", "--load_path=/nowhere"], "run --mode filter_comp first"),
        (["--models=Pong"], "--models wants name=directory"),
        (["--load_path={}", "--models=Pong=Pong,B=Nope"], "--models: B: there is no checkpoint in"),
        (["--mode=filter_comp_plot", "--plot_summary", "--save_dir={}/NoRows"], "has no rows"),
        (["--mode=filter_vis", "--load_path=/nowhere"], "No checkpoint at"),
        (
            ["--load_path={}", "--models=Pong=Pong", "--comp_between", "single_single"],
            "nothing to compare among Pong (single)",
        ),
    ],
)
def test_wrong_input_is_one_line(directory, capsys, arguments, message):
    try:
        code = run(*(argument.format(directory) for argument in arguments))
    except SystemExit as exit_:
        code = exit_.code
    assert code == 2
    assert message in capsys.readouterr().err.splitlines()[-1]


def test_flags_of_another_mode_are_named(tmp_path, caplog):
    arguments = ["--mode=filter_comp_plot", "--load_path", tmp_path, "--plot_heatmaps", "--layer=1"]
    assert run(*arguments) == 2
    assert "--layer has no effect in --mode filter_comp_plot" in caplog.text
    assert "--plot_heatmaps" not in caplog.text


@pytest.mark.parametrize(
    ("a", "b", "count", "match_steps", "expected"),
    [
        # As far in training each: the thirds of both.
        (range(10, 51, 10), range(20, 101, 20), 3, False, [(10, 20), (30, 60), (50, 100)]),
        # The last one of a run that was stopped just after a copy.
        ((10, 20, 30, 32), range(20, 61, 20), 9, False, [(10, 20), (20, 40), (32, 60)]),
        # Nearest steps, up to the last one of the shorter training.
        (range(10, 51, 10), range(20, 101, 20), 3, True, [(10, 20), (30, 20), (50, 40)]),
    ],
)
def test_steps_of_two_agents_are_chosen_evenly(a, b, count, match_steps, expected):
    a, b = (RunAgent(n, "single", dict.fromkeys(s, Path())) for n, s in (("a", a), ("b", b)))
    assert filter_comp.choose_steps(a, b, count, match_steps=match_steps) == expected


def test_the_newest_checkpoint_of_a_run_counts_beside_its_copies(tmp_path):
    save_agent(tmp_path / "a", (10, 20, 30))
    for steps, expected in ((30, [10, 20, 30]), (35, [10, 20, 30, 35])):
        contents = checkpoint.load(run_files.model_path(tmp_path / "a", 30))
        checkpoint.save(tmp_path / "a" / "model.tar", {**contents, "steps": steps})
        (agent,) = find_agents(tmp_path)
        assert list(agent.checkpoints) == expected


def test_agents_that_began_alike_are_told_from_others(tmp_path):
    for i, (name, seed) in enumerate((("a", 1), ("b", 1), ("c", 2), ("old", None))):
        save_agent(tmp_path / name, (10, 20), seed=i)
        if seed is not None:
            (tmp_path / name / "meta.json").write_text(json.dumps({"seed": seed}))
    pairs = filter_comp.make_pairs(find_agents(tmp_path), ["single_single"], 1)
    assert {pair.a.agent + pair.b.agent: pair.seeds for pair in pairs} == {
        "ab": "same",
        **dict.fromkeys(("ac", "bc", "aold", "bold", "cold"), "other"),
    }
