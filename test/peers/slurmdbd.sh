#!/usr/bin/env bash
# Slurm 22.05 with accounting: slurm.sh with ACCOUNTING=1, slurmdbd and MariaDB (Debian 12); needs root.
# slurmdbd.sh install | start DIR | stop DIR      prints SLURMDB_CONF, SLURMDB_REST, SLURMDB_TOKEN, SLURMDB_RUN
set -euo pipefail
ACCOUNTING=1 "$(dirname "$0")/slurm.sh" "$@" | sed 's/^SLURM_/SLURMDB_/'
