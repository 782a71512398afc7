"""The alerts and the dashboard name metrics that there are, and every one says why it is there."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from prometheus_client import CollectorRegistry

import selectroute as sr
from selectroute.service.app import create_app
from selectroute.spark.stream.metrics import StreamMetrics

FOLDER = Path(__file__).parents[3] / "streaming"
_NAME = re.compile(r"selectroute_\w+")


@pytest.fixture
def known(tmp_path):
    """The names of all samples that the job and the service can show."""

    def names(registry: CollectorRegistry):
        for family in registry.collect():
            endings = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}
            yield from (family.name + ending for ending in endings.get(family.type, [""]))

    with sr.Registry.open(f"sqlite:///{tmp_path}/r.db") as registry:
        service = create_app(registry).state.service
        service.publishing.start()
        service.publishing.caught_up(registry.revision, 60)
        found = {*names(StreamMetrics().registry), *names(service.metrics.registry)}
        service.publishing.stop()
    return found


class OnceLoader(yaml.SafeLoader):
    """Loader that refuses a key that is there twice, as Prometheus and Kubernetes do."""

    def construct_mapping(self, node, deep=False):
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        assert len(set(keys)) == len(keys), f"{sorted(keys)}{node.start_mark}"
        return super().construct_mapping(node, deep)


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.yaml")), ids=lambda path: path.name)
def test_no_key_of_a_yaml_file_is_there_twice(path):
    assert list(yaml.load_all(path.read_text(), OnceLoader))


def test_every_alert_names_metrics_that_there_are_and_says_what_to_do(known):
    (group,) = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"]
    names = [rule["alert"] for rule in group["rules"]]
    assert "SelectrouteDeadLetters" in names and len(set(names)) == len(names)
    for rule in group["rules"]:
        assert set(_NAME.findall(rule["expr"])) <= known, rule["alert"]
        assert set(rule["annotations"]) == {"summary", "action"}


def test_every_panel_names_metrics_that_there_are_and_says_why(known):
    dashboard = json.loads((FOLDER / "dashboard.json").read_text())
    for panel in dashboard["panels"]:
        assert panel["description"].endswith(".")
        for target in panel["targets"]:
            names = _NAME.findall(target["expr"])
            assert names and set(names) <= known, panel["title"]
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
