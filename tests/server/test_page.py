"""The page, in a browser: what people type and drop, and what they see."""

import shutil

import numpy as np
import pytest
import tensorflow as tf

import zoo
from tests.conftest import SEARCH
from tests.deploy.small_models import small_text_classifier
from tests.server import toys
from zoo.data.images import digits

CHROMIUM = shutil.which("chromium")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="There is no chromium to look with."),
    pytest.mark.ci,
]


@pytest.fixture(scope="module")
def url(phrasebook_export, digits_export, tmp_path_factory):
    home = tmp_path_factory.mktemp("serving")
    half = toys.save(toys.HalfPlusThree(), home / "half" / "1")
    loud = toys.save(toys.Translator(), home / "loud" / "1")
    kinds = zoo.export(small_text_classifier(), home / "kinds" / "1", top_k=2)
    again = toys.save(toys.Generator(), home / "again" / "1")
    folders = [phrasebook_export, digits_export, half, loud, kinds, again]
    process, _, url = toys.start(folders, request_timeout=120)
    yield url
    process.terminate()
    toys.end(process)


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def page(browser, url):
    """The page, which may say nothing in the console and ask nobody but its server."""
    page = browser.new_page()
    page.set_default_timeout(60_000)
    trouble = []
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on(
        "request", lambda r: None if r.url.startswith((url, "data:")) else trouble.append(r.url)
    )
    page.goto(url)
    yield page
    page.close()
    assert not trouble


def the(page, selector):
    """The one element of the chosen model's section."""
    return page.locator(f"section:visible {selector}")


def test_the_models_are_listed(page, phrasebook_export, digits_export):
    names = [phrasebook_export.parent.name, digits_export.parent.name]
    expected = [f"{names[0]} translator", f"{names[1]} classifier", "half model", "loud translator"]
    expected += ["kinds text classifier", "again generator"]
    page.locator("nav a").first.wait_for()
    assert page.locator("nav a").all_inner_texts() == expected
    assert page.locator("section:visible").count() == 1


def test_a_sentence_is_translated(page, phrasebook_run, phrasebook_export):
    text = "the dog sees a house."
    box = page.get_by_label("Text to translate").first
    box.press_sequentially(text)
    box.press("Enter")
    the(page, "table.attention").wait_for()
    translator = zoo.load(phrasebook_run[1])
    [expected] = translator.n_best([text], n=2, **SEARCH)
    assert the(page, ".best").all_inner_texts() == [t.text or "(empty)" for t in expected]
    shown = the(page, ".best + .quiet").all_inner_texts()
    scores = [float(text.removeprefix("score ")) for text in shown]
    np.testing.assert_allclose(scores, [t.score for t in expected], atol=6e-4)  # three digits

    found = translator.alignment(text, expected[0].text)
    for selector, labels in (("thead th", found.source), ("tbody th", found.target)):
        assert the(page, selector).all_text_contents() == labels
    cells = np.array(the(page, "tbody td .hidden").all_text_contents(), float)
    # 0.006: they are shown with two digits
    np.testing.assert_allclose(cells.reshape(found.weights.shape), found.weights, atol=0.006)
    assert box.input_value() == text, "Enter began no line"
    box.press("Shift+Enter")
    assert box.input_value() == text + "\n"


def test_a_text_is_classified(page):
    page.get_by_role("link", name="kinds").click()
    box = page.get_by_label("Text to classify")
    box.press_sequentially("The cat sat.")
    box.press("Enter")
    the(page, ".share").first.wait_for()
    [expected] = small_text_classifier()(["The cat sat."], top_k=2)
    found = [line.split("\n") for line in the(page, ".share").all_inner_texts()]
    assert [label for label, _ in found] == [label for label, _ in expected]
    shares = [float(share.removesuffix(" %")) / 100 for _, share in found]
    np.testing.assert_allclose(shares, [share for _, share in expected], atol=6e-4)  # three digits
    box.fill("7, " * 60)
    box.press("Enter")
    the(page, "[role=alert]:visible").wait_for()
    assert "too long" in the(page, "[role=alert]").inner_text()
    assert the(page, ".share").count() == 0


def test_a_text_is_continued(page):
    page.get_by_role("link", name="again").click()
    box = page.get_by_label("Text to continue")
    box.press_sequentially("one <b>")
    box.press("Enter")
    the(page, ".best").first.wait_for()
    assert the(page, ".best").all_inner_texts() == ["one <b>\none <b>", "one <b>!"]
    assert the(page, ".best + .quiet").all_inner_texts() == ["score -0.250", "score -1.500"]
    page.get_by_label("Continuation").select_option("drawn at random")
    box.press("Enter")
    page.get_by_text("one <b>1.000000").wait_for()
    box.fill("x" * 101)
    box.press("Enter")
    the(page, "[role=alert]:visible").wait_for()
    assert the(page, "[role=alert]").inner_text() == "It is too long."
    assert the(page, ".best").count() == 0


