"""Renderers behind an address: one client for all, and a module for each kind of server."""
