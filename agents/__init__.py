"""Agents: whoever chooses the questions (imported as ``edpbrl_gym.agents``)."""
