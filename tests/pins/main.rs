//! Dependency behaviour that the broker relies on or works around.
