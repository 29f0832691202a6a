"""One package for each feature: its request, its stages, its policy and its stored forms."""
