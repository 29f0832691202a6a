"""How a query begins: `planning` checks it and cuts it into sub-queries; `cutting`, if it is a
statement in SQL.
"""
