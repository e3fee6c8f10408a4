# Shared by the scripts of this folder; sourced, never run.
set -euo pipefail
shopt -s inherit_errexit
SCRIPTS=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
REPO=$(dirname "$SCRIPTS")
TARGET=${CARGO_TARGET_DIR:-$REPO/target}
CACHE=${QUARRY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/quarry}
. "$SCRIPTS/versions.env"
LOCKED=; [ "${CI:-}" != true ] || LOCKED=--locked     # CI must not resolve anew; a developer may

note() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
die() { note "$*"; exit 1; }
is_root() { [ "$(id -u)" = 0 ]; }
have() { command -v "$1" >/dev/null 2>&1; }
key() { sha256sum | cut -c1-12; }                # a short name for whatever comes in on stdin

# poll SECONDS CMD...: until CMD succeeds; fails when the time is up
poll() {
  local end=$(( SECONDS + $1 )); shift
  until "$@" >/dev/null 2>&1; do [ $SECONDS -lt $end ] || return 1; sleep 0.1; done
}

# A process is its number and its start time: numbers are used again.
pid_of() { printf '%s %s\n' "$1" "$(start_time "$1")"; }
start_time() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }
pid_alive() { # FILE written by pid_of: prints the PID if that very process still runs
  local pid start; read -r pid start 2>/dev/null < "$1" || return 1
  [ -n "$start" ] && [ "$(start_time "$pid")" = "$start" ] && echo "$pid"
}
