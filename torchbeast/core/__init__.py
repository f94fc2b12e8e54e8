"""Learning: records of steps, V-trace, PopArt, losses, the learner and the weights it publishes."""
