def test_a_run_that_diverges_ends_and_leaves_its_checkpoint(finished_run, resume):
    before = (finished_run / "model.tar").read_bytes()
    result = resume("--learning_rate=1e38", "--grad_norm_clipping=1e30", "--total_steps=100000")
    assert result.returncode == 1, result.stderr
    last = result.stderr.splitlines()[-1]
    assert last.startswith("polybeast: error: training diverged: ")
    assert "Traceback" not in result.stderr
    assert (finished_run / "model.tar").read_bytes() == before
