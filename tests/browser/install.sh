#!/bin/sh
# Finds Chromium and its driver for the browser tests; installs Debian's where that is allowed; else says how to get it.
# The same as tests/browser/conftest.py takes.
found() {
  { [ -n "$CHROMIUM" ] || command -v chromium || command -v chromium-browser || command -v google-chrome ||
    command -v google-chrome-stable; } >/dev/null &&
    { [ -n "$CHROMEDRIVER" ] || command -v chromedriver; } >/dev/null
}
found && exit 0
if command -v apt-get >/dev/null; then
  echo "installing Debian's Chromium for tests/browser" >&2
  export DEBIAN_FRONTEND=noninteractive
  as_root=
  [ "$(id -u)" = 0 ] || as_root="sudo -n"
  { $as_root apt-get install -y -q chromium chromium-driver ||
    { $as_root apt-get update -q && $as_root apt-get install -y -q chromium chromium-driver; }; } >/dev/null 2>&1
  found && exit 0
fi
echo "no Chromium for tests/browser: apt-get install chromium chromium-driver, or set CHROMIUM and CHROMEDRIVER" >&2
