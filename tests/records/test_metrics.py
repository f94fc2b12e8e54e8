import pytest

from torchbeast.core.stats import FinishedGame
from torchbeast.records.metrics import episode_scalars, log_fields, log_row, snapshot_scalars

NAMES = ["Pong", "Breakout"]


@pytest.mark.parametrize("use_popart", [False, True])
@pytest.mark.parametrize("names", [NAMES, NAMES[:1]])
def test_a_row_has_every_column(make_game, make_snapshot, names, use_popart):
    popart = {"mu": 0.5, "sigma": 2.0} if use_popart else {}
    row = log_row(make_snapshot(*(make_game(name, **popart) for name in names)))
    assert sorted(row) == sorted(log_fields(names, use_popart))
    assert ("mu/Pong" in row) == use_popart


def test_finished_games_have_mean_return_and_length_under_their_own_names():
    ended = [FinishedGame(1, 30.5, 700), FinishedGame(0, -21.0, 90), FinishedGame(1, 10.5, 300)]
    assert episode_scalars(ended, NAMES) == {
        "charts/episodic_return/Breakout": 20.5,
        "charts/episodic_length/Breakout": 500,
        "charts/episodic_return/Pong": -21.0,
        "charts/episodic_length/Pong": 90,
    }


def test_losses_are_means_per_step(make_game, make_snapshot, make_stats):
    games = (make_game("Pong", entropy=1.0), make_game("Breakout", entropy=2.25))
    snapshot = make_snapshot(*games, last=make_stats(40, task_steps=[12, 8]))
    scalars = snapshot_scalars(snapshot)
    assert scalars["losses/policy_loss"] == 40.0 / 20
    assert (scalars["losses/value_loss"], scalars["losses/entropy"]) == (0.25, 1.5)
    assert (scalars["losses/entropy/Pong"], scalars["losses/entropy/Breakout"]) == (1.0, 2.25)


def test_a_batch_in_which_no_transition_is_a_step_has_scalars(make_game, make_snapshot, make_stats):
    last = make_stats(0, task_steps=[0, 0], pg_loss=0.0)
    assert snapshot_scalars(make_snapshot(make_game(), last=last))["losses/policy_loss"] == 0.0


def test_what_is_not_known_is_left_out(make_game, make_snapshot):
    scalars = snapshot_scalars(make_snapshot(make_game("Pong", human=0.2), make_game("Carnival")))
    assert scalars["charts/human_normalized/Pong"] == 0.2
    unknown = ("charts/human_normalized/Carnival", "popart/mu/Pong", "popart/sigma/Pong")
    assert not scalars.keys() & set(unknown)


def test_one_game_has_no_losses_apart(make_game, make_snapshot):
    scalars = snapshot_scalars(make_snapshot(make_game("Pong", entropy=1.0, mu=1.0, sigma=2.0)))
    assert "losses/entropy/Pong" not in scalars
    assert (scalars["popart/mu/Pong"], scalars["popart/sigma/Pong"]) == (1.0, 2.0)
