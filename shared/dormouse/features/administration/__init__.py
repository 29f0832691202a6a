"""Administrators' requests: carried out once, followed to their end, answered.

- `administer`: the stage that carries out a request or refuses it.
- `about`: a request with its table, its earlier deliveries and its replies.
- `registry`: all verbs, and the function that carries out each.
- `answering`: the objects stored for requests with unfinished jobs.
- `follow_request`: check whether the jobs of a request have ended, and reply.
- `last_attempt`: reply to a request whose last delivery failed.
- `malformed`: refuse a message that is no request.
"""
