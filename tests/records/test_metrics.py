import pytest

from torchbeast.records.metrics import log_fields, log_row, snapshot_scalars, step_scalars

NAMES = ["Pong", "Breakout"]


@pytest.mark.parametrize("use_popart", [False, True])
@pytest.mark.parametrize("names", [NAMES, NAMES[:1]])
def test_a_row_has_every_column(make_game, make_snapshot, names, use_popart):
    popart = {"mu": 0.5, "sigma": 2.0} if use_popart else {}
    row = log_row(make_snapshot(*(make_game(name, **popart) for name in names)))
    assert sorted(row) == sorted(log_fields(names, use_popart))
    assert ("mu/Pong" in row) == use_popart


def test_losses_are_means_per_step_and_the_entropy_is_positive(make_stats):
    stats = make_stats(
        40, task_steps=[12, 8], task_grad_norms={1: 7.0}, task_entropies={0: 1.0, 1: 2.25}
    )
    scalars = step_scalars(stats, NAMES)
    assert scalars["losses/policy_loss"] == 40.0 / 20
    assert (scalars["losses/value_loss"], scalars["losses/entropy"]) == (0.25, 1.5)
    assert scalars["losses/grad_norm/Breakout"] == 7.0
    assert (scalars["losses/entropy/Pong"], scalars["losses/entropy/Breakout"]) == (1.0, 2.25)


def test_a_batch_in_which_no_transition_is_a_step_has_scalars(make_stats):
    stats = make_stats(0, task_steps=[0, 0], pg_loss=0.0)
    assert step_scalars(stats, NAMES)["losses/policy_loss"] == 0.0


def test_what_is_not_known_is_left_out(make_game, make_snapshot):
    games = (make_game("Pong", human=0.2, mu=1.0, sigma=2.0), make_game("Carnival"))
    scalars = snapshot_scalars(make_snapshot(*games))
    assert scalars == {
        "charts/SPS": 1413.0,
        "queues/learner": 1,
        "queues/inference": 0,
        "charts/human_normalized_median": 0.2,
        "charts/human_normalized/Pong": 0.2,
        "popart/mu/Pong": 1.0,
        "popart/sigma/Pong": 2.0,
    }
