#!/usr/bin/env bash
# Chromium from Debian, in which tests look at the pages.
# chromium.sh install | start DIR | stop DIR      prints AUSPEX_REQUIRE_BROWSER; nothing runs

. "$(dirname "$0")/lib.sh"
install() { need chromium chromium; }
up() { echo "AUSPEX_REQUIRE_BROWSER=1"; }
main
