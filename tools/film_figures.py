"""The films of docs/movies.md: two of each game that a shipped agent plays."""

from __future__ import annotations

from tools.figure import Figure, agents
from tools.report_figures import SINGLE, THREE_GAMES

# Long enough to show how an agent plays; a clone of the repository has all films.
PLAY = "--movie movies --movie_steps 200"
LOOK = "--precision auto --first_frame 150 --num_frames 12 --movie movies"


def film_name(agent: str, steps: int, game: str) -> str:
    """The name of a film without suffix, as ``--movie`` chooses it."""
    return f"{agent}_{steps}_{game}NoFrameskip-v4"


def films(agent: str, steps: int, *games: str) -> Figure:
    """The films of a shipped agent.

    Args:
        agent: its directory in models/.
        steps: of its final checkpoint, which the names of the films have.
        games: short names.
    """
    names = {game: film_name(agent, steps, game) for game in games}
    record = f"python -m torchbeast.polybeast --mode record --savedir models --xpid {agent} {PLAY}"
    saliency = f"python -m torchbeast.saliency --savedir models --xpid {agent}"
    looks = [
        f"{saliency} --env {game}NoFrameskip-v4 {LOOK}/{name}.saliency.gif"
        for game, name in names.items()
    ]
    made = [
        f"movies/{name}.{kind}"
        for name in names.values()
        for kind in ("gif", "actions", "saliency.gif")
    ]
    return Figure(
        f"films_{agent}",
        "docs/movies.md",
        (record, *looks),
        agents(agent),
        dict(zip(made, made, strict=True)),
    )


SIX_FILMS = tuple(f"movies/{film_name('MultiTaskPopArt', 6_000_000, g)}.gif" for g in SINGLE)
ALL_GAMES = "movies/MultiTaskPopArt.gif"
FILMS = (
    *(films(game, 2_500_000, game) for game in SINGLE),
    films("MultiTaskPopArt", 6_000_000, *SINGLE),
    films("MultiTask", 6_000_000, *SINGLE),
    films("MultiTask3Games", 4_000_000, *THREE_GAMES),
    Figure(
        "six_games_film",
        "docs/movies.md",
        (f"python tools/mosaic.py {' '.join(SIX_FILMS)} --shrink 2 --output {ALL_GAMES}",),
        (*SIX_FILMS, *agents("MultiTaskPopArt")),
        {ALL_GAMES: ALL_GAMES},
    ),
)
