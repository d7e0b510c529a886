"""The page in a real browser: labelled by keyboard, corrected, reloaded, reopened, on a phone, and
without a server.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from server.browsers import (
    MARKS,
    PATIENCE,
    PHONE,
    check_accessibility,
    open_window,
    page_server,
    sync_api,
    wait_until,
    wait_until_drawn,
)
from server.labelled_campaigns import make_labelled_campaign
from server.servers import HARMFUL, TeeterServeProcess, make_image_campaign, make_text_campaign
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.settings import Settings

pytestmark = MARKS

PAGES = (
    "",
    "/progress",
    "/model",
    "/map",
    "/find",
    "/item?id=html",
    "/classes",
    "/settings",
    "/export",
    "/review",
)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[TeeterServeProcess]:
    file = make_text_campaign(
        tmp_path / "texts.teeter", 200, instructions="Spam wants your money.", cost=0.05
    )
    server = TeeterServeProcess(tmp_path / "home", file).start()
    yield server
    server.stop()


def open_page(browser: Any, address: str, problems: list[str], **options: Any) -> Any:
    """Open a new window at an address."""
    page = open_window(browser, problems, **options)
    page.goto(address)
    return page


def choose_key(page: Any) -> str:
    """Return the shortcut of the right class of the item that is shown."""
    shown = page.locator("#stage .words").inner_text()
    return "1" if re.search("Win|Claim|Urgent|Cheap", shown) else "2"


def label(page: Any, count: int) -> None:
    """Answer by keyboard; each answer shows the next item."""
    for _ in range(count):
        page.locator("#stage .words").wait_for()
        shown = page.locator("#stage").inner_text()
        key = choose_key(page)
        page.keyboard.press(key)
        sync_api.expect(page.locator("#stage")).not_to_have_text(shown)
        assert page.locator("#last li b").first.inner_text() == {"1": "spam", "2": "ham"}[key]


def expect_saved(page: Any, count: int) -> None:
    """Wait until the page says that all answers are saved, and how many there are."""
    sync_api.expect(page.locator("#saved")).to_have_text("All saved")
    sync_api.expect(page.locator("#count")).to_contain_text(f"{count} of")


def read_answers(path: Path) -> dict[str, str | None]:
    """Return what the campaign's file holds: the label, or the kind of answer, of each item."""
    campaign = Campaign.open(path)
    with campaign.reading() as view:
        answers = {answer.item: answer.label or answer.kind for answer in view.answers.live()}
    campaign.database.close()
    return answers


def truth(item: str) -> str:
    return "ham" if item == "html" or int(item[1:]) % 2 else "spam"


def test_items_are_labelled_corrected_and_undone_by_keyboard(browser: Any, tmp_path: Path) -> None:
    file = make_text_campaign(tmp_path / "texts.teeter", 40)
    problems: list[str] = []

    with page_server(file) as address:
        page = open_page(browser, address, problems)
        label(page, 4)
        expect_saved(page, 4)
        answers = read_answers(file)
        assert len(answers) == 4
        assert all(label == truth(item) for item, label in answers.items())

        # Correct the last answer, then take the correction back.
        newest = page.locator("#last li button").first
        item = newest.get_attribute("aria-label").removeprefix("Change ")
        newest.click()
        sync_api.expect(page.locator("#mode")).to_contain_text("You answered")
        page.keyboard.press("2" if truth(item) == "spam" else "1")
        wait_until(lambda: read_answers(file)[item] != truth(item))
        expect_saved(page, 4)
        page.keyboard.press("Backspace")
        wait_until(lambda: read_answers(file)[item] == truth(item))
        expect_saved(page, 4)

        # After a reload the answers are listed, and undo still reaches the newest.
        page.reload()
        sync_api.expect(page.locator("#last li")).to_have_count(4)
        page.locator("#stage .words").wait_for()
        page.keyboard.press("Backspace")
        sync_api.expect(page.locator("#count")).to_contain_text("3 of")
        assert item not in read_answers(file)
        page.context.close()
    assert problems == []


