"""A job over HTTP: the application, Flink's endpoints, the state endpoints, the catalog of jobs, the page."""
