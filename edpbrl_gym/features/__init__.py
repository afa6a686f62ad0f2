"""Text encoders behind one protocol, with an on-disk cache."""
