"""Environments (imported as ``edpbrl_gym.envs``); importing ``edpbrl_gym`` registers them for ``gymnasium.make``."""

from typing import Any

__all__ = ["ENVIRONMENTS"]

# string entry points, so that registering imports no environment
ENVIRONMENTS: tuple[dict[str, Any], ...] = tuple(
    {
        "id": f"edpbrl/{name}-v0",
        "entry_point": f"edpbrl_gym.envs.{module}:{name}Env",
        "vector_entry_point": f"edpbrl_gym.envs.{module}:{name}VectorEnv",
    }
    for name, module in (
        ("PromptConstruction", "prompt_construction"),
        ("TextGeneration", "text_generation"),
        ("DiffusionGuidance", "diffusion_guidance"),
    )
)
