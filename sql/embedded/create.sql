-- What a new embedded cluster begins with; run in single-user mode, one statement a line.
CREATE DATABASE quota;
