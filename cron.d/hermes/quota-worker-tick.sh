#!/usr/bin/env bash
# For `hermes cron create --script`: copy this file to ~/.hermes/scripts (links that lead outside
# are refused, and no arguments are passed). The settings stand in a file of their own, which
# names the configuration file, too: Hermes removes some variables and overrides others.
set -euo pipefail
set -a
# shellcheck source=/dev/null
. /etc/quota-worker/env
set +a
# Hermes drops the log of a good tick, and shows a chat the first 180 letters of a bad one: those
# are to be the failure.
export QUOTA_WORKER_LOG_LEVEL="${QUOTA_WORKER_LOG_LEVEL:-error}"
# exec: Hermes kills only its direct child. stdin is not the agent's.
exec /opt/quota-worker/.venv/bin/quota-worker tick </dev/null
