"""The pure rules that judge a transaction against the state before it, and apply it."""
