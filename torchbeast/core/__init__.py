"""What learning needs and nothing of games or networks: records, flags, losses, the learner."""
