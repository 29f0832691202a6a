"""The log of a table: commits in order, and what keeps it short to read.

- `log`, `pages`, `deltas`: an entry is ordered by one conditional append to a page
- `segments`, `snapshot`, `increments`, `key_index`: what takes the place of many deltas
- `tail`, `sources`: read what is new, and which files a table remembers
- `compaction`, `pinning`: make and delete these; keep versions that are read
- `engine`: all of it as a store of states; threads that commit at once share one commit
"""
