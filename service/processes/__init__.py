"""Python processes of Spark: forks, the daemon, the archive of classes, executors."""
