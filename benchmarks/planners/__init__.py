"""Planners, designs and estimators compared with simulated users, in prompt MDPs and on pools of items."""
