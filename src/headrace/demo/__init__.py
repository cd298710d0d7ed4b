"""The main job, end to end: real flights through a share group on Spark into Parquet. ``python -m headrace.demo``."""