@pytest.mark.slow
def test_fifty_items_by_keyboard(server: TeeterServeProcess, browser: Any, tmp_path: Path) -> None:
    problems: list[str] = []
    page = open_page(browser, server.address, problems)
    sync_api.expect(page.get_by_text("Spam wants your money.")).to_be_visible()

    label(page, 50)
    expect_saved(page, 50)
    answers = read_answers(tmp_path / "texts.teeter")
    assert len(answers) == 50
    assert all(label == truth(item) for item, label in answers.items())
    sync_api.expect(page.locator("#news")).to_contain_text("rained")

    # Correct the third of the last ten, then take the correction back.
    third = page.locator("#last li").nth(2)
    item = third.locator("button").get_attribute("aria-label").removeprefix("Change ")
    third.locator("button").click()
    sync_api.expect(page.locator("#mode")).to_contain_text("You answered")
    wrong = "2" if truth(item) == "spam" else "1"
    page.keyboard.press(wrong)
    expect_saved(page, 50)
    assert read_answers(tmp_path / "texts.teeter")[item] != truth(item)
    page.keyboard.press("Backspace")
    expect_saved(page, 50)
    assert read_answers(tmp_path / "texts.teeter")[item] == truth(item)

    # After a reload the same ten are there, and another undo reaches the answer before.
    page.reload()
    sync_api.expect(page.locator("#last li")).to_have_count(10)
    newest = (
        page.locator("#last li button").first.get_attribute("aria-label").removeprefix("Change ")
    )
    page.locator("#stage .words").wait_for()
    page.keyboard.press("Backspace")
    sync_api.expect(page.locator("#count")).to_contain_text("49 of")
    assert newest not in read_answers(tmp_path / "texts.teeter")
    sync_api.expect(page.locator("#why")).not_to_contain_text("undefined")

    page.keyboard.press("u")
    sync_api.expect(page.locator("#saved")).to_have_text("All saved")
    assert read_answers(tmp_path / "texts.teeter")[newest] == "unsure"

    # A comment goes with the answer, and keys typed into it are no answers.
    page.keyboard.press("Enter")
    page.keyboard.type("12 f u")
    page.keyboard.press("Enter")
    page.keyboard.press("f")
    sync_api.expect(page.locator("#saved")).to_have_text("All saved")
    campaign = Campaign.open(tmp_path / "texts.teeter")
    wait_until(lambda: any(line.get("comment") == "12 f u" for line in campaign.history()))
    campaign.database.close()

    page.keyboard.press("?")
    sync_api.expect(page.locator("#help")).to_be_visible()
    page.keyboard.press("1")
    page.keyboard.press("Escape")
    sync_api.expect(page.locator("#help")).to_be_hidden()
    assert len(read_answers(tmp_path / "texts.teeter")) == 51

    # Closed and opened again, with the server too, everything goes on.
    page.context.close()
    server.stop()
    server.start()
    page = open_page(browser, server.address, problems)
    sync_api.expect(page.locator("#count")).to_contain_text("49 of")
    label(page, 1)
    expect_saved(page, 50)
    page.context.close()
    assert problems == []


@pytest.mark.slow
def test_html_is_text_and_an_export_has_it(
    server: TeeterServeProcess, browser: Any, tmp_path: Path
) -> None:
    problems: list[str] = []
    page = open_page(browser, f"{server.address}/c/texts/find?search=alert", problems)
    page.on("dialog", lambda dialog: problems.append("a script of a text ran"))

    page.locator("#rows a").first.click()
    assert page.locator(".stage.text").inner_text() == HARMFUL
    page.get_by_role("button", name="ham", exact=True).click()
    sync_api.expect(page.get_by_text("me: ham")).to_be_visible()

    page.goto(f"{server.address}/c/texts/export")
    with page.expect_download(timeout=PATIENCE) as coming:
        page.get_by_role("link", name="Download as CSV").click()
    coming.value.save_as(tmp_path / "labels.csv")

    with (tmp_path / "labels.csv").open(newline="", encoding="utf-8") as file:
        rows = {row["id"]: row for row in csv.DictReader(file)}
    assert len(rows) == 201
    assert (rows["html"]["text"], rows["html"]["label"]) == (HARMFUL, "ham")

    page.context.close()
    assert problems == []


