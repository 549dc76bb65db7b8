"""The page, in a browser: what people type and drop, and what they see."""

import shutil

import numpy as np
import pytest
import tensorflow as tf

CHROMIUM = shutil.which("chromium")
FLAGS = "--no-sandbox --disable-gpu --disable-background-networking --disable-component-update "
FLAGS += "--disable-sync --no-first-run"
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="There is no chromium to look with."),
    pytest.mark.ci,
]


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS.split())
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
    page.locator("nav a").first.wait_for()
    yield page
    page.close()
    assert not trouble


def the(page, selector):
    """The one element of the chosen model's section."""
    return page.locator(f"section:visible {selector}")


def refusal(page):
    the(page, "[role=alert]:visible").wait_for()
    return the(page, "[role=alert]").inner_text()


def test_the_models_are_listed(page):
    expected = ["en_es translator", "vit classifier", "half_plus_three model", "toy model"]
    expected += ["kinds text classifier", "again generator"]
    assert page.locator("nav a").all_inner_texts() == expected
    assert page.locator("section:visible").count() == 1


def test_a_sentence_is_translated(page):
    """Text stays text."""
    text = "<b>one</b> two &amp;"
    box = page.get_by_label("Text to translate").first
    box.press_sequentially(text)
    box.press("Enter")
    the(page, "table.attention").wait_for()
    assert the(page, ".best").all_inner_texts() == [text.upper(), text.upper() + "!"]
    scores = the(page, ".best + .quiet").all_inner_texts()
    assert scores == [f"score {-len(text) / 7:.3f}", f"score {-(len(text) + 1) / 7:.3f}"]
    assert the(page, "thead th").all_text_contents() == text.split()
    assert the(page, "tbody th").all_text_contents() == text.upper().split()
    cells = the(page, "tbody td .hidden").all_text_contents()
    assert cells == ["0.91", "0.01", "0.01", "0.01", "0.91", "0.01", "0.01", "0.01", "0.91"]
    assert box.input_value() == text, "Enter began no line"
    box.press("Shift+Enter")
    assert box.input_value() == text + "\n"
    lines = "  one\n\n\ttwo  three\n"
    box.fill(lines)
    box.press("Enter")
    the(page, ".best:has-text('THREE')").first.wait_for()
    assert the(page, ".best").first.text_content() == lines.upper()
    assert the(page, ".best").first.inner_text().startswith("  ONE\n\n\tTWO  THREE")
    box.fill("x" * 101)
    the(page, "button").click()
    assert refusal(page) == "It is too long."
    box.fill("well")
    the(page, "button").click()
    the(page, ".best").first.wait_for()
    assert not the(page, "[role=alert]").is_visible()


def test_a_text_is_classified(page):
    page.get_by_role("link", name="kinds").click()
    box = page.get_by_label("Text to classify")
    box.press_sequentially("The cat sat.")
    box.press("Enter")
    the(page, ".share").first.wait_for()
    assert the(page, ".share").all_inner_texts() == ["short\n88.0 %", "long\n12.0 %"]
    box.fill("7, " * 60)
    box.press("Enter")
    assert refusal(page) == "It is too long."
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


def test_an_image_is_dropped(page):
    page.get_by_role("link", name="vit").click()
    image = np.full((8, 8, 3), [200, 100, 0], np.uint8)
    image[0, 0] = [0, 0, 255]
    the(page, ".drop").evaluate(
        """(element, bytes) => {
            const data = new DataTransfer();
            data.items.add(new File([new Uint8Array(bytes)], "color.png", {type: "image/png"}));
            element.dispatchEvent(new DragEvent("drop", {dataTransfer: data, bubbles: true}));
        }""",
        list(tf.io.encode_png(image).numpy()),
    )
    the(page, "canvas").nth(1).wait_for()
    shares = the(page, ".share").all_inner_texts()
    assert shares == ["red\n65.8 %", "green\n32.9 %", "blue\n1.3 %"]
    assert the(page, "h3").inner_text() == "color.png"
    # one point of each pixel: all that the canvas has would be a million
    drawn = the(page, "canvas").first.evaluate(
        """canvas => {
            const [size, scale] = [canvas.width, canvas.width / 8];
            const data = canvas.getContext("2d").getImageData(0, 0, size, size).data;
            const at = (row, column) => 4 * scale * (row * size + column);
            return [0, 1, 2, 3, 4, 5, 6, 7].map(row => [0, 1, 2, 3, 4, 5, 6, 7].map(
                column => [...data.slice(at(row, column), at(row, column) + 3)]));
        }"""
    )
    np.testing.assert_array_equal(drawn, image)
    the(page, "input[type=file]").set_input_files(
        {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"no image"}
    )
    assert refusal(page) == "notes.txt: It is not an image."


def test_any_model_takes_json(page):
    page.get_by_role("link", name="half").click()
    box = page.get_by_label("Request, as JSON").first
    assert '"inputs": {\n    "x": []' in box.input_value()
    box.fill('{"instances": [1.0, 2.0]}')
    page.get_by_role("button", name="Send").click()
    the(page, "[aria-live] pre").wait_for()
    assert the(page, "[aria-live] pre").inner_text() == '{"predictions": [3.5, 4.0]}'
    box.fill('{"instances": ["a"]}')
    page.get_by_role("button", name="Send").click()
    assert "must be float32" in refusal(page)
    box.fill("{")
    page.get_by_role("button", name="Send").click()
    page.get_by_text("This is not JSON").wait_for()


def test_it_works_without_a_mouse(page):
    for _ in range(6):
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    the(page, "h2").filter(has_text="again").wait_for()
    assert page.evaluate("document.activeElement.textContent") == "again"
    for _ in range(2):
        page.keyboard.press("Tab")
    page.keyboard.type("hello")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Continue"
    page.keyboard.press("Enter")
    page.get_by_text("hello!").wait_for()
    assert page.locator("nav a[aria-current]").inner_text() == "again generator"


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
