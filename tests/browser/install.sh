#!/bin/sh
# Find Chromium and its driver for the browser tests, or install Debian's; otherwise say how to get them.
# Keep the names in step with tests/browser/conftest.py.
is_installed() {
  { [ -n "$CHROMIUM" ] || command -v chromium || command -v chromium-browser || command -v google-chrome ||
    command -v google-chrome-stable; } >/dev/null &&
    { [ -n "$CHROMEDRIVER" ] || command -v chromedriver; } >/dev/null
}
is_installed && exit 0
if command -v apt-get >/dev/null; then
  echo "installing Debian's Chromium for tests/browser" >&2
  export DEBIAN_FRONTEND=noninteractive
  as_root=
  [ "$(id -u)" = 0 ] || as_root="sudo -n"
  { $as_root apt-get install -y -q chromium chromium-driver ||
    { $as_root apt-get update -q && $as_root apt-get install -y -q chromium chromium-driver; }; } >/dev/null 2>&1
  is_installed && exit 0
fi
echo "no Chromium for tests/browser: apt-get install chromium chromium-driver, or set CHROMIUM and CHROMEDRIVER" >&2