@pytest.mark.slow
def test_the_map_opens_items(server: TeeterServeProcess, browser: Any) -> None:
    problems: list[str] = []
    page = open_page(browser, f"{server.address}/c/texts/map", problems)
    sync_api.expect(page.locator("#status")).to_contain_text("201 items")

    drawn = """canvas => {
        const image = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        return image.data.some(value => value > 0);
    }"""
    assert page.locator("#map").evaluate(drawn), "points are drawn"

    box = page.locator("#map").bounding_box()
    for across in range(5, 96, 3):
        for down in range(5, 96, 3):
            page.mouse.click(
                box["x"] + box["width"] * across / 100, box["y"] + box["height"] * down / 100
            )
            if page.locator("#opened a").count():
                break
        if page.locator("#opened a").count():
            break

    page.locator("#opened a").click()
    sync_api.expect(page.get_by_role("heading", name="Answers")).to_be_visible()

    page.context.close()
    assert problems == []


@pytest.mark.slow
def test_an_answer_without_a_server_is_kept_and_sent_again(
    server: TeeterServeProcess, browser: Any, tmp_path: Path
) -> None:
    page = open_page(browser, server.address, [])
    label(page, 2)
    expect_saved(page, 2)

    server.kill()
    page.keyboard.press(choose_key(page))
    sync_api.expect(page.locator("#alarm")).to_contain_text("Not saved")
    sync_api.expect(page.locator("#saved")).to_contain_text("NOT SAVED")
    assert len(read_answers(tmp_path / "texts.teeter")) == 2

    server.start()
    expect_saved(page, 3)
    sync_api.expect(page.locator("#alarm")).to_be_hidden()
    assert len(read_answers(tmp_path / "texts.teeter")) == 3

    page.context.close()


def count_unsent_answers(page: Any) -> int:
    """Return how many answers the browser keeps."""
    count: int = page.evaluate(
        "Object.keys(localStorage).filter((key) => key.startsWith('teeter outbox')).length"
    )
    return count


@pytest.mark.slow
def test_two_tabs_lose_no_answer(server: TeeterServeProcess, browser: Any, tmp_path: Path) -> None:
    first = open_page(browser, server.address, [])
    first.locator("#stage .words").wait_for()
    second = first.context.new_page()
    second.goto(server.address)
    second.locator("#stage .words").wait_for()

    server.kill()
    label(first, 4)
    mine = [
        button.get_attribute("aria-label").removeprefix("Change ")
        for button in first.locator("#last button").all()
    ]

    second.keyboard.press("u")
    sync_api.expect(second.locator("#alarm")).to_contain_text("Not saved")
    assert count_unsent_answers(second) == 5

    first.close(run_before_unload=False)
    server.start()
    sync_api.expect(second.locator("#saved")).to_have_text("All saved")
    assert count_unsent_answers(second) == 4

    first = second.context.new_page()
    first.goto(server.address)
    sync_api.expect(first.locator("#saved")).to_have_text("All saved")
    assert count_unsent_answers(first) == 0

    answers = read_answers(tmp_path / "texts.teeter")
    assert len(mine) == 4
    assert {item: answers[item] for item in mine} == {item: truth(item) for item in mine}

    first.context.close()


