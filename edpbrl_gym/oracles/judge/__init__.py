"""A language model that answers questions, behind any OpenAI-compatible chat endpoint."""
