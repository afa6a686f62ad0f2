"""Real people's ratings of pictures and texts replayed as answers to any questions: docs/people.md."""
