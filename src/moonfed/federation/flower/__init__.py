"""Everything that knows Flower: messages, transport, processes, the proxy in front of SuperLink, the launcher."""
