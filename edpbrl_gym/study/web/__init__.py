"""The pages of a study; the only modules that import the web framework."""

from edpbrl_gym.study.web.app import create_app, make_server

__all__ = ["create_app", "make_server"]
