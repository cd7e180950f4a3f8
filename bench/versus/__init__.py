"""quota-worker and Prometheus Alertmanager: the same alerts, the same faults, one receiver."""
