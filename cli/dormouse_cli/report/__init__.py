"""`dormouse report`: a table on one page, for a browser that needs no network.

``contents`` has the page's contents as plain values, ``page`` the pictures and the page.
"""