@pytest.mark.slow
def test_an_answer_undone_and_given_again_in_another_tab_is_reported(
    server: TeeterServeProcess, browser: Any, tmp_path: Path
) -> None:
    problems: list[str] = []
    page = open_page(browser, server.address, problems)
    label(page, 2)
    expect_saved(page, 2)

    other = page.context.new_page()
    other.goto(server.address)
    other.locator("#stage .words").wait_for()
    other.keyboard.press("Backspace")
    expect_saved(other, 1)
    label(other, 1)
    expect_saved(other, 2)

    page.keyboard.press("Backspace")
    sync_api.expect(page.locator("#alarm")).to_contain_text("Nothing was undone")
    assert len(read_answers(tmp_path / "texts.teeter")) == 2

    page.get_by_role("button", name="Reload").click()
    sync_api.expect(page.locator("#last li b")).to_have_count(2)
    sync_api.expect(page.locator("#alarm")).to_be_hidden()

    assert not problems


@pytest.mark.slow
def test_an_answer_is_undone_while_it_is_on_its_way(
    server: TeeterServeProcess, browser: Any, tmp_path: Path
) -> None:
    page = open_page(browser, server.address, [])
    held: list[Any] = []

    def hold(route: Any) -> None:
        held.append(route)

    page.route("**/answers", hold)
    label(page, 1)
    page.keyboard.press("Backspace")
    sync_api.expect(page.locator("#mode")).to_contain_text("undone")
    assert count_unsent_answers(page) == 2, "the undo waits for the number of the answer"

    (route,) = held
    route.continue_()
    while count_unsent_answers(page):
        page.wait_for_timeout(50)
    assert read_answers(tmp_path / "texts.teeter") == {}
    sync_api.expect(page.locator("#alarm")).to_be_hidden()


@pytest.mark.slow
def test_a_browser_that_keeps_nothing_sends_all_the_same(
    server: TeeterServeProcess, browser: Any
) -> None:
    context = browser.new_context()
    context.add_init_script(
        "Storage.prototype.setItem = () => { throw new DOMException('full', 'QuotaExceededError'); "
        "}"
    )
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(server.address)
    label(page, 2)
    expect_saved(page, 2)
    context.close()


@pytest.mark.slow
def test_a_name_that_is_changed_in_another_tab_takes_no_answers(
    server: TeeterServeProcess, browser: Any, tmp_path: Path
) -> None:
    page = open_page(browser, server.address, [])
    page.locator("#stage .words").wait_for()

    other = page.context.new_page()
    other.goto(f"{server.address}/c/texts/export")
    other.locator(".who summary").click()
    other.locator(".who input[name=annotator]").fill("zoe")
    other.get_by_role("button", name="Change name").click()
    sync_api.expect(other.locator(".who summary")).to_have_text("zoe")

    page.keyboard.press(choose_key(page))
    sync_api.expect(page.locator("#alarm")).to_contain_text(
        "You are now labelling as zoe in this browser. Reload this page"
    )

    page.wait_for_timeout(1500)
    assert read_answers(tmp_path / "texts.teeter") == {}
    assert count_unsent_answers(page) == 1

    page.context.close()


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_and_who_sees_little(server: TeeterServeProcess, browser: Any, scheme: str) -> None:
    problems: list[str] = []
    page = open_page(
        browser, server.address, problems, viewport=PHONE, color_scheme=scheme, has_touch=True
    )

    label(page, 1)
    expect_saved(page, 1)
    page.locator(".choice").first.tap()
    expect_saved(page, 2)

    for path in PAGES:
        page.goto(f"{server.address}/c/texts{path}")
        wait_until_drawn(page)
        check_accessibility(page, path)

    page.context.close()
    assert problems == []


