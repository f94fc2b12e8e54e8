"""What is done with trained agents: full games, scores, windows and films."""
