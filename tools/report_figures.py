"""The figures and tables of docs/report.md.

``SINGLE``, ``SECOND_SEEDS``, ``SIX`` and ``THREE`` name the agents that it shows. An agent that is
shipped is added here, and the page's text is written anew.
"""

from __future__ import annotations

from tools.figure import FILTERS, Figure, agents, curves, histories

PAGE = "docs/report.md"
SINGLE = ("AirRaid", "Carnival", "DemonAttack", "NameThisGame", "Pong", "SpaceInvaders")
# Agents of six games: with clipped rewards, and with PopArt.
SIX = ("MultiTask", "MultiTaskPopArt")
# Agents of three games.
THREE = ("MultiTask3Games",)
MULTI = (*SIX, *THREE)
# Agents that differ from one of the above in their seed only.
SECOND_SEEDS = ("Pong-s2", "MultiTaskPopArt-s2")
# Agents of six games with PopArt that differ in their seed only, beside that with clipped rewards.
SEEDS = ("MultiTask", "MultiTaskPopArt", "MultiTaskPopArt-s2")
REFERENCES = (
    "docs/reference/torchbeast_paper_curves_2019.csv",
    "docs/reference/single_task_curves_2019.csv",
)
THREE_GAMES = ("AirRaid", "Carnival", "DemonAttack")
BETWEEN = ("single_single", "single_multi", "single_multipop", "multi_multipop")
# By --comp_seeds: what is compared. Agents of one seed began with the same weights.
FILTER_FIGURES = {
    "same": (*BETWEEN, "time_steps", "untrained"),
    "other": (*BETWEEN, "same_games", "untrained"),
}
SHEET_FRAMES = "--first_frame 130 --num_frames 16"


def directories(names: tuple[str, ...]) -> list[str]:
    return [f"models/{name}" for name in names]


ONE_GAME = f'"one game={",".join(directories(SINGLE))}"'
SINGLE_DIRECTORIES = " ".join(directories(SINGLE))
SECOND_DIRECTORIES = " ".join(directories(SECOND_SEEDS))
SIX_DIRECTORIES = " ".join(directories(SIX))
SEED_DIRECTORIES = " ".join(directories(SEEDS))
MULTI_DIRECTORIES = " ".join(directories(MULTI))
REFERENCE_FLAGS = " ".join(f"--reference {path}" for path in REFERENCES)


def evaluations(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"models/{name}/evaluation.json" for name in names)


def sheet(game: str) -> Figure:
    """Maps of an agent of one game, and of the agents of six games on the same frames."""
    return Figure(
        f"report_saliency_{game}",
        PAGE,
        (
            f"python -m torchbeast.saliency --savedir models --xpid {game} --compare "
            f"{','.join(SIX)} --env {game}NoFrameskip-v4 {SHEET_FRAMES} --sheet sheet.png",
        ),
        agents(game, *SIX),
        {f"docs/images/report_saliency_{game}.png": "sheet.png"},
    )


def filters(seeds: str, *kinds: str) -> Figure:
    """Distances of the filters of agents that have the same seed, or other ones."""
    directory = f"filters_{seeds}"
    names = (*SINGLE, *SECOND_SEEDS, *MULTI)
    return Figure(
        f"report_filters_{seeds}",
        PAGE,
        (
            f"{FILTERS} --load_path models --models {','.join(f'{n}={n}' for n in names)} "
            f"--comp_between {' '.join(kinds)} --comp_seeds {seeds} --metric default optimal "
            f"rebasin cka --cka_frames 96 --save_dir {directory}",
            f"{FILTERS} --mode filter_comp_plot --save_dir {directory} --plot_summary "
            "--save_figures",
        ),
        histories(*names),
        {f"docs/images/report_filters_{seeds}.png": f"{directory}/summary_relative.png"},
    )


REPORT = (
    Figure(
        "report_agents",
        PAGE,
        (
            f"python tools/agent_tables.py agents {SINGLE_DIRECTORIES} {SECOND_DIRECTORIES} "
            f"{MULTI_DIRECTORIES} --output agents.md",
        ),
        (*agents(*SINGLE, *SECOND_SEEDS, *MULTI), *curves(*SINGLE, *SECOND_SEEDS, *MULTI)),
        {},
        tables={"agents": "agents.md"},
    ),
    Figure(
        "report_learning",
        PAGE,
        (
            f"python -m torchbeast.analysis.plot_runs {ONE_GAME} {REFERENCE_FLAGS} --games "
            f"{','.join(SINGLE)} --output figures",
            f"python tools/agent_tables.py curves {ONE_GAME} {REFERENCE_FLAGS} --at 1000000 "
            "2000000 2500000 --output curves.md",
        ),
        (*curves(*SINGLE), *REFERENCES),
        {"docs/images/report_learning.png": "figures/returns_by_steps.png"},
        tables={"curves": "curves.md"},
    ),
    Figure(
        "report_kinds",
        PAGE,
        (
            f"python -m torchbeast.analysis.plot_runs {ONE_GAME} {MULTI_DIRECTORIES} --output "
            "figures",
            f"python tools/agent_tables.py curves {ONE_GAME} {MULTI_DIRECTORIES} --at 500000 "
            "1000000 --output game_steps.md",
            f"python tools/agent_tables.py curves {ONE_GAME} {MULTI_DIRECTORIES} --count all --at "
            "2500000 --output all_steps.md",
        ),
        curves(*SINGLE, *MULTI),
        {
            "docs/images/report_by_game_steps.png": "figures/returns_by_game_steps.png",
            "docs/images/report_by_steps.png": "figures/returns_by_steps.png",
            "docs/images/report_popart.png": "figures/popart.png",
        },
        tables={"game_steps": "game_steps.md", "all_steps": "all_steps.md"},
    ),
    Figure(
        "report_scores",
        PAGE,
        (
            f"python tools/agent_tables.py scores {ONE_GAME} {SIX_DIRECTORIES} --policy sampled "
            f"--difference {' '.join(reversed(SIX))} --output scores.md",
            f"python tools/agent_tables.py scores {ONE_GAME} {MULTI_DIRECTORIES} --policy sampled "
            f"--games {','.join(THREE_GAMES)} --output three_games.md",
        ),
        evaluations((*SINGLE, *MULTI)),
        {},
        tables={"scores": "scores.md", "three_games": "three_games.md"},
    ),
    Figure(
        "report_seeds",
        PAGE,
        (
            f"python -m torchbeast.analysis.plot_runs {SEED_DIRECTORIES} --output figures",
            f"python tools/agent_tables.py curves {SEED_DIRECTORIES} --at 500000 1000000 --output "
            "seeds_curves.md",
            f"python tools/agent_tables.py scores {SEED_DIRECTORIES} --policy sampled --difference "
            f"{' '.join(reversed(SEEDS[1:]))} --output seeds_scores.md",
        ),
        (*curves(*SEEDS), *evaluations(SEEDS)),
        {"docs/images/report_seeds.png": "figures/returns_by_game_steps.png"},
        tables={"seeds_curves": "seeds_curves.md", "seeds_scores": "seeds_scores.md"},
    ),
    Figure(
        "report_actions",
        PAGE,
        (f"python -m torchbeast.analysis.action_shares {ONE_GAME} {SIX_DIRECTORIES}",),
        agents(*SINGLE, *SIX),
        {"docs/images/report_actions.png": "action_shares/action_shares.png"},
    ),
    *map(sheet, SINGLE),
    *(filters(seeds, *kinds) for seeds, kinds in FILTER_FIGURES.items()),
)
