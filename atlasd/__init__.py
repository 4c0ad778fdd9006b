"""Automatic local symmetry discovery."""
