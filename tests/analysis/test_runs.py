from torchbeast.analysis.runs import read_reference


def test_returns_of_lives_are_made_those_of_games(tmp_path):
    path = tmp_path / "reference.csv"
    path.write_text(
        "env,agent_steps,return_mean,return_std,lives\n"
        "NameThisGameNoFrameskip-v4,200,800,20,4\n"
        "NameThisGameNoFrameskip-v4,100,400,5,4\n"
        "PongNoFrameskip-v4,100,-20,1,1\n"
        "DemonAttackNoFrameskip-v4,100,300,5,\n"
    )
    curves = read_reference(path)
    assert list(curves) == ["NameThisGame", "Pong"]
    assert curves["NameThisGame"].steps.tolist() == [100, 200]
    assert (curves["NameThisGame"].mean.tolist(), curves["Pong"].mean.tolist()) == (
        [1600, 3200],
        [-20],
    )
    assert (curves["NameThisGame"].std.tolist(), curves["Pong"].std.tolist()) == ([10, 40], [1])
    path.write_text("env,agent_steps,return_mean_of_3_seeds\nPongNoFrameskip-v4,100,3.5\n")
    assert read_reference(path)["Pong"].mean.tolist() == [3.5]
