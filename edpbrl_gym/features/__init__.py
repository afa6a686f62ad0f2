"""Text encoders behind one protocol, with an on-disk cache."""

from edpbrl_gym.features.base import TextEncoder
from edpbrl_gym.features.cache import CachedEncoder, default_cache_folder
from edpbrl_gym.features.loading import ENCODER_FORMS, load_encoder
from edpbrl_gym.features.precomputed import PrecomputedEncoder, save_precomputed

__all__ = [
    "ENCODER_FORMS",
    "CachedEncoder",
    "PrecomputedEncoder",
    "TextEncoder",
    "default_cache_folder",
    "load_encoder",
    "save_precomputed",
]
