"""The experiment of the paper in which a language model is the user."""
