"""A small vocabulary folder for tests of experiments and the command line."""

from __future__ import annotations

from pathlib import Path

TOKENS = {
    "1-bases": ("a lighthouse", "an old fisherman", "a red bicycle", "a quiet harbour", "a fox", "a market stall",
                "a mountain hut", "a violin"),
    "2-ambient": ("cheerful", "melancholic", "before a thunderstorm", "first snow", "solemn", "hot afternoon",
                  "foggy morning", "festive"),
    "3-lighting": ("golden hour light", "blue hour", "candlelit", "hard noon sun", "neon glow", "moonlight",
                   "backlit", "overcast"),
}  # fmt: skip


def write_vocabulary(folder: Path) -> Path:
    """Write three files with eight tokens each; return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, tokens in TOKENS.items():
        (folder / f"{name}.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8")
    return folder
