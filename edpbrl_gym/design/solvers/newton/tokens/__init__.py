"""The Newton solver on prompts: working sets of tokens, priced against all of them."""
