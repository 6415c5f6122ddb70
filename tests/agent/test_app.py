"""New settings while the agent runs: taken as a whole, or not at all."""

from pathlib import Path

from msgspec.structs import replace

from agent.app import Agent, _reload
from agent.settings import ServerSettings, Settings, ThresholdSettings
from agent.web.web_file import WebFile

CHAT = ServerSettings(url="http://127.0.0.1:1", name="chat")
OLD = Settings(servers=(CHAT,), discovery=False)


def names(agent: Agent) -> list[str]:
    return [watch.facts.name for watch in agent.fleet.watches]


def test_what_nobody_expected_leaves_the_old_settings_in_force(tmp_path: Path) -> None:
    """Half of them is worse than none: servers, web config and pace stay; who asked is answered with a sentence."""
    agent = Agent(OLD, web=WebFile(), simulated_state=tmp_path / "node.state")
    (tmp_path / "web.yml").write_text("basic_auth_users: {}\n")
    unchecked = replace(
        OLD,
        servers=(replace(CHAT, name="renamed"), ServerSettings(url="http://é☃.x")),
        web_config_file=str(tmp_path / "web.yml"),
    )

    answer = _reload(agent, lambda: unchecked)

    assert answer == "unexpected ValueError; please report this bug of vramscope"
    assert (agent.settings, names(agent)) == (OLD, ["chat"])
    reload = agent.board.tick().snapshot.reload
    assert reload is not None
    assert not reload.success


def test_a_web_config_that_can_not_be_used_keeps_the_servers_too(tmp_path: Path) -> None:
    """Servers are not taken from settings that are refused for another reason."""
    agent = Agent(OLD, web=WebFile(), simulated_state=tmp_path / "node.state")
    missing = replace(OLD, servers=(replace(CHAT, name="renamed"),), web_config_file=str(tmp_path / "web.yml"))

    answer = _reload(agent, lambda: missing)

    assert answer is not None
    assert "web.yml" in answer
    assert (agent.settings, names(agent)) == (OLD, ["chat"])


def test_the_rule_of_headroom_is_taken_over(tmp_path: Path) -> None:
    """From the start, and by a reload; the snapshot tells it to page and terminal."""
    strict, lax = (replace(OLD, thresholds=ThresholdSettings(headroom_ratio=ratio)) for ratio in (0.2, 0.05))
    agent = Agent(strict, web=WebFile(), simulated_state=tmp_path / "node.state")
    before = agent.board.tick().snapshot.thresholds.headroom_ratio

    answer = _reload(agent, lambda: lax)

    assert answer is None
    assert (before, agent.board.tick().snapshot.thresholds.headroom_ratio) == (0.2, 0.05)
