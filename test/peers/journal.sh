#!/usr/bin/env bash
# Debian's systemd-journal-remote and systemd-journal-upload, for tests to run: one makes a journal of an export, the other sends it.
# journal.sh install | start DIR | stop DIR
#   JOURNAL_REMOTE, JOURNAL_UPLOAD: the programs

. "$(dirname "$0")/lib.sh"
programs=/lib/systemd

install() { PATH=$PATH:$programs need systemd-journal-upload systemd-journal-remote; }
up() {
  echo "JOURNAL_REMOTE=$programs/systemd-journal-remote"
  echo "JOURNAL_UPLOAD=$programs/systemd-journal-upload"
}
main
