"""The access rules of an instance, changed by its administrators.

- `request`: the requests that grant and revoke
"""
