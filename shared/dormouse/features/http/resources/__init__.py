"""Routes by what they are about; `routes` lists them all.

- `tables`, `upkeep`: what there is. `changes`: requests, as on the queue of administrators.
- `queries`, `asked`: rows, now or later; `pages`, `forms`: their pages and forms
- `uploads`: files and rows on their way in.
"""
