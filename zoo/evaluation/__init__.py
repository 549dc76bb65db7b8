"""Scores of models, and of their exports, on labeled data."""
