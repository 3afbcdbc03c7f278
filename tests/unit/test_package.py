"""The built wheel and source distribution: their files, their metadata, and what they can do."""

from __future__ import annotations

import email
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILD = "import sys, hatchling.build as b; print(getattr(b, sys.argv[1])(sys.argv[2]))"
BUILT = re.compile(
    r"__pycache__|node_modules|\.pyc$|\.so$|^docs/tutorials/|^docs-output/|^test-output/"
    r"|^demo-output/|^dist/|^\.venv/|_cache/"
)
TESTED_PYTHON = "Programming Language :: Python :: 3."


def build(kind, project, folder):
    """Build a distribution in a process of its own, as pip does; return its path."""
    done = subprocess.run(
        [sys.executable, "-c", BUILD, f"build_{kind}", str(folder)],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder / done.stdout.split()[-1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Return the folder of the unpacked wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    with zipfile.ZipFile(build("wheel", ROOT, folder)) as archive:
        archive.extractall(folder / "unpacked")
    return folder / "unpacked"


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    """Return the folder of the unpacked source distribution."""
    folder = tmp_path_factory.mktemp("sdist")
    with tarfile.open(build("sdist", ROOT, folder)) as archive:
        archive.extractall(folder, filter="data")
    (unpacked,) = (path for path in folder.iterdir() if path.is_dir())
    return unpacked


@pytest.fixture(scope="module")
def metadata(wheel):
    """Return the metadata of the wheel as an email message, whose text is the description."""
    (path,) = wheel.glob("*.dist-info/METADATA")
    return email.message_from_string(path.read_text(encoding="utf-8"))


def files(folder):
    """Return the paths of the files in a folder, without bytecode."""
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def package_files(folder):
    """Return the paths of the files of the package in a folder."""
    return {f"autogradviz/{path}" for path in files(folder / "autogradviz")}


def test_wheel_has_every_file_of_the_package_and_nothing_else(wheel):
    packed = files(wheel)
    own = {path for path in packed if ".dist-info/" not in path}
    assert own == package_files(ROOT)
    assert {
        "autogradviz/py.typed",
        "autogradviz/render/static/viewer.js",
        "autogradviz/render/static/viewer_compressed.txt",
        "autogradviz/render/static/viewer.css",
        "autogradviz/recorder/native/module.cpp",
    } < own
    assert any(path.endswith(".dist-info/licenses/LICENSE") for path in packed)


def test_wheel_has_every_source_of_the_native_engine(wheel):
    folder = wheel / "autogradviz" / "recorder" / "native"
    sources = [*folder.glob("*.cpp"), *folder.glob("*.h")]
    included = {
        name
        for source in sources
        for name in re.findall(r'^#include "([\w.]+)"', source.read_text("utf-8"), re.MULTILINE)
    }
    assert len(included) > 10
    assert included <= {source.name for source in sources}


def test_wheel_has_the_guide_for_programs(wheel):
    guide = wheel / "autogradviz" / "skills" / "autogradviz" / "SKILL.md"
    assert guide.read_text("utf-8").startswith("---\nname: autogradviz\ndescription: ")


def test_unpacked_wheel_runs(wheel):
    code = (
        f"import sys; sys.path.insert(0, {str(wheel)!r})\n"
        "import autogradviz\n"
        "from autogradviz.cli import main\n"
        "print(autogradviz.__file__)\n"
        "sys.exit(main(['explain', 'graph-lost']))"
    )
    done = subprocess.run([sys.executable, "-Ic", code], capture_output=True, text=True, check=True)
    first, _, page = done.stdout.partition("\n")
    assert Path(first).parent == wheel / "autogradviz"
    assert "The loss has no graph" in page


@pytest.mark.ci(reason="builds the package twice")
def test_wheel_built_from_the_source_distribution_has_the_same_files(sdist, wheel, tmp_path):
    with zipfile.ZipFile(build("wheel", sdist, tmp_path)) as archive:
        assert set(archive.namelist()) == files(wheel)


def test_source_distribution_has_sources_only(sdist):
    packed = files(sdist)
    assert [path for path in packed if BUILT.search(path)] == []
    assert package_files(ROOT) < packed
    for path in (
        *("CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "README.md", "SECURITY.md"),
        *("assets/viewer/main.js", "assets/build.mjs", "docs/conf.py", "docs/index.md"),
        *("notebooks/01_first_look.ipynb", "tests/conftest.py", "tests/unit/test_package.py"),
    ):
        assert path in packed, path
    assert sum((sdist / path).stat().st_size for path in packed) < 30e6


def test_commands_and_versions_are_in_the_metadata(wheel, metadata):
    from autogradviz import __version__

    (entry_points,) = wheel.glob("*.dist-info/entry_points.txt")
    assert "autogradviz = autogradviz.cli:main" in entry_points.read_text("utf-8")
    assert metadata["Version"] == __version__
    assert metadata["Requires-Python"] == ">=3.10"
    required = [name for name in metadata.get_all("Requires-Dist") if "extra ==" not in name]
    assert "torch>=2.11" in required
    assert {re.match(r"\w+", name)[0] for name in required} == {
        *("anywidget", "graphviz", "ipywidgets", "plotly", "pyarrow", "rich", "torch"),
    }


def test_python_versions_in_the_metadata_are_those_that_were_run(metadata):
    table = (ROOT / "docs" / "versions.md").read_text(encoding="utf-8")
    named = [each for each in metadata.get_all("Classifier") if each.startswith(TESTED_PYTHON)]
    assert named
    for classifier in named:
        version = classifier.rpartition(" ")[2]
        assert re.search(rf"^\| {re.escape(version)}[. |]", table, re.MULTILINE), version


def test_description_has_no_relative_link_or_picture(metadata):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    description = metadata.get_payload()
    targets = re.findall(r"\]\(([^)]*)\)", description)
    assert [each for each in targets if not each.startswith(("https://", "#"))] == []
    assert "![" not in description
    assert "<picture>" not in description
    headings = re.findall(r"^#+ .*", readme, re.MULTILINE)
    assert re.findall(r"^#+ .*", description, re.MULTILINE) == headings
    assert "```python" in description
    assert len(description) > 0.7 * len(readme)


def test_links_of_the_readme_lead_to_files_of_the_source_distribution(sdist):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    targets = [target.partition("#")[0] for target in re.findall(r"\]\(([^)]*)\)", readme)]
    local = [target for target in targets if target and not target.startswith("https://")]
    assert len(local) > 10
    assert [target for target in local if not (sdist / target).exists()] == []
