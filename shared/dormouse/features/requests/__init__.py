"""What requests of all kinds share: the table they are about, and the work that they cause."""
