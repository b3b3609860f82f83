"""Placeholder while the script is written."""
