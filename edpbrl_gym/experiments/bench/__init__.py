"""The benchmark of planners, designs and estimators: two kinds of worlds, prompt MDPs and pools of items."""
