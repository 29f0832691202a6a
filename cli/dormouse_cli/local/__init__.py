"""An embedded AWS and Lambda host: the project's own template, running on one machine.

`stack.LocalStack` is the entrance; `commands` puts it on the command line. The parts, lowest first:
`plan`, `resources`, `template` (what to deploy) → `moto_*` (AWS's services) → `lambda_host`
(functions) → `event_sources` (what invokes them) → `stack`, `detached`, `signals` → `commands`.

What differs from AWS: queues are standard, not FIFO; nothing expires (TTL, lifecycle rules); memory
sizes and IAM policies are not enforced; schedules are rates; rules on event patterns never fire;
a sandbox may take a minute to initialise, where Lambda allows ten seconds; and no event source runs
more batches at once than the machine has processors.
"""
