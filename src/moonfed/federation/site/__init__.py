"""A site's side: training on its own rows, the memory it keeps, and what it tells others."""
