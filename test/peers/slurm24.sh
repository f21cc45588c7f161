#!/usr/bin/env bash
# Slurm 24.11 of Debian 13, beside that of this host: slurm.sh with SUITE=trixie; needs root.
# slurm24.sh install | start DIR | stop DIR      prints SLURM24_CONF, SLURM24_REST, SLURM24_TOKEN, SLURM24_RUN
set -euo pipefail
SUITE=trixie "$(dirname "$0")/slurm.sh" "$@" | sed 's/^SLURM_/SLURM24_/'
