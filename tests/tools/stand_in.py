"""Takes the flags of torchbeast.polybeast and writes logs.csv as it does, without learning.

A run of the program takes seconds to start; the order in which many runs are trained is tested with
this. It takes 10 steps every 20 ms, and resumes where it stopped. Flags of the plan change what it
does: ``--num_actors 13`` fails at once, ``14`` takes no step, ``15`` does not end when it is told,
``16`` fails after it has saved.
"""

import argparse
import signal
import sys
import time
from pathlib import Path

FAILS, TAKES_NO_STEP, IS_STUBBORN, FAILS_LATE = 13, 14, 15, 16


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--num_actors", type=int)
    parser.add_argument("--total_steps", type=int)
    parser.add_argument("--savedir", type=Path)
    parser.add_argument("--xpid")
    flags = parser.parse_known_args()[0]
    if flags.num_actors == FAILS:
        sys.exit("error: the stand-in fails")
    told = []
    signal.signal(signal.SIGTERM, lambda *_: told.append(True))
    logs = flags.savedir / flags.xpid / "logs.csv"
    logs.parent.mkdir(parents=True, exist_ok=True)
    if not logs.exists():
        logs.write_text("step,seconds,sps,mean_episode_return/Pong\n")
    last = logs.read_text().splitlines()[-1].split(",")[0]
    steps = int(last) if last.isdecimal() else 0
    with open(logs, "a") as file:
        while steps < flags.total_steps and (not told or flags.num_actors == IS_STUBBORN):
            time.sleep(0.02)
            if flags.num_actors != TAKES_NO_STEP:
                steps += 10
                file.write(f"{steps},{steps / 500},500,-20.5\n")
                file.flush()
    if flags.num_actors == FAILS_LATE:
        logs.with_name("model.tar").touch()
        sys.exit("error: the stand-in fails late")
    sys.exit(0 if steps >= flags.total_steps else 143)


if __name__ == "__main__":
    main()
