"""Fetches: what to ask for and when, and what the answers mean (A3)."""
