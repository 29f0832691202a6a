"""One module or two for each feature: what it promises, messages, request, stage, stored forms."""
