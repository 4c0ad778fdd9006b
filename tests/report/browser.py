"""A headless Chromium, driven by playwright; Debian's own browser, so that nothing is fetched."""

import shutil
from pathlib import Path

from playwright.sync_api import sync_playwright

PROGRAM = next((p for name in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(name))), None)


class Browser:
    """One page at a time: `with Browser() as browser: browser.open(path)`."""

    def __enter__(self) -> "Browser":
        self._play = sync_playwright().start()
        self._browser = self._play.chromium.launch(executable_path=PROGRAM, args=["--no-sandbox"])
        self.page = self._context = None
        return self

    def __exit__(self, *_) -> None:
        self._browser.close()
        self._play.stop()

    def open(self, path: Path, *, width: int = 1280, dark: bool = False, script: bool = True) -> None:
        """Opens a file in a window of that width, light or dark."""
        if self._context is not None:
            self._context.close()
        self._context = self._browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme="dark" if dark else "light",
            java_script_enabled=script,
            is_mobile=width < 600,
        )
        self.page = self._context.new_page()
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.errors.append(message.text))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.resolve().as_uri())
        self.run = self.page.evaluate
