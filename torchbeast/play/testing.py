"""``--mode test``: plays full games and averages their scores."""

from __future__ import annotations

import logging
import statistics
from collections.abc import Sequence
from typing import Any

from torchbeast.envs.games import short_name
from torchbeast.envs.human_scores import find_reference, human_normalized
from torchbeast.play.agents import Trained, choose_games, load_trained, warn_of_unknown
from torchbeast.play.config import PlayConfig
from torchbeast.play.game_loop import PlayedGame, play, read_actions
from torchbeast.play.json_output import write_json
from torchbeast.records.scores import GameScore, normalize
from torchbeast.runtime.progress_bar import track
from torchbeast.runtime.signals import StopRequestedError, StopSignals
from torchbeast.runtime.text import counted, format_rows

log = logging.getLogger("torchbeast")


def summarize(episodes: Sequence[PlayedGame], *, greedy: bool = True) -> GameScore:
    """Computes statistics of the full games that an agent played in one game."""
    env = episodes[0].env
    returns = [episode.episode_return for episode in episodes]
    mean = statistics.fmean(returns)
    return GameScore(
        env=env,
        policy="greedy" if greedy else "sampled",
        episodes=len(returns),
        different=len({(e.episode_step, e.episode_return) for e in episodes}),
        mean=mean,
        std=statistics.pstdev(returns),
        min=min(returns),
        max=max(returns),
        mean_steps=statistics.fmean(e.episode_step for e in episodes),
        human_normalized=human_normalized(env, mean),
        **find_reference(env)._asdict(),
    )


def run_test(config: PlayConfig, signals: StopSignals) -> None:
    """Runs ``--mode test``: plays full games with a trained agent, by default on the games it
    knows.

    Prints a line per episode, ``xpid,model id,env,steps,return``, and a table. ``--json`` prints
    one JSON document instead; ``--json FILE`` writes it to a file besides. An agent with PopArt has
    no value head for other games, but its policy is one for all, so those can be played, too.

    A signal ends the games; the scores are then those of the games that have ended.
    """
    trained = load_trained(config.trained)
    games = choose_games(trained, config.env)
    actions = read_actions(config.actions, trained.agent.config.num_actions)
    scores = []
    with signals:
        for game in games:
            episodes = _play_game(config, trained, game, actions, signals)
            if episodes:
                scores.append(summarize(episodes, greedy=config.greedy))
            if signals.received is not None:
                break
    if not scores:
        return
    if config.json != "-":
        print(format_table(scores))
    if config.json is not None:
        is_complete = signals.received is None
        write_json(describe(config, trained, scores, is_complete=is_complete), config.json)


def _play_game(
    config: PlayConfig,
    trained: Trained,
    game: str,
    actions: list[int],
    signals: StopSignals,
) -> list[PlayedGame]:
    """Plays full games of one game, and returns those that end before a signal comes."""
    warn_of_unknown(trained, game)
    number = counted(config.num_episodes, "full game")
    log.info("Playing %s of %s", number, short_name(game))
    episodes = []
    games_as_they_end = play(
        trained,
        game,
        config.num_episodes,
        greedy=config.greedy,
        seed=config.seed,
        actions=actions,
        after_step=signals.check,
    )
    try:
        for episode in track(games_as_they_end, total=config.num_episodes, unit="games"):
            episodes.append(episode)
            if config.json != "-":
                episode.print_line(trained)
    except StopRequestedError:
        log.warning(
            "Stopped after %d of %s of %s: the long ones are missing",
            len(episodes),
            number,
            short_name(game),
        )
    return episodes


def describe(
    config: PlayConfig, trained: Trained, scores: Sequence[GameScore], *, is_complete: bool
) -> dict[str, Any]:
    """Returns all that ``--json`` has, as plain values.

    ``is_complete``: whether no signal has ended the games.
    """
    normalized = normalize(scores)
    return {
        "xpid": trained.xpid,
        "model": trained.model_id,
        **trained.observation._asdict(),
        "greedy": config.greedy,
        "seed": config.seed,
        "complete": is_complete,
        "human_normalized": None if normalized is None else normalized._asdict(),
        "games": [score._asdict() for score in scores],
    }


def format_table(scores: Sequence[GameScore]) -> str:
    """Formats a row per game, then the median and mean human-normalised score and what they
    are of.
    """
    names = "game,mean,std,min,max,games,steps,random,human,%human"
    rows = [names.split(",")]
    for s in scores:
        values = (
            *(_short(x) for x in (s.mean, s.std, s.min, s.max)),
            f"{s.different}/{s.episodes}",
            f"{s.mean_steps:.0f}",
            *("-" if x is None else _short(x) for x in (s.random, s.human)),
            "-" if s.human_normalized is None else f"{s.human_normalized:.0%}",
        )
        rows.append([short_name(s.env), *values])
    lines = format_rows(rows)
    normalized = normalize(scores)
    if normalized is not None:
        lines.append(
            f"human-normalised over {normalized.games} of {len(scores)} games: "
            f"median {normalized.median:.1%}, mean {normalized.mean:.1%}"
        )
        lines.append("0% is a random agent, 100% a professional games tester")
    blank = [short_name(s.env) for s in scores if s.human is None]
    if blank:
        lines.append(f"No human score is published for {', '.join(blank)}")
    return "\n".join(lines)


def _short(value: float) -> str:
    """Four significant digits or all of the integer part: 1234.5 is 1234, 12.345 is 12.35."""
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"
