"""Language models as policies: loading, sampling, and REINFORCE."""

from edpbrl_gym._lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "model": ("LanguageModel", "load_language_model"),
        "policies": ("Policies", "load_policies", "make_policies"),
        "settings": ("ReinforceSettings",),
        "trainer": ("train",),
    },
)
