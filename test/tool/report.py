"""report.py - the page of a profile in a real browser: it is drawn, it reacts, and nothing from a file is run.

ctest: timeout=300

--tool PATH takes another command than the build's; --keep FOLDER leaves the screenshots there.
"""
import argparse
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import zlib

import _profile
from _browser import Browser, skip

BARS = "#flame > [data-node]"


def pixels(png):
    """Distinct colours of a PNG's pixels: enough to tell a picture from a blank."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    at, data = 8, b""
    while at < len(png):
        length, kind = struct.unpack(">I4s", png[at:at + 8])
        if kind == b"IHDR":
            width, height, depth, colour = struct.unpack(">IIBB", png[at + 8:at + 18])
        elif kind == b"IDAT":
            data += png[at + 8:at + 8 + length]
        at += length + 12
    assert depth == 8 and colour in (2, 6)
    size = 3 if colour == 2 else 4
    raw, stride = zlib.decompress(data), width * size
    before, colours = bytearray(stride), set()
    for row in range(height):
        kind, line = raw[row * (stride + 1)], bytearray(raw[row * (stride + 1) + 1:(row + 1) * (stride + 1)])
        for i in range(stride):
            left = line[i - size] if i >= size else 0
            up, corner = before[i], before[i - size] if i >= size else 0
            if kind == 1:
                line[i] = (line[i] + left) & 255
            elif kind == 2:
                line[i] = (line[i] + up) & 255
            elif kind == 3:
                line[i] = (line[i] + (left + up) // 2) & 255
            elif kind == 4:
                guess = left + up - corner
                near = min((abs(guess - left), 0, left), (abs(guess - up), 1, up), (abs(guess - corner), 2, corner))[2]
                line[i] = (line[i] + near) & 255
        before = line
        if row % 7 == 0:
            colours.update(bytes(line[i:i + 3]) for i in range(0, stride, size * 5))
    return colours


class Test:
    def __init__(self, tool, keep):
        self.tool, self.keep, self.failures = tool, keep, []
        self.folder = tempfile.mkdtemp(prefix="hakmem-report-")
        self.browser = Browser()

    def expect(self, is_so, text):
        print(("ok: " if is_so else "FAILED: ") + text)
        if not is_so:
            self.failures.append(text)

    def page(self, name, profile):
        file, page = (os.path.join(self.folder, name + end) for end in (".hakprof", ".html"))
        _profile.write(file, profile)
        before = os.times().children_user
        done = subprocess.run([self.tool, "report", file, "-o", page], capture_output=True, text=True, check=False)
        self.expect(done.returncode == 0, f"hakmem report makes the page {name}: {done.stderr.strip()}")
        self.made_s = os.times().children_user - before  # others may use the processors
        self.browser.open(page)
        return page

    def shot(self, name):
        png = self.browser.screenshot()
        if self.keep:
            os.makedirs(self.keep, exist_ok=True)
            with open(os.path.join(self.keep, name + ".png"), "wb") as file:
                file.write(png)
        return png

    def bars(self):
        """What is drawn of the graph: name and width of each bar."""
        return self.browser.run("return [...document.querySelectorAll(arguments[0])].map("
                                "bar => [bar.getAttribute('aria-label').split(':')[0], Math.round(bar.offsetWidth)])", BARS)

    def wait(self, is_so, patience_s=10):
        """What the browser does by and by."""
        until = time.monotonic() + patience_s
        while not (reached := is_so()) and time.monotonic() < until:
            time.sleep(0.05)
        return reached

    def key(self, key):
        self.browser.run("document.activeElement.dispatchEvent(new KeyboardEvent('keydown', "
                         "{ key: arguments[0], bubbles: true, cancelable: true }))", key)

    def type(self, selector, text):
        field = self.browser.find(selector)
        field.clear()
        field.send_keys(text)

    def run(self):
        try:
            self.drawn()
            self.zoom()
            self.search()
            self.measures()
            self.sites()
            self.links()
            self.time_and_what_if()
            self.dark_and_narrow()
            self.hostile()
            self.empty()
            self.many()
        finally:
            self.browser.close()
            shutil.rmtree(self.folder, ignore_errors=True)
        return self.failures

    def drawn(self):
        self.page("plain", _profile.profile())
        self.expect(len(pixels(self.shot("top"))) > 60, "the page is not blank")
        self.browser.run("document.querySelector('#graph').scrollIntoView({ behavior: 'instant' })")
        self.expect(len(pixels(self.shot("graph"))) > 60, "the graph is not blank")
        bars = self.bars()
        self.expect(len(bars) > 50 and bars[0][0] == "_start" and bars[0][1] > 1000, f"{len(bars)} bars, _start is whole")
        self.expect("session_open" in self.browser.text(".actions"), "what could be done names who pins")
        self.no_errors("drawn")

    def no_errors(self, when):
        errors = self.browser.errors()
        self.expect(not errors, f"no console errors ({when}) {errors}")

    def zoom(self):
        before = self.bars()
        self.browser.run("[...document.querySelectorAll(arguments[0])].find(bar => "
                         "bar.textContent.startsWith('zip_open')).click()", BARS)
        after = self.bars()
        width = dict(map(tuple, after)).get("zip_open")
        self.expect(after != before and width > 1000, f"a click makes a bar the whole width: {width}")
        self.expect("cache" not in str(after), "what is beside it is gone")
        self.key("Escape")
        self.expect("zip_open" in str(self.bars()) and "cache" in str(self.bars()), "Escape goes back one bar")
        self.browser.run("document.querySelector('#whole').click()")
        self.expect(self.bars() == before, "the whole graph comes back")
        self.browser.run("document.querySelector('#flame [tabindex=\"0\"]').focus()")
        for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight"):
            self.key(key)
        label = self.browser.run("return document.activeElement.getAttribute('aria-label')")
        self.expect(label.startswith("audit_log: 21.0 MiB"), f"arrows move: {label}")
        self.expect("audit_log" in self.browser.text("#said") and "21.0 MiB" in self.browser.text("#said"), "and it is said below")
        self.key("Enter")
        self.expect(dict(map(tuple, self.bars())).get("audit_log", 0) > 1000, "Enter zooms")
        self.browser.run("document.querySelector('#whole').click()")

    def search(self):
        self.browser.run("document.activeElement.blur()")
        self.key("/") if self.browser.run("return document.activeElement !== document.body") else self.browser.run(
            "document.body.dispatchEvent(new KeyboardEvent('keydown', { key: '/', bubbles: true, cancelable: true }))")
        self.expect(self.browser.run("return document.activeElement.id") == "find", "/ goes to the search")
        self.type("#find", "CACHE::")
        hits = self.browser.run("return [...document.querySelectorAll('#flame > .hit')].map(bar => bar.textContent)")
        self.expect(hits == ["cache::insert(std::string const&)"], f"the search marks {hits}")
        self.expect(self.browser.text("#found").startswith("1 function, 41% of"), self.browser.text("#found"))
        colour = self.browser.run("return ['#flame > .hit', '#flame > :not(.hit)'].map("
                                  "which => getComputedStyle(document.querySelector(which)).backgroundColor)")
        self.expect(colour[0] != colour[1], "found bars look different")
        self.type("#find", "no such function")
        self.expect(self.browser.text("#found").startswith("0 functions, 0%"), "nothing found is said")
        self.browser.run("const find = document.querySelector('#find'); find.value = ''; find.dispatchEvent(new Event('input'))")
        self.expect(not self.browser.find_all("#flame > .hit") and not self.browser.text("#found"), "an empty search marks nothing")

    def measures(self):
        seen = {}
        for key in ("live", "allocated", "count", "temporary", "pinned"):
            self.browser.run("document.querySelector(`#measures [value=${arguments[0]}]`).click()", key)
            seen[key] = str(self.bars())
        self.expect(len(set(seen.values())) == 5, "each measure draws another graph")
        self.expect("parse_line" in seen["temporary"] and "session_open" in seen["pinned"], "of what it should")
        self.browser.run("document.querySelector('#measures [value=live]').click()")
        down = self.bars()
        self.browser.run("const s = document.querySelector('#direction'); s.value = 'up'; s.dispatchEvent(new Event('change'))")
        up = self.bars()
        outer = max((bar for bar in up), key=lambda bar: bar[1])
        self.expect(up != down and outer[0].startswith("operator new"), f"from the allocation up: {outer}")
        self.browser.run("const s = document.querySelector('#direction'); s.value = 'down'; s.dispatchEvent(new Event('change'))")
        self.expect(self.bars() == down, "and down again")
        self.no_errors("measures")

    def column(self, index):
        return self.browser.run("return [...document.querySelectorAll('#sites-table tbody tr[data-row]')].map("
                                "row => row.children[arguments[0]].firstChild.textContent.trim())", index)

    def sites(self):
        units = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
        size = lambda text: 0 if text == "–" else float(text.split()[0]) * units[text.split()[1]]
        live = [size(text) for text in self.column(1)]
        self.expect(len(live) == 25 and live == sorted(live, reverse=True), "places are sorted by live bytes")
        heads = self.browser.find_all("#sites-table thead button")
        self.browser.run("arguments[0].click()", heads[7])
        pins = [size(text) for text in self.column(7)]
        self.expect(pins == sorted(pins, reverse=True) and pins[0] == 96 * (1 << 20), "sorted by what they pin")
        self.expect(self.browser.run("return document.querySelector('#sites-table [aria-sort]').textContent") == "pins",
                    "the heading says so")
        self.browser.run("document.querySelectorAll('#sites-table thead button')[7].click()")
        self.expect([size(text) for text in self.column(7)] == sorted(size(text) for text in self.column(7)), "and the other way")
        self.browser.run("document.querySelectorAll('#sites-table thead button')[0].click()")
        names = self.column(0)
        self.expect(names == sorted(names, key=str.lower) or len(set(names)) > 1, "sorted by name")
        self.type("#filter", "audit leak")
        self.expect(self.column(0) == ["leak_a_little"], f"the filter finds by caller too: {self.column(0)}")
        self.expect(self.browser.text("#filtered").startswith("1 of "), self.browser.text("#filtered"))
        self.browser.run("document.querySelector('[data-opens]').click()")
        self.expect("audit_log" in self.browser.text(".details .stack"), "a place opens to its stacks")
        self.browser.run("document.querySelector('.details button').click()")
        label = self.browser.run("return document.activeElement.getAttribute('aria-label')")
        self.expect(label and label.startswith("malloc: 21.0 MiB"), f"and shows one in the graph: {label}")
        self.browser.run("document.querySelector('#whole').click()")

    def links(self):
        self.browser.run("document.querySelector('.holders a').click()")
        said = self.browser.run("return document.activeElement.textContent")
        self.expect(said.startswith("cache::insert"), f"who holds it leads to the place: {said}")

    def time_and_what_if(self):
        self.browser.run("document.querySelector('#plot').focus()")
        self.key("Home")
        self.expect(self.browser.text("#moment").startswith("At 0 µs: resident"), self.browser.text("#moment"))
        self.key("End")
        self.expect(self.browser.text("#moment").startswith("At 30 s: resident"), "arrows read the timeline")
        self.browser.run("document.querySelector('#what-if [value=pooled]').click()")
        self.expect(self.browser.text("#gain").startswith("96.0 MiB would come back"), self.browser.text("#gain"))

    def dark_and_narrow(self):
        colour = lambda: self.browser.run("return getComputedStyle(document.documentElement).backgroundColor")
        light = colour()
        self.browser.dark(True)
        self.expect(self.wait(lambda: colour() != light), "dark where the system is")
        self.browser.run("document.querySelector('#theme').click()")
        self.expect(self.wait(lambda: colour() == light), "light by the button")
        self.browser.dark(False)
        self.browser.size(390, 800)
        self.wait(lambda: max(bar[1] for bar in self.bars()) <= 390)
        wide = self.browser.run("return document.documentElement.scrollWidth")
        self.expect(wide <= 390, f"on a narrow screen nothing sticks out: {wide}")
        self.expect(max(bar[1] for bar in self.bars()) <= 390, "the graph was drawn anew")
        self.shot("narrow")
        self.browser.size(1280, 900)
        self.no_errors("dark and narrow")

    def hostile(self):
        self.expect(self.browser.run("return window.pwned === undefined"), "no name was run")
        self.expect(not self.browser.find_all("img") and len(self.browser.find_all("script")) == 2, "no name became an element")
        self.expect(_profile.HOSTILE in self.browser.text(".holders"), "it is shown as it is")
        self.browser.run("const s = document.createElement('script'); s.textContent = 'window.pwned = 4'; document.body.append(s)")
        self.expect(self.browser.run("return window.pwned === undefined"), "the page's policy refuses other scripts")
        self.browser.errors()

    def empty(self):
        self.page("empty", {"schema": 1})
        self.expect("Nothing stands out" in self.browser.text("body"), "an empty profile has a page")
        self.no_errors("empty")

    def many(self):
        self.page("many", _profile.profile(10_000))
        self.expect(self.made_s < 3, f"10,000 stacks become a page in {self.made_s:.2f} s of processor time")
        times = []
        for _ in range(3):
            times.append(self.browser.run("const t = performance.getEntriesByType('navigation')[0]; "
                                          "return t.domContentLoadedEventEnd - t.responseEnd"))
            if times[-1] > 1000:
                self.browser.driver.refresh()
        ready = min(times)
        self.expect(ready < 1500, f"which stands after {ready:.0f} ms")
        slow = self.browser.run("const from = performance.now(); document.querySelector('#measures [value=count]').click();"
                                "document.querySelector('#flame').offsetHeight; const drawn = performance.now() - from;"
                                "const s = document.querySelector('#direction'); s.value = 'up';"
                                "const turn = performance.now(); s.dispatchEvent(new Event('change'));"
                                "document.querySelector('#flame').offsetHeight; return [drawn, performance.now() - turn]")
        self.expect(max(slow) < 2500, f"another measure takes {slow[0]:.0f} ms, the other direction {slow[1]:.0f} ms")
        self.shot("many")
        self.no_errors("many")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--tool")
    parser.add_argument("--keep")
    options = parser.parse_args()
    tool = options.tool or os.path.join(options.build, "hakmem")
    if not os.path.exists(tool):
        skip(f"{tool} is not built")
    failures = Test(os.path.abspath(tool), options.keep).run()
    print(f"report: {len(failures)} failed" if failures else "report: all as expected")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
