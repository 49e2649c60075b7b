"""One file per paper: its local rule, and what it needs of a server. Each file names its PRESET."""
