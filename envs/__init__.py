"""Environments and wrappers (imported as ``edpbrl_gym.envs``)."""
