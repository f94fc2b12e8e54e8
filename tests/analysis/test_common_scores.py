from tests.analysis.written_runs import find, write_run, write_table
from torchbeast.records.scores import SCORE_FIELDS


def test_returns_are_the_last_records_at_the_same_steps_or_hours(savedir):
    common = find(savedir)
    popart, clipped = common.groups
    assert common.common_range(common.groups) == (150, 200)
    assert common.sample_points(popart, 9).tolist() == [100, 200]
    assert common.sample_points(clipped, 1).tolist() == [150]
    assert common.returns_at(popart, "Pong", 200).tolist() == [-3.05, 14.6]
    assert common.returns_at(clipped, "Pong", 200).tolist() == [-20.7]
    # Evaluations come a little behind a multiple of steps.
    assert common.returns_at(clipped, "Pong", 249).tolist() == [14.6]
    by_hours = find(savedir, "hours")
    assert by_hours.common_range(common.groups) == (0.2, 0.3)
    assert by_hours.returns_at(popart, "Pong", 0.3).tolist() == [14.6, -20.7]


def test_a_run_that_lacks_a_game_counts_in_no_normalised_score(savedir):
    rows = [(200, 720, "", 1.7), (300, 1080, 14.6, 30.5)]
    flags = {"total_steps": 300, "use_popart": True}
    write_run(savedir / "popart-3", rows, seed=3, xpid="popart-3", **flags)
    common = find(savedir, names=[f"popart-{seed}" for seed in (1, 2, 3)])
    (popart,) = common.groups
    assert len(common.returns_at(popart, "Breakout", 200)) == 3
    pong, breakout = common.normalized(popart, ["Pong", "Breakout"], 200)
    assert pong.tolist() == [0.5, 1]
    assert breakout.tolist() == [0, 1]
    assert len(common.normalized(popart, ["Breakout"], 200)[0]) == 3


def evaluate(savedir, *names):
    for name in names:
        rows = [
            (step, 10 * step, game, policy, 5, mean, 0, 0, 0, 100, "")
            for step in (100, 201)
            for game in ("Pong", "Breakout")
            for policy, mean in (("greedy", 20 + step), ("sampled", 10 + step))
        ]
        # The last evaluation was interrupted after one game and a part of a row.
        rows += [(300, 3000, "Pong", "sampled", 5, 1000, 0, 0, 0, 100, ""), (300, 3000, "Brea")]
        write_table(savedir / name / "scores.csv", SCORE_FIELDS, *rows)


def test_evaluations_are_compared_where_every_run_has_them(savedir):
    evaluate(savedir, "popart-1", "popart-2")
    assert find(savedir).table == "logs.csv"
    evaluate(savedir, "clipped")
    common = find(savedir)
    assert common.table == "scores.csv"
    assert common.common_range(common.groups) == (100, 201)
    assert common.returns_at(common.groups[1], "Pong", 200).tolist() == [211]
    assert find(savedir, table="logs.csv").returns_at(common.groups[1], "Pong", 200).size == 1
