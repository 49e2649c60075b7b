"""Everything that knows Flower: messages, transport, processes, and the proxy before SuperLink."""
