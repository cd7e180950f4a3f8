"""The schedules' files of `cron.d/`, filled in for one installation and put into their places."""
