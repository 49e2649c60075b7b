"""The shapes that travel between the layers, and the one extension point."""
