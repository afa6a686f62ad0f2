"""The pages of a study; its modules and those of `asking` alone import the web framework."""

from edpbrl_gym._lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, {"app": ("create_app",), "server": ("make_server",)})
