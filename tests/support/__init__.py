"""What tests share: in-memory adapters with hooks, and a world that runs the stages over them."""
