"""Text and image encoders behind one protocol each, with an on-disk cache for texts."""

from edpbrl_gym.features.base import TextEncoder
from edpbrl_gym.features.cache import CachedEncoder, default_cache_folder
from edpbrl_gym.features.files import encode_to_file
from edpbrl_gym.features.images import (
    IMAGE_ENCODER_FORMS,
    ImageEncoder,
    check_image_encoder_spec,
    load_image_encoder,
)
from edpbrl_gym.features.loading import ENCODER_FORMS, check_encoder_spec, encoder_needs, load_encoder
from edpbrl_gym.features.maps import FeatureMap, RandomFourierFeatures, WithLinear
from edpbrl_gym.features.memo import MemoEncoder
from edpbrl_gym.features.precomputed import PrecomputedEncoder, save_precomputed

__all__ = [
    "ENCODER_FORMS",
    "IMAGE_ENCODER_FORMS",
    "CachedEncoder",
    "FeatureMap",
    "ImageEncoder",
    "MemoEncoder",
    "PrecomputedEncoder",
    "RandomFourierFeatures",
    "TextEncoder",
    "WithLinear",
    "check_encoder_spec",
    "check_image_encoder_spec",
    "default_cache_folder",
    "encode_to_file",
    "encoder_needs",
    "load_encoder",
    "load_image_encoder",
    "save_precomputed",
]
