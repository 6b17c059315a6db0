SELECT at, message FROM log;
