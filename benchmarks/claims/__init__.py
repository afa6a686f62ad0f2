"""Where each number of the README and the docs comes from: docs/claims.toml, its checks and its page.

What the commands do: ``python -m benchmarks.claims --help``, and docs/claims.md.
"""
