"""The Newton solver on any other MDP: working sets of paths or of deterministic policies (column generation)."""
