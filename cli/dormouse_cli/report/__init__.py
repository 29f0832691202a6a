"""`dormouse report`: a table on one page, for a browser that needs no network.

The parts, lowest first: ``outline`` (a partition tree of any size, in as many blocks as a picture
bears), ``contents`` (the page's contents, as plain values), ``figures`` (the pictures), ``page``.
"""
