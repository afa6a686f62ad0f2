"""The paper's experiments, the demo, run folders, metrics and figures."""
