"""The published tables and figures as data, and the recipes that make them again."""