def png(pixels):
    return tf.io.encode_png(pixels).numpy()


def test_an_image_is_dropped(page, digits_run, digits_export):
    page.get_by_role("link", name=digits_export.parent.name).click()
    image = digits().test.sample(3)[0][1]
    the(page, ".drop").evaluate(
        """(element, bytes) => {
            const data = new DataTransfer();
            data.items.add(new File([new Uint8Array(bytes)], "digit.png", {type: "image/png"}));
            element.dispatchEvent(new DragEvent("drop", {dataTransfer: data, bubbles: true}));
        }""",
        list(png(image)),
    )
    the(page, "canvas").nth(1).wait_for()
    [expected] = zoo.load(digits_run[1])([image], top_k=3)
    found = [line.split("\n") for line in the(page, ".share").all_inner_texts()]
    assert [label for label, _ in found] == [label for label, _ in expected]
    shares = [float(share.removesuffix(" %")) / 100 for _, share in found]
    np.testing.assert_allclose(shares, [share for _, share in expected], atol=6e-4)  # three digits
    assert the(page, "h3").inner_text() == "digit.png"
    # one number of each pixel: all that the canvas has would be a million
    drawn = the(page, "canvas").first.evaluate(
        """canvas => {
            const [size, scale] = [canvas.width, canvas.width / 8];
            const data = canvas.getContext("2d").getImageData(0, 0, size, size).data;
            return [0, 1, 2, 3, 4, 5, 6, 7].map(row => [0, 1, 2, 3, 4, 5, 6, 7].map(
                column => [data[4 * scale * (row * size + column)]]));
        }"""
    )
    np.testing.assert_array_equal(drawn, image)


def test_files_that_are_not_images_and_texts_that_are_too_long(page, digits_export):
    page.get_by_role("link", name=digits_export.parent.name).click()
    the(page, "input[type=file]").set_input_files(
        {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"no image"}
    )
    the(page, "[role=alert]").wait_for()
    assert the(page, "[role=alert]").inner_text().startswith("notes.txt: ")
    page.get_by_role("link", name="loud").click()
    the(page, "textarea").fill("x" * 101)
    the(page, "button").click()
    the(page, "[role=alert]").wait_for()
    assert the(page, "[role=alert]").inner_text() == "It is too long."
    the(page, "textarea").fill("well")
    the(page, "button").click()
    the(page, ".best").first.wait_for()
    assert not the(page, "[role=alert]").is_visible()


def test_text_stays_text(page):
    page.get_by_role("link", name="loud").click()
    page.evaluate("window.touched = false")
    the(page, "textarea").fill("<img src=x onerror=window.TOUCHED=window.touched=true> &amp;")
    the(page, "textarea").press("Enter")
    the(page, "table.attention").wait_for()
    assert the(page, ".best").first.inner_text().startswith("<IMG SRC=X")
    assert page.locator("section img").count() == 0
    assert page.evaluate("window.touched") is False


def test_any_model_takes_json(page):
    page.get_by_role("link", name="half").click()
    box = page.get_by_label("Request, as JSON")
    box.fill('{"instances": [1.0, 2.0]}')
    page.get_by_role("button", name="Send").click()
    the(page, "[aria-live] pre").wait_for()
    assert the(page, "[aria-live] pre").inner_text() == '{"predictions": [3.5, 4.0]}'
    box.fill('{"instances": ["a"]}')
    page.get_by_role("button", name="Send").click()
    the(page, "[role=alert]").wait_for()
    assert "must be float32" in the(page, "[role=alert]").inner_text()
    box.fill("{")
    page.get_by_role("button", name="Send").click()
    page.get_by_text("This is not JSON").wait_for()


def test_it_works_without_a_mouse(page):
    page.locator("nav a").first.wait_for()
    for _ in range(4):
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    the(page, "h2").filter(has_text="loud").wait_for()
    assert page.evaluate("document.activeElement.textContent") == "loud"
    page.keyboard.press("Tab")
    page.keyboard.type("hello")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Translate"
    page.keyboard.press("Enter")
    page.get_by_text("HELLO!").wait_for()
    assert page.locator("nav a[aria-current]").inner_text() == "loud translator"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_light_and_dark(browser, url, scheme):
    """A contrast of at least 4.5, as WCAG 2.2, 1.4.3, asks for."""
    page = browser.new_page(color_scheme=scheme)
    page.goto(url)
    page.locator("nav a").first.wait_for()
    pairs = page.evaluate(
        """() => {
            const style = getComputedStyle(document.documentElement);
            const value = name => style.getPropertyValue("--" + name).trim();
            return [["text", "ground"], ["text", "card"], ["quiet", "ground"], ["quiet", "card"],
                ["on-accent", "accent"], ["wrong", "wrong-ground"]].map(p => p.map(value));
        }"""
    )
    page.close()
    for front, back in pairs:
        light, dark = sorted((luminance(front), luminance(back)), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, (front, back)


def luminance(color):
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))
