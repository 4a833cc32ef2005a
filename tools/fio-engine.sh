#!/usr/bin/env bash
# Builds the fio engine: target/fio-engine/vlinder.so, for the fio that is installed. Needs Debian's fio, gcc, make and
# dpkg-dev, and the archive from which fio was installed (its source package is fetched once, with a copy of the
# configuration of apt in which source packages are turned on).
set -euo pipefail
cd "$(dirname "$0")/.."

[ $# -eq 0 ] || { echo "fio-engine: takes no arguments: make fio-engine" >&2; exit 2; }
target=${CARGO_TARGET_DIR:-target}
mkdir -p "$target/fio-engine"
built=$(cd "$target/fio-engine" && pwd)

say() { echo "fio-engine: $*" >&2; }
for tool in fio gcc make dpkg-source apt-get; do
    command -v "$tool" >/dev/null || { say "$tool is missing; install the packages fio, gcc, make, dpkg-dev"; exit 2; }
done
version=$(dpkg-query --show --showformat='${Version}' fio) ||
    { say "this fio is not a package's, so that its source is not known: apt-get install fio"; exit 2; }
source=$built/fio-$version

# The sources of the installed version, configured: an engine is built against config-host.h.
if [ ! -e "$source/config-host.h" ]; then
    say "fetching the source of fio $version"
    configuration=$(mktemp -d)
    trap 'rm -rf "$configuration"' EXIT
    mkdir -p "$configuration/parts" "$configuration/lists/partial" "$configuration/fetched"
    # With or without options in brackets; files of the newer form name their types in a field.
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
        [ ! -e "$file" ] || sed -n 'p; s/^deb\( \|\t\)/deb-src\1/p' "$file" >"$configuration/parts/$(basename "$file" .list).list"
    done
    for file in /etc/apt/sources.list.d/*.sources; do
        [ ! -e "$file" ] || sed 's/^\(Types:.*\)$/\1 deb-src/' "$file" >"$configuration/parts/$(basename "$file")"
    done
    apt_get() {
        apt-get -q -o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts="$configuration/parts" \
            -o Dir::State::Lists="$configuration/lists" -o APT::Sandbox::User=root "$@"
    }
    apt_get update >&2
    (cd "$configuration/fetched" && apt_get source --download-only "fio=$version" >&2 && dpkg-source -x ./*.dsc unpacked >&2)
    (cd "$configuration/fetched/unpacked" && ./configure >/dev/null)
    rm -rf "$source"
    mv "$configuration/fetched/unpacked" "$source"
fi

say "building the library"
cargo rustc --release --quiet -p vlinder-capi --crate-type cdylib
cp "$target/release/libvlinder_capi.so" "$built/libvlinder.so.new"
# A running fio may have the old one open.
mv -f "$built/libvlinder.so.new" "$built/libvlinder.so"

# Threads of the library may outlive the last call, so neither part is ever unloaded.
gcc -O2 -g -Wall -Wextra -Wno-unused-parameter -Wno-sign-compare -std=gnu11 -D_GNU_SOURCE -shared -fPIC \
    -include "$source/config-host.h" -isystem "$source" -I crates/capi/include \
    -o "$built/vlinder.so.new" tools/fio-engine/vlinder.c \
    "$built/libvlinder.so" -Wl,-rpath,'$ORIGIN' -Wl,-z,nodelete
mv -f "$built/vlinder.so.new" "$built/vlinder.so"
say "built: fio --ioengine=external:$built/vlinder.so --thread --image=IMAGE --filename=/FILE …"
