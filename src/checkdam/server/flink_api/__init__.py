"""The endpoints of Flink's REST interface, and the few that Flink does not have."""
