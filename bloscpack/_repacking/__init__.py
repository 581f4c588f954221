"""Rewrite a file with other settings: survey, plan and writing."""
