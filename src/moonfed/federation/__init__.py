"""The same algorithms between real sites: what travels, who may send it, and what is taken."""
