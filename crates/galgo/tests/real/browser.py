"""Has Chromium open a page, and prints what its promise `result` becomes: browser.py URL. Over WebDriver (W3C), by chromedriver."""
import json
import re
import subprocess
import sys
import tempfile
import urllib.request

# Root's browser has no sandbox; nothing but the page is asked for.
ARGUMENTS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-background-networking",
    "--no-first-run",
    "--no-proxy-server",
]
WAIT = 120_000  # ms
RESULT = "const done = arguments[0]; result.then(done, error => done(`failed: ${error}`))"

with tempfile.TemporaryDirectory() as folder:
    driver = subprocess.Popen(
        ["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=sys.stderr, text=True, env={"PATH": "/usr/bin:/bin", "HOME": folder}
    )
    try:
        port = next(found[1] for found in (re.search(r"started successfully on port (\d+)", line) for line in driver.stdout) if found)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

        def ask(method, path, **body):
            data = json.dumps(body).encode() if method == "POST" else None
            request = urllib.request.Request(f"http://127.0.0.1:{port}/session{path}", data, method=method)
            return json.load(opener.open(request, timeout=WAIT / 1000))["value"]

        options = {"args": ARGUMENTS + [f"--user-data-dir={folder}/profile"]}
        wanted = {"browserName": "chrome", "acceptInsecureCerts": True, "goog:chromeOptions": options}
        session = "/" + ask("POST", "", capabilities={"alwaysMatch": wanted})["sessionId"]
        ask("POST", f"{session}/timeouts", script=WAIT, pageLoad=WAIT)
        ask("POST", f"{session}/url", url=sys.argv[1])
        print(ask("POST", f"{session}/execute/async", script=RESULT, args=[]))
        ask("DELETE", session)
    finally:
        driver.terminate()
        driver.wait()
