"""What is played in every world: with a real Label Studio, with the one in memory, and with what was recorded."""

from __future__ import annotations

import pytest

from campaigns.worlds import World
from teeter.campaigns.campaign import Campaign
from teeter.errors import ServerError

__all__ = ["SCENES"]


def truth(item: str) -> str:
    return ("even", "odd")[int(item[1:]) % 2]


def held(campaign: Campaign) -> dict[str, str]:
    """What people say now, by item."""
    with campaign.store.reading() as connection:
        answers = campaign.ledger.answers(connection)
    assert len({(one.item, one.annotator) for one in answers}) == len(answers)
    assert {one.annotator for one in answers} <= {"ann@example.com"}
    return {one.item: one.label or one.kind for one in answers}


def rounds(world: World) -> None:
    """Two rounds; a skip that is asked again, a change, a deletion, and a sync that finds nothing to do."""
    campaign = world.campaign()
    first = world.sync(campaign, n=6)
    assert (first.made, first.sent, first.waiting, first.model) == (True, 6, 6, None)
    asked = [question.item for question in campaign.ask(6, "label-studio")]
    assert world.annotate(6, lambda item: None if item == asked[2] else truth(item)) in (asked, []), "the best first"
    second = world.sync(campaign, n=6)
    assert (second.labels, second.skips, second.model, second.sent) == (5, 1, 1, 6)
    assert held(campaign) == {item: "skip" if item == asked[2] else truth(item) for item in asked}
    again = world.sync(campaign, n=6)
    assert not again.is_news
    assert again.waiting == 6
    wrong = "odd" if truth(asked[0]) == "even" else "even"
    if world.is_live:
        world.change(asked[0], wrong)
        world.change(asked[2], truth(asked[2]))
        world.delete(asked[1])
    third = world.sync(campaign, n=6)
    assert (third.labels, third.corrected, third.withdrawn, third.waiting, third.sent) == (0, 2, 1, 6, 0)
    assert asked[1] in {pick.item for pick in campaign.ask(20, "label-studio")}, "it is asked again"
    expected = {item: truth(item) for item in asked if item != asked[1]} | {asked[0]: wrong}
    assert held(campaign) == expected


def strangers(world: World) -> None:
    """Tasks of others, labels that are no classes, a class that is added, and classes that are hard to write."""
    names = ("even", "odd", '<a> & "b"', "US$5")
    campaign = world.campaign(names, instructions="Look <closely>.\nThen choose.")
    world.sync(campaign, n=4)
    if world.is_live:
        world.add_foreign_task()
    strange = {0: names[2], 1: names[3], 2: "neither"}
    asked = [question.item for question in campaign.ask(4, "label-studio")]
    world.annotate(3, lambda item: strange[asked.index(item)])
    second = world.sync(campaign, n=4)
    assert second.labels == 2
    assert second.notes[0] == "Not of this campaign, and left alone: 1 task of the project."
    assert second.notes[1].startswith(
        "No class is called 'neither', as 1 annotation would have it (there are even, odd,"
    )
    assert held(campaign) == {asked[0]: names[2], asked[1]: names[3]}
    campaign.add_class("neither")
    third = world.sync(campaign, n=4)
    assert (third.labels, len(third.notes)) == (1, 1)
    assert held(campaign)[asked[2]] == "neither"
    if world.is_live:
        config = world.people[0].get(f"/api/projects/{world.project}/").json()["label_config"]
        assert 'value="neither"' in config


def personal(world: World) -> None:
    """A personal access token gets a new access for every five minutes."""
    campaign = world.campaign()
    assert world.sync(campaign, "personal", n=2).sent == 2


def images(world: World) -> None:
    """Images are uploaded, those that no browser shows as PNG."""
    from PIL import Image

    folder = world.folder / "images"
    (folder / "deep").mkdir(parents=True)
    for k, name in enumerate(("a b.png", "deep/ü.jpg", "c.tiff")):
        Image.new("RGB", (8, 8), (80 * k, 10, 10)).save(folder / name)
    from teeter.campaigns.campaign import Settings

    settings = Settings(kind="image", folder=str(folder))
    campaign = Campaign.create(world.folder / "images.teeter", "images", ("red", "black"), settings)
    campaign.add(["a b.png", "deep/ü.jpg", "c.tiff"])
    assert world.sync(campaign, n=3).sent == 3
    if world.is_live:
        shown = {task["data"]["teeter_item"]: task["data"]["image"] for task in world.tasks()}
        assert set(shown) == {"a b.png", "deep/ü.jpg", "c.tiff"}
        assert shown["c.tiff"].endswith(".png")


def together(world: World) -> None:
    """Two people answer the same, as the campaign would have it; what one skips, both are asked again."""
    world.invite("bob@example.com")
    campaign = world.campaign(overlap=1.0, people=2)
    world.sync(campaign, n=4)
    world.annotate(4, truth, 0)
    half = world.sync(campaign, n=4)
    assert (half.labels, half.sent, half.waiting) == (4, 0, 4), "the same four wait for somebody else"
    asked = [question.item for question in campaign.ask(4, "label-studio")]
    differs = {asked[1]: "even" if truth(asked[1]) == "odd" else "odd", asked[2]: None}
    world.annotate(4, lambda item: differs.get(item, truth(item)), 1)
    last = world.sync(campaign, n=4)
    assert (last.labels, last.skips, last.waiting) == (3, 1, 4)
    assert campaign.status().disagreements == 1
    assert {one.name: one.answers for one in campaign.team()} == {"ann@example.com": 4, "bob@example.com": 4}


def refusals(world: World) -> None:
    """A wrong token, a wrong address, and a project that is deleted, then made anew: nothing is lost."""
    campaign = world.campaign()
    with pytest.raises(ServerError, match=r"refuses the token \(Invalid token.\): it is wrong or ended"):
        world.sync(campaign, "f" * 40)
    with pytest.raises(ServerError, match=r"refuses the token \(Token is invalid\): it is wrong or ended; make one"):
        world.sync(campaign, "wrong.wrong.wrong")
    with pytest.raises(ServerError, match=r"There is no Label Studio at http://127.0.0.1:\d+/elsewhere: check"):
        world.sync(campaign, url=f"{world.url}/elsewhere")
    world.sync(campaign, n=4)
    asked = [question.item for question in campaign.ask(4, "label-studio")]
    world.annotate(1, truth)
    world.sync(campaign, n=4)
    if world.is_live:
        world.delete_project()
    with pytest.raises(ServerError, match=r"has no project \d+ any more: begin another with --new-project"):
        world.sync(campaign, n=4)
    anew = world.sync(campaign, n=4, new_project=True)
    assert (anew.made, anew.sent, anew.labels, anew.withdrawn) == (True, 3, 0, 0)
    assert held(campaign) == {asked[0]: truth(asked[0])}


SCENES = {scene.__name__: scene for scene in (rounds, strangers, personal, images, together, refusals)}
