"""Learning: records of steps, V-trace, PopArt, losses, the optimizer and the learner."""