@pytest.mark.slow
def test_images_by_keyboard(browser: Any, tmp_path: Path) -> None:
    problems: list[str] = []
    file = make_image_campaign(tmp_path / "digits.teeter", tmp_path / "digits", 60)
    server = TeeterServeProcess(tmp_path / "home", "--folder", tmp_path, file).start()

    try:
        page = open_page(browser, f"{server.address}/c/digits", problems)

        for number in range(1, 4):
            shown = page.locator("#stage img")
            shown.wait_for()
            assert shown.evaluate("i => i.decode().then(() => i.naturalWidth)") == 64
            page.keyboard.press("1")
            expect_saved(page, number)

        page.goto(server.address)
        sync_api.expect(page.get_by_role("link", name="digits")).to_be_visible()

        page.goto(f"{server.address}/new")
        page.set_viewport_size(PHONE)
        for path in ("", "/new"):
            page.goto(f"{server.address}{path}")
            check_accessibility(page, path)

        page.get_by_label("Name", exact=True).fill("again")
        page.get_by_label("or a folder of images").select_option("digits")
        page.get_by_label("Classes, separated by commas").fill("a, b, c")
        page.get_by_role("button", name="Create campaign").click()
        page.wait_for_url("**/c/again")
        page.locator("#stage img").wait_for()

        page.context.close()
    finally:
        server.stop()
    assert problems == []


def create_campaign_with_classes(path: Path, count: int) -> list[str]:
    """Make a campaign of 30 texts with many classes, and return the classes."""
    names = [f"{word} {number}" for number in range(count) for word in ("Café", "delay")][:count]
    campaign = Campaign.make([], names, at=path, name="many")
    campaign.add([{"id": f"t{number}", "text": f"text {number}"} for number in range(30)])
    campaign.database.close()
    return names


@pytest.mark.slow
def test_with_many_classes_typing_finds_one(browser: Any, tmp_path: Path) -> None:
    file = tmp_path / "many.teeter"
    names = create_campaign_with_classes(file, 40)
    problems: list[str] = []
    with page_server(file) as address:
        page = open_page(browser, address, problems)
        page.locator("#stage .words").wait_for()
        assert page.locator(".choice kbd").count() == 0, "40 classes have no shortcuts"

        # Letters go into the field without a click; accents and case do not matter.
        page.keyboard.type("cafe 1")
        shown = page.locator(".choice:visible")
        matches = [name for name in names if name.startswith("Café 1")]
        assert sorted(shown.all_inner_texts()) == sorted(matches)
        page.keyboard.press("ArrowDown")
        chosen = page.locator(".choice.marked").inner_text()
        assert chosen == matches[1]
        page.keyboard.press("Enter")
        sync_api.expect(page.locator("#last li b").first).to_have_text(chosen)
        expect_saved(page, 1)
        sync_api.expect(page.locator("#find")).to_have_value("")

        # With an empty field the other keys act: capitals flag or mark as unsure, backspace undoes.
        page.locator("#stage .words").wait_for()
        page.keyboard.press("Shift+U")
        sync_api.expect(page.locator("#last li b").first).to_have_text("unsure")
        page.keyboard.press("Backspace")
        sync_api.expect(page.locator("#mode")).to_contain_text("undone")
        page.keyboard.type("zzz")
        sync_api.expect(shown).to_have_count(0)
        page.keyboard.press("Enter")
        page.keyboard.press("Escape")
        sync_api.expect(shown).to_have_count(40)
        wait_until(lambda: list(read_answers(file).values()) == [chosen])
        page.context.close()
    assert problems == []


@pytest.mark.slow
def test_with_seventeen_classes_a_slash_finds_one(browser: Any, tmp_path: Path) -> None:
    file = tmp_path / "many.teeter"
    create_campaign_with_classes(file, 17)
    problems: list[str] = []
    with page_server(file) as address:
        page = open_page(browser, address, problems)
        page.locator("#stage .words").wait_for()
        page.keyboard.press("2")
        sync_api.expect(page.locator("#last li b").first).to_have_text("delay 0")
        page.keyboard.press("/")
        page.keyboard.type("delay 5")
        page.keyboard.press("Enter")
        sync_api.expect(page.locator("#last li b").first).to_have_text("delay 5")

        # Afterwards keys are shortcuts again.
        page.keyboard.press("1")
        sync_api.expect(page.locator("#last li b").first).to_have_text("Café 0")
        expect_saved(page, 3)
        page.context.close()
    assert problems == []


