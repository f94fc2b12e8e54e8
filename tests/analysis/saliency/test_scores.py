import numpy as np
import pytest
import torch
from scipy.special import log_softmax, softmax

from torchbeast.analysis.saliency import Outputs, Subject, parse_scores
from torchbeast.analysis.saliency.maps import specific_change
from torchbeast.core.types import UsageError

SUBJECT = Subject(
    action_names=("NOOP", "FIRE", "UP"),
    tasks=("PongNoFrameskip-v4", "BreakoutNoFrameskip-v4"),
    head=1,
    has_heads=True,
    value_unit="sigma²/2",
)


def parse(text):
    (score,) = parse_scores([text], SUBJECT)
    return score


def outputs(**changes):
    before = {
        "logits": np.array([1.0, 0.5, -1.0], np.float32),
        "values": np.array([10.0, 20.0], np.float32),
        "normalized_values": np.array([1.0, 2.0], np.float32),
        "masked_logits": np.array([[[1.0, 0.5, -1.0]]], np.float32),
        "masked_normalized_values": np.array([[[1.0, 2.0]]], np.float32),
    }
    return Outputs(**{**before, **{k: np.array(v, np.float32) for k, v in changes.items()}})


def test_policy_is_half_the_squared_change_of_the_logits():
    changed = outputs(masked_logits=[[[1.0, 0.5, 1.0], [0.0, 0.5, -1.0]]])
    assert parse("policy")(changed, 0) == pytest.approx(np.array([[2.0, 0.5]]))


def test_values_are_in_units_of_sigma_and_of_the_head_that_was_asked_for():
    changed = outputs(masked_normalized_values=[[[4.0, 3.0]]])
    assert parse("value")(changed, 0) == pytest.approx(np.array([[0.5]]))
    assert parse("task:Pong")(changed, 0) == pytest.approx(np.array([[4.5]]))
    assert parse("task:breakout")(changed, 0) == pytest.approx(np.array([[0.5]]))


def test_an_actions_score_follows_the_papers_formula():
    before, after = np.array([1.0, 0.5, -1.0]), np.array([0.0, 0.7, -1.1])
    drop = softmax(before)[0] - softmax(after)[0]
    p, q = softmax(after[1:]), log_softmax(before[1:])
    specific = 1 / (1 + (p * (np.log(p) - q)).sum())
    expected = 2 * drop * specific / (drop + specific)
    found = specific_change(torch.from_numpy(before), torch.from_numpy(after[None]), 0)
    assert found.item() == pytest.approx(expected)


def test_two_names_of_one_score_are_one_score():
    texts = ["action", "action:chosen", "action:up", "action:UP", "value"]
    names = [score.name for score in parse_scores(texts, SUBJECT)]
    assert names == ["action:chosen", "action:UP", "value"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("policies", "choose policy, value, action"),
        ("action:JUMP", "the actions are NOOP, FIRE, UP"),
        ("task:Qbert", "the agent knows Pong, Breakout"),
    ],
)
def test_what_the_agent_does_not_have_is_named(text, message):
    with pytest.raises(UsageError, match=message):
        parse(text)
