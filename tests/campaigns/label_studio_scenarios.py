"""What is played in every backend: with a real Label Studio, with the one in memory, and with what was recorded."""

from __future__ import annotations

import pytest

from campaigns.label_studio_backends import LabelStudioBackend
from teeter.campaigns.campaign import Campaign
from teeter.errors import ServerError

__all__ = ["SCENARIOS"]


def truth(item: str) -> str:
    return ("even", "odd")[int(item[1:]) % 2]


def held(campaign: Campaign) -> dict[str, str]:
    """What people say now, by item."""
    with campaign.database.reading() as connection:
        answers = campaign.repository.answers.live(connection)
    assert len({(one.item, one.annotator) for one in answers}) == len(answers)
    assert {one.annotator for one in answers} <= {"ann@example.com"}
    return {one.item: one.label or one.kind for one in answers}


def rounds(backend: LabelStudioBackend) -> None:
    """Two rounds; a skip that is asked again, a change, a deletion, and a sync that finds nothing to do."""
    campaign = backend.campaign()
    first = backend.sync(campaign, n=6)
    assert (first.made, first.sent, first.waiting, first.model) == (True, 6, 6, None)
    asked = [question.item for question in campaign.ask(6, "label-studio")]
    assert backend.annotate(6, lambda item: None if item == asked[2] else truth(item)) in (
        asked,
        [],
    ), "the best first"
    second = backend.sync(campaign, n=6)
    assert (second.labels, second.skips, second.model, second.sent) == (5, 1, 1, 6)
    assert held(campaign) == {item: "skip" if item == asked[2] else truth(item) for item in asked}
    again = backend.sync(campaign, n=6)
    assert not again.is_news
    assert again.waiting == 6
    wrong = "odd" if truth(asked[0]) == "even" else "even"
    if backend.is_live:
        backend.change(asked[0], wrong)
        backend.change(asked[2], truth(asked[2]))
        backend.delete(asked[1])
    third = backend.sync(campaign, n=6)
    assert (third.labels, third.corrected, third.withdrawn, third.waiting, third.sent) == (
        0,
        2,
        1,
        6,
        0,
    )
    assert asked[1] in {pick.item for pick in campaign.ask(20, "label-studio")}, "it is asked again"
    expected = {item: truth(item) for item in asked if item != asked[1]} | {asked[0]: wrong}
    assert held(campaign) == expected


def strangers(backend: LabelStudioBackend) -> None:
    """Tasks of others, labels that are no classes, a class that is added, and classes that are hard to write."""
    names = ("even", "odd", '<a> & "b"', "US$5")
    campaign = backend.campaign(names, instructions="Look <closely>.\nThen choose.")
    backend.sync(campaign, n=4)
    if backend.is_live:
        backend.add_foreign_task()
    strange = {0: names[2], 1: names[3], 2: "neither"}
    asked = [question.item for question in campaign.ask(4, "label-studio")]
    backend.annotate(3, lambda item: strange[asked.index(item)])
    second = backend.sync(campaign, n=4)
    assert second.labels == 2
    assert second.notes[0] == "Not of this campaign, and left alone: 1 task of the project."
    assert second.notes[1].startswith(
        "No class is called 'neither', as 1 annotation would have it (there are even, odd,"
    )
    assert held(campaign) == {asked[0]: names[2], asked[1]: names[3]}
    campaign.add_class("neither")
    third = backend.sync(campaign, n=4)
    assert (third.labels, len(third.notes)) == (1, 1)
    assert held(campaign)[asked[2]] == "neither"
    if backend.is_live:
        config = backend.people[0].get(f"/api/projects/{backend.project}/").json()["label_config"]
        assert 'value="neither"' in config


def personal(backend: LabelStudioBackend) -> None:
    """A personal access token gets a new access for every five minutes."""
    campaign = backend.campaign()
    assert backend.sync(campaign, "personal", n=2).sent == 2


def images(backend: LabelStudioBackend) -> None:
    """Images are uploaded, those that no browser shows as PNG."""
    from PIL import Image

    folder = backend.folder / "images"
    (folder / "deep").mkdir(parents=True)
    for k, name in enumerate(("a b.png", "deep/ü.jpg", "c.tiff")):
        Image.new("RGB", (8, 8), (80 * k, 10, 10)).save(folder / name)
    from teeter.campaigns.campaign import Settings

    settings = Settings(kind="image", folder=str(folder))
    campaign = Campaign.create(
        backend.folder / "images.teeter", "images", ("red", "black"), settings
    )
    campaign.add(["a b.png", "deep/ü.jpg", "c.tiff"])
    assert backend.sync(campaign, n=3).sent == 3
    if backend.is_live:
        shown = {task["data"]["teeter_item"]: task["data"]["image"] for task in backend.tasks()}
        assert set(shown) == {"a b.png", "deep/ü.jpg", "c.tiff"}
        assert shown["c.tiff"].endswith(".png")


def together(backend: LabelStudioBackend) -> None:
    """Two people answer the same, as the campaign would have it; what one skips, both are asked again."""
    backend.invite("bob@example.com")
    campaign = backend.campaign(overlap=1.0, people=2)
    backend.sync(campaign, n=4)
    backend.annotate(4, truth, 0)
    half = backend.sync(campaign, n=4)
    assert (half.labels, half.sent, half.waiting) == (4, 0, 4), (
        "the same four wait for somebody else"
    )
    asked = [question.item for question in campaign.ask(4, "label-studio")]
    differs = {asked[1]: "even" if truth(asked[1]) == "odd" else "odd", asked[2]: None}
    backend.annotate(4, lambda item: differs.get(item, truth(item)), 1)
    last = backend.sync(campaign, n=4)
    assert (last.labels, last.skips, last.waiting) == (3, 1, 4)
    assert campaign.status().disagreements == 1
    assert {one.name: one.answers for one in campaign.team()} == {
        "ann@example.com": 4,
        "bob@example.com": 4,
    }


def refusals(backend: LabelStudioBackend) -> None:
    """A wrong token, a wrong address, and a project that is deleted, then made anew: nothing is lost."""
    campaign = backend.campaign()
    with pytest.raises(
        ServerError, match=r"refuses the token \(Invalid token.\): it is wrong or ended"
    ):
        backend.sync(campaign, "f" * 40)
    with pytest.raises(
        ServerError, match=r"refuses the token \(Token is invalid\): it is wrong or ended; make one"
    ):
        backend.sync(campaign, "wrong.wrong.wrong")
    with pytest.raises(
        ServerError, match=r"There is no Label Studio at http://127.0.0.1:\d+/elsewhere: check"
    ):
        backend.sync(campaign, url=f"{backend.url}/elsewhere")
    backend.sync(campaign, n=4)
    asked = [question.item for question in campaign.ask(4, "label-studio")]
    backend.annotate(1, truth)
    backend.sync(campaign, n=4)
    if backend.is_live:
        backend.delete_project()
    with pytest.raises(
        ServerError, match=r"has no project \d+ any more: begin another with --new-project"
    ):
        backend.sync(campaign, n=4)
    anew = backend.sync(campaign, n=4, new_project=True)
    assert (anew.made, anew.sent, anew.labels, anew.withdrawn) == (True, 3, 0, 0)
    assert held(campaign) == {asked[0]: truth(asked[0])}


SCENARIOS = {
    scenario.__name__: scenario
    for scenario in (rounds, strangers, personal, images, together, refusals)
}
