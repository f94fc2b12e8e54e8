"""A headless Chromium behind chromedriver, by the WebDriver protocol."""

import base64
import contextlib
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
KEYS = {"left": "\ue012", "right": "\ue014", "end": "\ue010", "home": "\ue011"}


def is_installed():
    return shutil.which("chromedriver") is not None and shutil.which("chromium") is not None


class Browser:
    """One window."""

    def __init__(self, port):
        self._address = f"http://127.0.0.1:{port}"
        options = {
            "args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1300,1000"],
            "binary": shutil.which("chromium"),
        }
        wanted = {
            "alwaysMatch": {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        }
        session = self._call("/session", {"capabilities": wanted})
        self._session = f"/session/{session['sessionId']}"

    def _call(self, path, body=None, method="POST"):
        data = None if method != "POST" else json.dumps(body or {}).encode()
        request = urllib.request.Request(self._address + path, data, method=method)
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=100) as answer:
            return json.load(answer)["value"]

    def open(self, path):
        self._call(f"{self._session}/url", {"url": path.as_uri()})

    def run(self, script):
        """The value of a JavaScript expression."""
        return self._call(
            f"{self._session}/execute/sync", {"script": f"return {script}", "args": []}
        )

    def press(self, key):
        """Types one key into the page."""
        (body,) = self._call(
            f"{self._session}/elements", {"using": "css selector", "value": "body"}
        )
        self._call(f"{self._session}/element/{body[ELEMENT]}/value", {"text": KEYS.get(key, key)})

    def click(self, selector):
        element = self._call(
            f"{self._session}/element", {"using": "css selector", "value": selector}
        )
        self._call(f"{self._session}/element/{element[ELEMENT]}/click")

    def errors(self):
        """What the page has complained about."""
        entries = self._call(f"{self._session}/se/log", {"type": "browser"})
        return [entry["message"] for entry in entries if entry["level"] == "SEVERE"]

    def screenshot(self):
        return base64.b64decode(self._call(f"{self._session}/screenshot", method="GET"))

    def wait(self, script):
        """Until an expression is true. Raises TimeoutError."""
        for _ in range(400):
            if self.run(script):
                return
            time.sleep(0.1)
        raise TimeoutError(script)

    def close(self):
        self._call(self._session, method="DELETE")


@contextlib.contextmanager
def start_browser():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    driver = subprocess.Popen(
        ["chromedriver", f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        for _ in range(400):
            with contextlib.suppress(OSError, urllib.error.URLError):
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            time.sleep(0.1)
        browser = Browser(port)
        try:
            yield browser
        finally:
            browser.close()
    finally:
        driver.terminate()
        driver.wait()
