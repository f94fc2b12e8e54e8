from torchbeast import polybeast_learner


def test_servers_are_where_those_of_2019_were_unless_flags_say_more(monkeypatch):
    def parse(name, parser, argv, train):
        return parser.parse_args(argv)

    monkeypatch.setattr(polybeast_learner, "run_mode", parse)
    flags = polybeast_learner.main([])
    assert (flags.start_servers, flags.pipes_basename) == (False, "unix:/tmp/polybeast")
    flags = polybeast_learner.main(["--pipes_basename=localhost:4000"])
    assert (flags.start_servers, flags.pipes_basename) == (False, "localhost:4000")
