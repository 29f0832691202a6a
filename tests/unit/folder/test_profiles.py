"""Which instance is meant by a name, a path, a URL, or the configuration file."""

from __future__ import annotations

from pathlib import Path

import pytest

from dormouse.errors import InvalidRequestError
from dormouse.settings import Profile, Settings, find_profile


def environment(tmp_path: Path, text: str) -> dict[str, str]:
    path = tmp_path / "config.toml"
    path.write_text(text)
    return {"DORMOUSE_CONFIG": str(path), "DORMOUSE_ACCOUNT": "1"}


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("./mice", "mice"),
        (".", "."),
        ("../mice", "../mice"),
        ("/data/mice", "/data/mice"),
        ("data/mice", "data/mice"),
        ("file:///data/mi%20ce", "/data/mi ce"),
        ("file:/data/mice", "/data/mice"),
        ("file://localhost/data/mice", "/data/mice"),
    ],
)
def test_a_path_or_a_file_url_is_a_folder(name: str, folder: str) -> None:
    assert find_profile(name, {}).folder == Path(folder)


def test_a_tilde_is_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/hazel")
    assert find_profile("~/mice", {}).folder == Path("/home/hazel/mice")


@pytest.mark.parametrize("name", ["file://elsewhere/mice", "file:"])
def test_a_url_of_another_machine_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequestError, match="names no folder of this machine"):
        find_profile(name, {})


def test_a_name_is_a_deployment_unless_a_profile_has_it(tmp_path: Path) -> None:
    given = environment(
        tmp_path,
        '[profiles.laptop]\nfolder = "mice"\n[profiles.live]\ninstance = "prod"\naccount = "42"\n',
    )
    assert find_profile("dev", given) == Profile("dev")
    assert find_profile("live", given) == Profile("prod", "42")
    assert find_profile("laptop", given).folder == tmp_path / "mice"
    settings = Settings.from_environment(given, instance="live")
    assert (settings.instance, settings.account, settings.folder) == ("prod", "42", None)


def test_the_default_of_the_file_counts_if_nothing_else_is_named(tmp_path: Path) -> None:
    given = environment(tmp_path, 'instance = "laptop"\n[profiles.laptop]\nfolder = "/data/mice"\n')
    assert Settings.from_environment(given).folder == Path("/data/mice")
    assert Settings.from_environment({**given, "DORMOUSE_INSTANCE": "dev"}).instance == "dev"


def test_the_file_of_the_user_is_looked_for_where_such_files_are(tmp_path: Path) -> None:
    (tmp_path / "dormouse").mkdir()
    (tmp_path / "dormouse" / "config.toml").write_text('instance = "dev"\n')
    assert find_profile("", {"XDG_CONFIG_HOME": str(tmp_path)}) == Profile("dev")


def test_no_name_says_how_to_give_one(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="no instance is named") as raised:
        find_profile("", {"XDG_CONFIG_HOME": str(tmp_path)})
    assert "--instance" in raised.value.hint
    assert "./mice" in raised.value.hint


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("instance = laptop", "Invalid value"),
        ("instance = 5", r"Expected `str`, got `int` - at `\$.instance`"),
        ("profiles = 5", r"Expected `object`, got `int` - at `\$.profiles`"),
        ("[profiles]\nlaptop = 5", "the profile 'laptop': Expected `object`, got `int`"),
        ("[profiles.laptop]\nfoldre = '.'", "did you mean folder"),
        ("[profiles.laptop]\naccount = '1'", "either a folder or an instance"),
        ("[profiles.laptop]\nfolder = '.'\ninstance = 'x'", "either a folder or an instance"),
        (
            "[profiles.laptop]\nfolder = 5",
            r"the profile 'laptop': Expected `str`, got `int` - at `\$.folder`",
        ),
    ],
)
def test_a_malformed_file_is_refused_with_what_is_wrong(
    tmp_path: Path, text: str, says: str
) -> None:
    given = environment(tmp_path, text)
    with pytest.raises(InvalidRequestError, match=says) as raised:
        find_profile("" if text.startswith("instance") else "laptop", given)
    assert given["DORMOUSE_CONFIG"] in str(raised.value)
    assert raised.value.hint
