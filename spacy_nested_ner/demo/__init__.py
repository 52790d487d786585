"""A local web page to try pipelines in: what it shows (`panes`) and the server (`server`)."""
