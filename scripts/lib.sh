# Shared by the scripts in this directory; sourced, never run.
set -euo pipefail
shopt -s inherit_errexit
SCRIPTS=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
REPO=$(dirname "$SCRIPTS")
TARGET=${CARGO_TARGET_DIR:-$REPO/target}
CACHE=${QUARRY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/quarry}
. "$SCRIPTS/versions.env"
LOCKED=; [ "${CI:-}" != true ] || LOCKED=--locked     # CI must not change Cargo.lock; a developer may

note() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
die() { note "$*"; exit 1; }
is_root() { [ "$(id -u)" = 0 ]; }
have() { command -v "$1" >/dev/null 2>&1; }
key() { sha256sum | cut -c1-12; }                # a short name for what comes in on stdin

# poll SECONDS CMD...: until CMD succeeds; fails when the time is up
poll() {
  local end=$(( SECONDS + $1 )); shift
  until "$@" >/dev/null 2>&1; do [ $SECONDS -lt $end ] || return 1; sleep 0.1; done
}

# retry NAME COUNT CMD...: for downloads. Runs CMD up to COUNT times; ends the script when the last attempt fails, with
# NAME in the message. `set -e` has no effect in CMD: it is a program, or a function that joins its commands with &&.
retry() {
  local name=$1 count=$2 attempt code pause=5; shift 2
  for (( attempt = 1; ; attempt++ )); do
    code=0; "$@" || code=$?
    [ $code != 0 ] || return 0
    [ $attempt -lt "$count" ] || break
    note "$name failed with code $code (attempt $attempt of $count); next attempt in $pause s"
    sleep $pause; pause=$(( pause * 3 ))
  done
  die "$name failed $count times, last with code $code; fix the cause shown above (most often the network), then run the command again"
}

# A process is its number and its start time: numbers are reused.
pid_of() { printf '%s %s\n' "$1" "$(start_time "$1")"; }
start_time() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }
pid_alive() { # FILE written by pid_of: prints the PID if that very process still runs
  local pid start; read -r pid start 2>/dev/null < "$1" || return 1
  [ -n "$start" ] && [ "$(start_time "$pid")" = "$start" ] && echo "$pid"
}
