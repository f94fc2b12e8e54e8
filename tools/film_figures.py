"""The films of docs/movies.md: two of each game that a shipped agent plays."""

from __future__ import annotations

from tools.figure import Figure, agents

# Long enough to show how an agent plays; a clone of the repository has all films.
PLAY = "--movie movies --movie_steps 200"
LOOK = "--precision auto --first_frame 150 --num_frames 12 --movie movies"


def films(agent: str, steps: int, *games: str) -> Figure:
    """The films of a shipped agent.

    Args:
        agent: its directory in models/.
        steps: of its final checkpoint, which the names of the films have.
        games: short names.
    """
    names = {game: f"{agent}_{steps}_{game}NoFrameskip-v4" for game in games}
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


SIX = ("AirRaid", "Carnival", "DemonAttack", "NameThisGame", "Pong", "SpaceInvaders")
SIX_FILMS = tuple(f"movies/MultiTaskPopArt_6000000_{game}NoFrameskip-v4.gif" for game in SIX)
ALL_GAMES = "movies/MultiTaskPopArt.gif"
FILMS = (
    films("AirRaid", 2_500_000, "AirRaid"),
    films("Carnival", 2_500_000, "Carnival"),
    films("DemonAttack", 2_500_000, "DemonAttack"),
    films("NameThisGame", 2_500_000, "NameThisGame"),
    films("Pong", 2_500_000, "Pong"),
    films("SpaceInvaders", 2_500_000, "SpaceInvaders"),
    films("MultiTaskPopArt", 6_000_000, *SIX),
    Figure(
        "six_games_film",
        "docs/movies.md",
        (f"python tools/mosaic.py {' '.join(SIX_FILMS)} --shrink 2 --output {ALL_GAMES}",),
        (*SIX_FILMS, *agents("MultiTaskPopArt")),
        {ALL_GAMES: ALL_GAMES},
    ),
)
