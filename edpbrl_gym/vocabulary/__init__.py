"""Prompt vocabularies: token files, loading, checks and splits."""
