"""Exports: the rows of one version, written to Parquet files with a manifest.

- `request`: check an `export_rows` request, plan its tasks and start them.
- `pins`: the pin that keeps the version while an export runs.
- `export`: an export, its tasks, and their stored forms.
- `stored`: save, load and delete what is stored of a running export.
- `export_rows`: the stage that runs one task, or all of them in one job.
- `export_task`: write the files of one task.
- `files`: write one Parquet file, and read back where it ends.
- `manifests`: the manifest, written last.
"""
