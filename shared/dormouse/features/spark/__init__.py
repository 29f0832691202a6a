"""Jobs that Spark runs: requested, started, tracked to their end.

- `dispatch_spark`: the stage that starts a run of a job, retries it, or fails the job.
- `track_spark`: the stage that handles the end of a run.
- `jobs`: the rules for each kind of job: is it complete, and what follows.
- `requests`: save, load and delete the stored requests of jobs and the notes of runs.
- `package`: upload the deployed package of Spark jobs to the data bucket.
- `package_files`: the description of that package.
"""
