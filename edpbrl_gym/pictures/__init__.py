"""Pictures as what people answer about: encoders of the pictures that are drawn from texts."""

from edpbrl_gym.pictures.drawn import DrawnEncoder, features_of

__all__ = ["DrawnEncoder", "features_of"]
