"""Text and image encoders behind one protocol each, with an on-disk cache for texts."""

from edpbrl_gym.features.base import TextEncoder, as_encoder
from edpbrl_gym.features.images import (
    IMAGE_ENCODER_FORMS,
    CachedImageEncoder,
    ImageEncoder,
    check_image_encoder_spec,
    load_image_encoder,
)
from edpbrl_gym.features.joined import JoinedEncoder, blocks_of
from edpbrl_gym.features.loading import (
    ENCODER_FORMS,
    CachedEncoder,
    check_encoder_spec,
    default_cache_folder,
    encode_to_file,
    encoder_needs,
    load_encoder,
)
from edpbrl_gym.features.memo import MemoEncoder
from edpbrl_gym.features.precomputed import PrecomputedEncoder, save_precomputed
from edpbrl_gym.features.tokens import check_told_apart, embed_tokens

__all__ = [
    "ENCODER_FORMS",
    "IMAGE_ENCODER_FORMS",
    "CachedEncoder",
    "CachedImageEncoder",
    "ImageEncoder",
    "JoinedEncoder",
    "MemoEncoder",
    "PrecomputedEncoder",
    "TextEncoder",
    "as_encoder",
    "blocks_of",
    "check_encoder_spec",
    "check_image_encoder_spec",
    "check_told_apart",
    "default_cache_folder",
    "embed_tokens",
    "encode_to_file",
    "encoder_needs",
    "load_encoder",
    "load_image_encoder",
    "save_precomputed",
]
