"""The one table of registered environments; string entry points, so registering imports no environment."""

from typing import Any

__all__ = ["ENVIRONMENTS"]

ENVIRONMENTS: tuple[dict[str, Any], ...] = (
    {
        "id": "edpbrl/PromptConstruction-v0",
        "entry_point": "edpbrl_gym.envs.prompt_construction:PromptConstructionEnv",
        "vector_entry_point": "edpbrl_gym.envs.prompt_construction_vector:PromptConstructionVectorEnv",
    },
    {
        "id": "edpbrl/TextGeneration-v0",
        "entry_point": "edpbrl_gym.envs.text_generation:TextGenerationEnv",
        "vector_entry_point": "edpbrl_gym.envs.text_generation_vector:TextGenerationVectorEnv",
    },
    {
        "id": "edpbrl/DiffusionGuidance-v0",
        "entry_point": "edpbrl_gym.envs.diffusion_guidance:DiffusionGuidanceEnv",
        "vector_entry_point": "edpbrl_gym.envs.diffusion_guidance_vector:DiffusionGuidanceVectorEnv",
    },
)