@pytest.mark.slow
def test_long_class_names_do_not_make_a_page_wider_than_a_phone(
    browser: Any, tmp_path: Path
) -> None:
    file = tmp_path / "long.teeter"
    names = ["balance not updated after a cheque or cash deposit", "transfer not received in time"]
    # Without control items, so that the first item comes with its neighbours and their labels.
    campaign = Campaign.make([], names, at=file, name="long", settings=Settings(control=0.0))
    campaign.add([{"id": f"t{k}", "text": f"text {k} about {k % 2}"} for k in range(30)])
    for question in campaign.ask(6):
        campaign.tell(question.item, names[int(question.item[1:]) % 2])
    campaign.train()
    campaign.database.close()

    problems: list[str] = []
    with page_server(file) as address:
        page = open_page(browser, address, problems, viewport=PHONE, has_touch=True)
        page.locator("#why .near").wait_for()
        assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
    assert problems == []


@pytest.mark.slow
def test_a_campaign_is_labelled_to_its_end(browser: Any, tmp_path: Path) -> None:
    file = tmp_path / "few.teeter"
    campaign = Campaign.make(["one text", "another text"], ["ham", "spam"], at=file, name="few")
    campaign.database.close()
    problems: list[str] = []
    with page_server(file) as address:
        page = open_page(browser, address, problems)

        # A class is added where it is missed, and the next answer can have it.
        page.locator("#stage .words").wait_for()
        page.get_by_role("button", name="Add class").click()
        page.locator("#adding input").fill("HAM")
        page.keyboard.press("Enter")
        sync_api.expect(page.locator("#adding .alarm")).to_contain_text("ham")
        page.locator("#adding input").fill("card_payment_wrong_exchange_rate")
        page.keyboard.press("Enter")
        sync_api.expect(page.locator(".choice")).to_have_count(3)
        page.locator("#stage .words").wait_for()
        page.keyboard.press("3")
        expect_saved(page, 1)
        last = page.locator("#last li b").first
        sync_api.expect(last).to_have_text("card_payment_wrong_exchange_rate")

        # A comment is there when it is asked for, and goes with the answer.
        sync_api.expect(page.locator("#comment")).to_be_hidden()
        page.get_by_role("button", name="Comment").click()
        page.keyboard.type("1 of 2")
        page.keyboard.press("Enter")
        sync_api.expect(page.locator("#comment")).to_be_visible()
        page.keyboard.press("1")
        sync_api.expect(page.locator("#stage")).to_contain_text("Done: 2 labelled")
        sync_api.expect(page.locator("#choices")).to_be_hidden()
        check_accessibility(page, "the end")
        for title in ("Review", "Export", "Model"):
            sync_api.expect(page.locator("#stage").get_by_role("link", name=title)).to_be_visible()

        page.keyboard.press("Backspace")
        sync_api.expect(page.locator("#choices")).to_be_visible()
        sync_api.expect(page.locator("#comment")).to_be_hidden()
        campaign = Campaign.open(file)
        wait_until(lambda: any(line.get("comment") == "1 of 2" for line in campaign.history()))
        campaign.database.close()
        page.context.close()
    assert len(problems) == 1
    assert "422" in problems[0], "only the name that was taken"


@pytest.mark.slow
def test_buttons_on_a_phone_are_as_large_as_a_finger(browser: Any, tmp_path: Path) -> None:
    file = tmp_path / "many.teeter"
    create_campaign_with_classes(file, 16)
    phone = {"viewport": PHONE, "has_touch": True, "is_mobile": True}
    problems: list[str] = []
    with page_server(file) as address:
        page = open_page(browser, address, problems, **phone)
        page.locator("#stage .words").wait_for()
        boxes = [button.bounding_box() for button in page.locator(".choice").all()]
        assert len(boxes) == 16
        assert len({round(box["width"]) for box in boxes}) == 1
        buttons = [*boxes, *(b.bounding_box() for b in page.locator(".others button").all())]
        assert all(box["height"] >= 48 for box in buttons)

        undo = page.get_by_role("button", name="Undo").bounding_box()
        assert undo["y"] + undo["height"] <= PHONE["height"], "in reach without scrolling"
        page.context.close()

        campaign = Campaign.open(file)
        campaign.classes.add("the seventeenth")
        campaign.database.close()
        page = open_page(browser, address, problems, **phone)
        page.locator("#stage .words").wait_for()
        sync_api.expect(page.locator("#find")).to_be_hidden()

        # The first browser was of the same person, who says so once.
        sync_api.expect(page.locator("#shared-name")).to_be_visible()
        page.get_by_role("button", name="That was me").tap()
        sync_api.expect(page.locator("#shared-name")).to_be_hidden()
        page.reload()
        page.locator("#stage .words").wait_for()
        sync_api.expect(page.locator("#shared-name")).to_be_hidden()
        page.context.close()
    assert problems == []


