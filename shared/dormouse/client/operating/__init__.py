"""What keeps an instance in order: access, checks, copies, dead letters, jobs, purges."""
