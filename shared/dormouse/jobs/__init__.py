"""What all jobs share: their records for people, their attempts, crashes and retries."""
