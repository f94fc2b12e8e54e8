from torchbeast.records import checkpoint, run_files

CONTENTS = {"model_state_dict": {}}


def test_shipped_agents_are_found_by_name_unless_a_run_has_it(tmp_path):
    shipped = run_files.find_checkpoint(tmp_path, "Pong")
    assert shipped == run_files.SHIPPED / "Pong" / "model.tar"
    assert shipped.exists()
    mine = tmp_path / "Pong" / "model.tar"
    checkpoint.save(mine, CONTENTS)
    assert run_files.find_checkpoint(tmp_path, "Pong") == mine
    # A run is not completed with the intermediate checkpoints of a shipped agent of its name.
    (kept, *_) = (run_files.SHIPPED / "Pong" / "intermediate").iterdir()
    step = int(kept.name.split(".")[1])
    assert run_files.find_checkpoint(tmp_path, "Pong", step).is_relative_to(tmp_path)


def test_a_step_behind_a_name_is_that_of_a_copy_unless_a_run_has_this_name(tmp_path):
    copy = run_files.model_path(tmp_path / "pong-10", 30)
    assert run_files.find_agent(tmp_path, "pong-10:30") == copy
    checkpoint.save(tmp_path / "pong-10:30" / "model.tar", CONTENTS)
    assert run_files.find_agent(tmp_path, "pong-10:30") == tmp_path / "pong-10:30" / "model.tar"


def test_a_path_that_is_missing_is_told_as_it_is(tmp_path):
    path = tmp_path / "a" / "model.tar"
    assert run_files.find_checkpoint("runs", str(path)) == path
    path.parent.mkdir()
    path.touch()
    intermediate = run_files.model_path(path.parent, 5)
    assert run_files.find_checkpoint("runs", str(path), 5) == intermediate


def test_a_run_without_a_checkpoint_is_not_the_shipped_agent_of_its_name(tmp_path):
    run = tmp_path / "Pong"
    (run / "movies").mkdir(parents=True)  # A film of the shipped agent is no run.
    assert run_files.find_checkpoint(tmp_path, "Pong").is_relative_to(run_files.SHIPPED)
    (run / "meta.json").touch()
    assert run_files.find_checkpoint(tmp_path, "Pong") == run / "model.tar"
