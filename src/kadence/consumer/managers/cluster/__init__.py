"""Cluster metadata and the epochs of the leaders."""
