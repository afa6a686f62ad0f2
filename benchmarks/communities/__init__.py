"""Simulated communities: what other people's answers say about new people of many kinds, docs/people.md."""
