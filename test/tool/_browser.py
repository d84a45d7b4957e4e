"""_browser.py - a page in a real browser: Debian's chromium without a window, driven by selenium. A test that cannot have
it is skipped, and says what is missing."""
import os
import sys


def skip(why):
    print("skipped: " + why)
    sys.exit(77)


try:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service
except ImportError:
    # Debian's package is Debian's Python's; another one may stand first in PATH.
    if os.path.realpath(sys.executable) != os.path.realpath("/usr/bin/python3") and os.path.exists("/usr/bin/python3"):
        os.execv("/usr/bin/python3", ["/usr/bin/python3", *sys.argv])
    skip("no selenium (scripts/setup test installs python3-selenium)")


class Browser:
    """One window. Console messages are kept; `errors` gives those since it was asked last."""

    def __init__(self, width=1280, height=900):
        chromium = next((path for path in ("/usr/bin/chromium", "/usr/bin/google-chrome") if os.path.exists(path)), None)
        driver = "/usr/bin/chromedriver"
        if not chromium or not os.path.exists(driver):
            skip("no browser (scripts/setup test installs chromium and chromium-driver)")
        options = webdriver.ChromeOptions()
        options.binary_location = chromium
        for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage",
                     "--disable-background-networking", "--no-first-run", f"--window-size={width},{height}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        try:
            self.driver = webdriver.Chrome(service=Service(driver, env=environment), options=options)
        except Exception as error:  # whatever keeps a browser from starting here is not the page's fault
            skip(f"the browser does not start: {str(error).splitlines()[0]}")
        self.size(width, height)

    def size(self, width, height):
        self.command("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def dark(self, is_dark):
        value = "dark" if is_dark else "light"
        self.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": value}])

    def command(self, name, **arguments):
        return self.driver.execute_cdp_cmd(name, arguments)

    def open(self, path):
        self.driver.get("file://" + os.path.abspath(path))

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def find(self, selector):
        return self.driver.find_element("css selector", selector)

    def find_all(self, selector):
        return self.driver.find_elements("css selector", selector)

    def text(self, selector):
        return self.run("return document.querySelector(arguments[0]).textContent", selector)

    def screenshot(self):
        """The window's contents as PNG bytes."""
        return self.driver.get_screenshot_as_png()

    def errors(self):
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]

    def close(self):
        self.driver.quit()
