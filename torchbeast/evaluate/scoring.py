"""``--mode test``: how good is a trained agent?"""

from __future__ import annotations

import json
import statistics
from typing import Any

from torchbeast.envs.games import short_name
from torchbeast.envs.scores import human_normalized
from torchbeast.evaluate.actions import read_actions
from torchbeast.evaluate.config import EvaluationConfig
from torchbeast.evaluate.playing import Episode, choose_games, load_trained, play


def summarize(episodes: list[Episode]) -> dict[str, Any]:
    """Statistics of one game's full-game returns."""
    returns = [episode.episode_return for episode in episodes]
    mean = statistics.fmean(returns)
    return {
        "env": episodes[0].env,
        "episodes": len(returns),
        "mean": mean,
        "std": statistics.pstdev(returns),
        "min": min(returns),
        "max": max(returns),
        "mean_steps": statistics.fmean(e.episode_step for e in episodes),
        "human_normalized": human_normalized(episodes[0].env, mean),
    }


def run_test(config: EvaluationConfig) -> None:
    """``--mode test``: plays full games with a trained agent, by default on the games it knows.

    Prints a line per episode, ``xpid,model id,env,steps,return``, and a table; with ``--json`` one
    JSON document instead. An agent with PopArt has no value head for other games, but its policy is
    one for all, so those can be played, too.
    """
    trained = load_trained(config.trained)
    games = choose_games(trained, config.env)
    actions = read_actions(config.actions, trained.agent.config.num_actions)
    summaries = []
    for game in games:
        episodes = []
        for episode in play(
            trained,
            game,
            config.num_episodes,
            greedy=config.greedy,
            seed=config.seed,
            actions=actions,
        ):
            episodes.append(episode)
            if not config.json:
                values = (game, episode.episode_step, f"{episode.episode_return:g}")
                print(trained.xpid, trained.model_id, *values, sep=",", flush=True)
        summaries.append(summarize(episodes))
    if config.json:
        facts = {
            "xpid": trained.xpid,
            "model": trained.model_id,
            **trained.observation._asdict(),
            "greedy": config.greedy,
            "seed": config.seed,
        }
        print(json.dumps({**facts, "games": summaries}, indent=2))
    else:
        print(format_table(summaries))


def format_table(summaries: list[dict[str, Any]]) -> str:
    """One row per game."""
    width = max(4, *(len(short_name(summary["env"])) for summary in summaries))
    columns = ("games", "mean", "std", "min", "max", "steps", "human")
    lines = [f"{'game':{width}}" + "".join(f"{name:>10}" for name in columns)]
    for s in summaries:
        human = s["human_normalized"]
        lines.append(
            f"{short_name(s['env']):{width}}{s['episodes']:10}{s['mean']:10.2f}{s['std']:10.2f}"
            f"{s['min']:10g}{s['max']:10g}{s['mean_steps']:10.0f}"
            + (f"{'-':>10}" if human is None else f"{human:10.0%}")
        )
    lines.append("human: 0% plays like a random agent, 100% like a professional games tester")
    return "\n".join(lines)
