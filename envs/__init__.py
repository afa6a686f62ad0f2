"""Environments (imported as ``edpbrl_gym.envs``); importing ``edpbrl_gym`` registers them for ``gymnasium.make``."""

from edpbrl_gym._lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "diffusion_guidance": ("DiffusionGuidanceEnv",),
        "diffusion_guidance_vector": ("DiffusionGuidanceVectorEnv",),
        "prompt_construction": ("PromptConstructionEnv",),
        "prompt_construction_vector": ("PromptConstructionVectorEnv",),
        "registration": ("ENVIRONMENTS",),
        "text_generation": ("TextGenerationEnv",),
        "text_generation_vector": ("TextGenerationVectorEnv",),
    },
)
