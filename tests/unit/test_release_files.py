"""The files that a release needs: workflows, templates, recipe, page of versions."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
PYPROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
CONDA_NAMES = {"torch": "pytorch", "graphviz": "python-graphviz"}

sys.path[:0] = [str(ROOT / "docs"), str(ROOT / "release")]


def load(path):
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def steps(workflow):
    return [step for job in load(workflow)["jobs"].values() for step in job.get("steps", [])]


def test_there_are_workflows_for_tests_sanitizers_wheels_docs_and_releases():
    assert {path.stem for path in WORKFLOWS} == {"docs", "release", "sanitizers", "tests", "wheels"}


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_workflow_calls_targets_that_exist(workflow):
    commands = [step["run"] for step in steps(workflow) if "run" in step]
    called = {name for run in commands for name in re.findall(r"\bmake ([a-z-]+)", run)}
    assert called <= TARGETS
    assert called or workflow.stem == "release"


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_workflow_may_only_read_and_names_versions_of_actions(workflow):
    content = load(workflow)
    assert content["permissions"] == {"contents": "read"}
    used = [step["uses"] for step in steps(workflow) if "uses" in step]
    assert all(re.fullmatch(r"[\w-]+/[\w-]+@[\w./-]+", each) for each in used)


def test_publishing_uses_no_password():
    job = load(GITHUB / "workflows" / "release.yml")["jobs"]["publish"]
    assert job["permissions"] == {"id-token": "write"}
    assert job["environment"] == "release"
    assert "secrets." not in (GITHUB / "workflows" / "release.yml").read_text(encoding="utf-8")


def test_versions_that_ci_runs_are_supported():
    from build_engines import load as load_source

    versions = load(GITHUB / "workflows" / "tests.yml")["jobs"]["versions"]
    pairs = versions["strategy"]["matrix"]["include"]
    minors = {each["torch"].rpartition(".")[0] for each in pairs}
    assert set(load_source("supported_versions").SUPPORTED_TORCH) <= minors


def test_templates_ask_for_the_recording_and_a_reproduction():
    templates = [load(path) for path in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml")]
    forms = [each["body"] for each in templates if "body" in each]
    assert len(forms) == 3
    for body in forms:
        fields = {
            field["id"]: field["attributes"]["description"]
            for field in body
            if "description" in field["attributes"]
        }
        assert "reproduction" in fields
        assert "autogradviz show" in fields["versions"]
    assert (GITHUB / "pull_request_template.md").exists()


def test_dependabot_watches_folders_that_exist():
    for update in load(GITHUB / "dependabot.yml")["updates"]:
        for folder in update.get("directories", [update.get("directory")]):
            assert (ROOT / folder.strip("/")).is_dir()


def test_hooks_before_a_commit_run_tools_that_development_installs():
    hooks = [
        hook for repo in load(ROOT / ".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]
    ]
    for hook in hooks:
        tool, *arguments = hook["entry"].split()
        assert tool.startswith(".venv/bin/")
        assert all((ROOT / each).exists() for each in arguments if each.endswith(".py"))


def dependencies():
    block = PYPROJECT.partition("\ndependencies = [")[2].partition("]")[0]
    return dict(re.findall(r'"([a-z-]+)([^"]*)"', block))


def test_recipe_has_the_version_and_the_requirements_of_the_package():
    from autogradviz import __version__

    text = (ROOT / "release" / "conda" / "meta.yaml").read_text(encoding="utf-8")
    assert f'version = "{__version__}"' in text
    plain = re.sub(r"{{.*?}}", "x", re.sub(r"{%.*?%}", "", text))
    required = dict(each.split() for each in yaml.safe_load(plain)["requirements"]["run"])
    expected = {CONDA_NAMES.get(name, name): wanted for name, wanted in dependencies().items()}
    assert required == {"python": ">=3.10", **expected}


def test_changelog_has_a_dated_section_of_the_version():
    from check_release import released_on

    assert released_on() is not None


def test_table_of_versions_is_that_of_the_results():
    import generate_versions

    text = generate_versions.PAGE.read_text(encoding="utf-8")
    assert generate_versions.page(text) == text
    for result in generate_versions.results():
        assert result["passed"] > 0
        assert len(result["failures"]) == min(result["failed"], 40)


def test_results_name_the_pair_that_was_run():
    for path in (ROOT / "tests" / "versions" / "results").glob("*.json"):
        result = json.loads(path.read_text(encoding="utf-8"))
        minor = ".".join(result["python"].split(".")[:2])
        release = result["torch"].partition("+")[0]
        assert path.name.startswith(f"python-{minor}-torch-{release}-")
