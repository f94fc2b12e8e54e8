import pytest

from torchbeast.core.divergence import MAX_SKIPPED_IN_A_ROW, SkippedUpdates, describe_fault
from torchbeast.core.stats import BatchStats
from torchbeast.core.types import RunError

NUMBERS = dict.fromkeys(BatchStats._fields[:8], 0.0)


def make_stats(faulty_steps):
    return BatchStats(
        **NUMBERS,
        games=[],
        task_steps=[4, 4],
        task_grad_norms={},
        task_entropies={},
        faulty_steps=faulty_steps,
    )


@pytest.mark.parametrize(
    ("faulty_steps", "gradients", "text"),
    [
        ([0, 3], ["policy.bias"], "the loss of B; the gradients of policy.bias"),
        ([0, 0], list("abcde"), "the gradients of a, b, c and 2 more"),
        ([1, 1], [], "the loss of A, B"),
        ([0, 0], [], "the sum of the losses or the norm of the gradient"),
    ],
)
def test_a_fault_names_games_and_tensors(faulty_steps, gradients, text):
    assert describe_fault(make_stats(faulty_steps), ["A", "B"], gradients) == text


def test_a_run_diverges_by_skipped_updates_in_a_row():
    skipped = SkippedUpdates()
    for _ in range(2):
        for _ in range(MAX_SKIPPED_IN_A_ROW - 1):
            skipped.record("the loss of A", step=7)
        skipped.record(None, step=8)
    assert skipped.total == 2 * (MAX_SKIPPED_IN_A_ROW - 1)
    for step in range(MAX_SKIPPED_IN_A_ROW - 1):
        skipped.record("the loss of A", step)
    assert not skipped.is_diverged
    with pytest.raises(RunError, match=r"at step 1,234 \(the loss of A\)"):
        skipped.record("the loss of A", step=1234)
    assert skipped.is_diverged
