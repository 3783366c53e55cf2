"""Laboratory configs: one file is one method; `get_config(task)` puts it on a graph task."""
