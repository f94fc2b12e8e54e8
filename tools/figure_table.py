"""What every stored figure, film, page, card and notebook shows, and the commands that make it.

A page of the documentation prints the commands as they are here. They run in an empty directory
with copies of the inputs, so a figure cannot depend on a file that is not listed.
"""

from __future__ import annotations

from tools.figure import FILTERS, Figure, agents, card, curves, histories, notebook
from tools.film_figures import FILMS
from tools.report_figures import MULTI, REPORT, SECOND_SEEDS, SINGLE

# The cheap ones first: all together take about an hour on two idle cores.
FIGURES = (
    Figure(
        "soak",
        "docs/reliability.md",
        ("python tools/soak.py --draw docs/reference/soak.csv --figure soak.png",),
        ("docs/reference/soak.csv",),
        {"docs/images/soak.png": "soak.png"},
    ),
    Figure(
        "six_games",
        "docs/popart.md",
        (
            "python -m torchbeast.analysis.compare docs/reference/six_games/popart-s1 "
            "docs/reference/six_games/popart-s2 docs/reference/six_games/clipped-s1 "
            "docs/reference/six_games/clipped-s2 --table logs.csv --output six_games.png",
        ),
        ("docs/reference/six_games/popart-s*/*", "docs/reference/six_games/clipped-s*/*"),
        {"docs/images/six_games.png": "six_games.png"},
    ),
    Figure(
        "six_games_replay",
        "docs/leaderboard.md",
        (
            "python -m torchbeast.analysis.compare docs/reference/six_games/many-s1 "
            "docs/reference/six_games/many-s2 docs/reference/six_games/many-s3 "
            "docs/reference/six_games/replay1-s1 --table logs.csv --output six_games_replay.png",
        ),
        ("docs/reference/six_games/many-s*/*", "docs/reference/six_games/replay1-s1/*"),
        {"docs/images/six_games_replay.png": "six_games_replay.png"},
    ),
    Figure(
        "pong_curve",
        "docs/presets.md",
        (
            "python -m torchbeast.analysis.plot_runs models/PongShallow models/Pong "
            "models/PongAttention --reference docs/reference/torchbeast_paper_curves_2019.csv "
            "--output figures",
        ),
        (
            *curves("PongShallow", "Pong", "PongAttention"),
            "docs/reference/torchbeast_paper_curves_2019.csv",
        ),
        {"docs/images/Pong_curve.png": "figures/returns_by_steps.png"},
    ),
    Figure(
        "popart_statistics",
        "docs/popart.md",
        ("python -m torchbeast.analysis.plot_runs models/MultiTaskPopArt --output figures",),
        curves("MultiTaskPopArt"),
        {"docs/images/popart_statistics.png": "figures/popart.png"},
    ),
    Figure(
        "attention",
        "docs/saliency.md",
        (
            "python -m torchbeast.analysis.visualize_aaa --savedir models --xpid PongAttention "
            "--first_frame 153 --num_frames 1",
        ),
        agents("PongAttention"),
        {"docs/images/Pong_attention.png": "attention/PongAttention/PongNoFrameskip-v4/000153.png"},
    ),
    *map(card, (*SINGLE, *MULTI, *SECOND_SEEDS)),
    *(card(name, "notes.md", has_copies=False) for name in ("PongShallow", "PongAttention")),
    card("MultiTaskPopArtShallow", has_copies=False),
    *FILMS,
    *REPORT,
    notebook("figures", (*curves("*"), "docs/reference/torchbeast_paper_curves_2019.csv")),
    notebook("model", agents("PongShallow")),
    notebook("movies", histories("Pong")),
    notebook("action_analysis", (*agents(*SINGLE, *MULTI), *histories("Pong")[2:])),
    Figure(
        "carnival",
        "docs/saliency.md",
        (
            "python -m torchbeast.saliency --savedir models --xpid MultiTaskPopArtShallow --env "
            "CarnivalNoFrameskip-v4 --num_frames 30 --density 3 --score policy value action "
            "advantage task:Pong task:SpaceInvaders --check --html carnival.html",
        ),
        agents("MultiTaskPopArtShallow"),
        {
            "docs/examples/carnival.html": "carnival.html",
            "docs/images/Carnival_check.png": "models/MultiTaskPopArtShallow/saliency/"
            "CarnivalNoFrameskip-v4/check.png",
        },
    ),
    Figure(
        "pong_saliency",
        "docs/saliency.md",
        (
            "python -m torchbeast.saliency --xpid Pong --savedir models --first_frame 160 "
            "--num_frames 40 --movie movies/pong.gif",
        ),
        agents("Pong"),
        {"movies/Pong_saliency.gif": "movies/pong.gif"},
    ),
    Figure(
        "similarity",
        "docs/filters.md",
        (
            f"{FILTERS} --mode similarity --load_path models/Pong --other models/MultiTaskPopArt "
            "--control models/Pong models/Pong-s2 --cka_frames 96",
        ),
        agents("Pong", "MultiTaskPopArt", "Pong-s2"),
        {"docs/images/similarity.png": "similarity/similarity.png"},
    ),
    Figure(
        "ablation",
        "docs/filters.md",
        (f"{FILTERS} --mode ablation --load_path models/MultiTaskPopArtShallow --cka_frames 64",),
        agents("MultiTaskPopArtShallow"),
        {"docs/images/ablation.png": "ablation/ablation.png"},
    ),
    Figure(
        "space_invaders",
        "docs/saliency.md",
        (
            "python -m torchbeast.saliency --savedir models --xpid SpaceInvaders --compare "
            "MultiTaskPopArt --env SpaceInvadersNoFrameskip-v4 --first_frame 130 "
            "--num_frames 16 --sheet sheet.png --movie film.gif",
        ),
        agents("SpaceInvaders", "MultiTaskPopArt"),
        {
            "docs/images/SpaceInvaders_saliency.png": "sheet.png",
            "movies/SpaceInvaders_saliency.gif": "film.gif",
        },
    ),
    Figure(
        "stitching",
        "docs/filters.md",
        (
            f"{FILTERS} --mode stitching --load_path models/MultiTaskPopArt --other models/Pong "
            "--control models/Pong-s2 --seed 100 --games 4",
        ),
        agents("MultiTaskPopArt", "Pong", "Pong-s2"),
        {"docs/images/stitching.png": "stitching/stitching.png"},
    ),
    Figure(
        "ablation_resnet",
        "docs/filters.md",
        (
            f"{FILTERS} --mode ablation --load_path models/MultiTaskPopArt --other models/Pong "
            "--cka_frames 64 --save_dir ablation_resnet",
        ),
        agents("MultiTaskPopArt", "Pong"),
        {"docs/images/ablation_resnet.png": "ablation_resnet/ablation.png"},
    ),
)
