"""Requests to servers that answer with JSON or bytes: one transport, the waits that they announce, their errors."""