@pytest.mark.slow
def test_the_reason_of_a_pick_is_a_sentence(browser: Any, tmp_path: Path) -> None:
    file = tmp_path / "texts.teeter"
    make_labelled_campaign(file, 40)
    problems: list[str] = []
    with page_server(file) as address:
        page = open_page(browser, address, problems)
        why = page.locator("#why")
        why.locator(".near").wait_for()
        shares = why.locator(".odds .number").all_inner_texts()
        is_sure = float(shares[0].rstrip("%")) >= 80
        names = why.locator(".odds > span:not(.number)").all_inner_texts()
        sentence = f"The model is unsure between {names[0]} and {names[1]}."
        if is_sure:
            sentence = f"The model expects {names[0]}. Your answer shows whether it is right."
        assert why.locator("p").first.inner_text() == sentence

        details = why.get_by_text("in its batch")
        sync_api.expect(details).to_be_hidden()
        why.get_by_text("Details").click()
        sync_api.expect(details).to_contain_text("LDM")
        page.context.close()
    assert problems == []


@pytest.mark.slow
def test_settings_are_changed_on_their_page(browser: Any, tmp_path: Path) -> None:
    file = tmp_path / "table.teeter"
    rows = [{"id": f"r{k}", "text": f"text {k}", "team": f"<b>{k}", "day": "1"} for k in range(9)]
    campaign = Campaign.make(rows, ["ham", "spam"], at=file, name="table")
    campaign.database.close()
    problems: list[str] = []
    with page_server(file) as address:
        page = open_page(browser, f"{address}/c/table/settings", problems)
        page.get_by_label("Instructions").fill("Spam **wants** money.\n\n- <i>be</i> quick")
        page.get_by_label("team").check()
        page.get_by_text("Near copies, measuring and costs").click()
        values = {"keys": "h, s", "batch": "5", "lease": "0.5", "overlap": "0.25", "cost": "0.1"}
        for name, value in values.items():
            page.locator(f"[name={name}]").fill(value)
        check_accessibility(page, "the settings")
        page.get_by_role("button", name="Save").click()
        notice = page.locator("#notice")
        sync_api.expect(notice).to_have_text("The settings are saved.")

        page.locator("[name=keys]").fill("h, h")
        page.get_by_role("button", name="Save").click()
        sync_api.expect(notice).to_contain_text("already the shortcut")

        page.goto(address)
        sync_api.expect(page.locator(".instructions strong")).to_have_text("wants")
        sync_api.expect(page.locator(".instructions li")).to_have_text("<i>be</i> quick")
        sync_api.expect(page.locator("#stage dt")).to_have_text("team")
        page.keyboard.press("s")
        sync_api.expect(page.locator("#last li b").first).to_have_text("spam")
        page.context.close()

    campaign = Campaign.open(file)
    settings = campaign.settings
    assert (settings.batch, settings.lease, settings.overlap) == (5, 0.5, 0.25)
    assert (settings.show, settings.keys, settings.cost) == (["team"], ["h", "s"], 0.1)
    campaign.database.close()
    assert len(problems) == 1
    assert "422" in problems[0], "only the key that was taken"
