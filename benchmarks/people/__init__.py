"""Real people's answers replayed, to see what is learnt from each of them, and from others: docs/people.md."""
