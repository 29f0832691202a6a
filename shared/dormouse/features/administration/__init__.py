"""Administrators' requests: carry them out once, follow their jobs, reply.

- `administer`: the stage that carries out a request or refuses it.
- `request_context`: a request with its table, its earlier deliveries and its replies.
- `stored_requests`: the objects stored for requests with unfinished jobs.
- `follow_request`: check whether the jobs of a request have ended, and reply.
- `last_attempt`: reply to a request whose last delivery failed.
- `malformed`: refuse a message that is not a valid request.
"""
