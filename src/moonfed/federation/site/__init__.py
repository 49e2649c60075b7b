"""A site's side of a federation."""
