"""Kubernetes's manifests: each field by the documented API; by its schemas where they are at hand."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from schedules.world import plan
from worker.install.filling import ENV_FILE, PROGRAM, Installation

KINDS = {"CronJob": False, "Deployment": True}
# The fields that these manifests may have, by the API reference of batch/v1, apps/v1 and core/v1:
# a type is a value of that type, a list a list of such.
STRINGS = {str: str}
CONTAINER: dict[str, Any] = {
    "name": str,
    "image": str,
    "command": [str],
    "envFrom": [{"secretRef": {"name": str, "optional": bool}}],
    "volumeMounts": [{"name": str, "mountPath": str, "readOnly": bool}],
    "resources": {"requests": STRINGS, "limits": STRINGS},
    "securityContext": {
        "allowPrivilegeEscalation": bool,
        "readOnlyRootFilesystem": bool,
        "capabilities": {"drop": [str]},
    },
}
POD: dict[str, Any] = {
    "metadata": {"labels": STRINGS},
    "spec": {
        "restartPolicy": str,
        "terminationGracePeriodSeconds": int,
        "automountServiceAccountToken": bool,
        "securityContext": {"runAsNonRoot": bool, "runAsUser": int, "fsGroup": int},
        "volumes": [
            {"name": str, "secret": {"secretName": str, "optional": bool, "defaultMode": int}}
        ],
        "containers": [CONTAINER],
    },
}
HEAD = {"apiVersion": str, "kind": str, "metadata": {"name": str}}
SCHEMAS: dict[str, dict[str, Any]] = {
    "CronJob": HEAD
    | {
        "spec": {
            "schedule": str,
            "concurrencyPolicy": str,
            "startingDeadlineSeconds": int,
            "successfulJobsHistoryLimit": int,
            "failedJobsHistoryLimit": int,
            "jobTemplate": {
                "spec": {"backoffLimit": int, "activeDeadlineSeconds": int, "template": POD}
            },
        }
    },
    "Deployment": HEAD
    | {
        "spec": {"replicas": int, "selector": {"matchLabels": STRINGS}, "template": POD},
    },
}


def faults(value: Any, schema: Any, place: str) -> list[str]:
    if schema == STRINGS:
        good = isinstance(value, dict) and all(type(v) is str for v in value.values())
        return [] if good else [place]
    if isinstance(schema, dict):
        if not isinstance(value, dict):
            return [place]
        unknown = [f"{place}.{name}" for name in value if name not in schema]
        return unknown + [
            fault
            for name, inner in value.items()
            if name in schema
            for fault in faults(inner, schema[name], f"{place}.{name}")
        ]
    if isinstance(schema, list):
        if not isinstance(value, list):
            return [place]
        return [fault for inner in value for fault in faults(inner, schema[0], f"{place}[]")]
    return [] if type(value) is schema else [place]


def manifest(kind: str, image: str = "registry.example.com:5000/a/quota-worker:0.1.0") -> str:
    made = Installation(PROGRAM, ENV_FILE, image=image).checked()
    (file,) = plan("kubernetes", made, folder=Path("/d"), long_running=KINDS[kind]).files
    return file.marked


def pod_of(document: dict[str, Any]) -> dict[str, Any]:
    spec = document["spec"]
    return (spec["jobTemplate"]["spec"] if "jobTemplate" in spec else spec)["template"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_is_one_of_the_api(kind: str) -> None:
    document = yaml.safe_load(manifest(kind))
    assert document["kind"] == kind
    assert faults(document, SCHEMAS[kind], kind) == []
    # a cluster refuses what lacks these
    pod = pod_of(document)
    (container,) = pod["spec"]["containers"]
    assert container["image"] == "registry.example.com:5000/a/quota-worker:0.1.0"
    assert container["command"] == ["quota-worker", "schedule" if KINDS[kind] else "tick"]
    volumes = {volume["name"] for volume in pod["spec"]["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
    if kind == "Deployment":
        assert document["spec"]["selector"]["matchLabels"] == pod["metadata"]["labels"]
        assert "restartPolicy" not in pod["spec"]  # only Always is allowed, and the default
    else:
        assert pod["spec"]["restartPolicy"] in {"Never", "OnFailure"}
        assert document["spec"]["concurrencyPolicy"] in {"Allow", "Forbid", "Replace"}


def test_the_check_finds_a_field_that_is_none_and_a_wrong_type() -> None:
    document = yaml.safe_load(manifest("CronJob"))
    document["spec"]["schedul"] = "x"
    document["spec"]["startingDeadlineSeconds"] = "200"
    assert sorted(faults(document, SCHEMAS["CronJob"], "c")) == [
        "c.spec.schedul",
        "c.spec.startingDeadlineSeconds",
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_the_schemas_of_kubernetes_take_it(kind: str, tmp_path: Path) -> None:
    validate = os.environ.get("QUOTA_WORKER_KUBERNETES")
    if not validate:
        pytest.skip("kubernetes-validate isn't named: `make kubernetes` installs it")
    for name, text in (
        ("good", manifest(kind)),
        ("bad", manifest(kind).replace("  name: quota-worker\n", "  nam: quota-worker\n", 1)),
    ):
        path = tmp_path / f"{name}.yaml"
        path.write_text(text)
        done = subprocess.run(
            [validate, "--strict", str(path)], capture_output=True, text=True, check=False
        )
        assert (done.returncode == 0) == (name == "good"), done.stdout + done.stderr
    print(done.stdout.strip())  # noqa: T201  `make kubernetes` shows it
