"""What is sent: messages between stages, queries, administrators' requests, replies, frames."""
