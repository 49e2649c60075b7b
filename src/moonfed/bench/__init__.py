"""Speed: the engines against a plain eager loop, in one run."""
