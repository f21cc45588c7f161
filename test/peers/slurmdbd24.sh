#!/usr/bin/env bash
# Slurm 24.11 with accounting: slurm.sh with SUITE=trixie and ACCOUNTING=1, MariaDB of this host; needs root.
# slurmdbd24.sh install | start DIR | stop DIR      prints SLURMDB24_CONF, SLURMDB24_REST, SLURMDB24_TOKEN, SLURMDB24_RUN
set -euo pipefail
SUITE=trixie ACCOUNTING=1 "$(dirname "$0")/slurm.sh" "$@" | sed 's/^SLURM_/SLURMDB24_/'
