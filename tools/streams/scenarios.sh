#!/bin/bash
# scenarios.sh SCRIPT [NAME...]: runs a script of scenarios (send-scenarios.sh) in the three pairings of sender and receiver
# that have vlinder on one side. Root. VLINDER names the command; FLAGS has more flags for its send. Exit 0: all are equal.
set -u
here=$(cd "$(dirname "$0")" && pwd)
script=$1
shift
scratch=$(mktemp -d "${TMPDIR:-/tmp}/streams.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
bad=0
for pairing in vlinder-vlinder vlinder-kernel kernel-vlinder; do
    echo "== ${pairing%-*} sends, ${pairing#*-} receives"
    (
        export S=$scratch/$pairing
        mkdir "$S"
        case $pairing in vlinder-*) export SEND=$here/send ;; esac
        case $pairing in *-vlinder) export RECEIVE=$here/receive ;; esac
        exec bash "$script" "$@"
    ) || bad=1
done
exit $bad
