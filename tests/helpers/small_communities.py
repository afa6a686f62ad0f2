"""Communities of a few people whose prompts a hash embeds in eight dimensions: seconds instead of half an hour."""

from __future__ import annotations

from typing import Any

from edpbrl_gym.experiments.communities.settings import CommunitySettings

ENCODER = "tests.helpers.encoders:CountingEncoder"
SMALL: dict[str, Any] = {
    **{"people": 20, "questions": 4, "new": 2, "candidates": 10, "answers": (0, 2, 4), "factors": 2, "shown": 60},
    **{"held_out": 8, "prompts": 30, "pairs": 60, "pool": 40, "encoder": ENCODER},
}


def small_communities(**changed: Any) -> CommunitySettings:
    """Settings of a small study."""
    return CommunitySettings(**{**SMALL, **changed})
