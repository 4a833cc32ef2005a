# What is done in a mount of the kernel's, for each state of the matrix. Run by bash in the mounted root, with the name of
# the state as first argument. A state that has to be copied away under the mount prints READY and waits for a line.
set -eu
export LC_ALL=C

# At the end of its input it goes on.
held() { echo READY; read -r _ || true; }
fsync() { for file; do xfs_io -c fsync "$file" > /dev/null; done; }
# write FILE OFFSET LENGTH [BYTE]
write() { xfs_io -f -c "pwrite -S ${4:-0xaa} $2 $3" "$1" > /dev/null; }
noise() { head -c "$2" /dev/urandom > "$1"; }
# clone SOURCE TARGET SOURCE-OFFSET TARGET-OFFSET LENGTH; without copy-on-write only files of the same kind share.
clone() { xfs_io -f -c "reflink $1 $3 $4 $5" "$2" > /dev/null; }

# Files of every type, names, attributes, times, holes, preallocated and shared extents, subvolumes.
base() {
    mkdir -p dir/deep/er many links for-vlinder
    seq 1 60 > small; seq 1 40000 > text
    ln small dir/hard; ln -s ../small dir/link; ln -s "$(printf 'x%.0s' $(seq 900))" dir/long-link
    mknod null c 1 3; mknod disk b 8 300; mkfifo pipe; chmod 4755 small; chown 1000:1001 dir/deep
    xfs_io -f -c 'pwrite -S 7 0 200k' -c 'pwrite -S 8 1m 100k' -c 'fpunch 64k 32k' holes > /dev/null
    xfs_io -f -c 'falloc 0 1m' -c 'pwrite -S 9 128k 64k' prealloc > /dev/null
    cp --reflink=never text cloned; sync -f .; clone text cloned 0 0 131072; write text 20k 9k 5
    setfattr -n user.name -v value small; setfattr -n user.large -v "$(printf 'v%.0s' $(seq 1500))" dir
    setfacl -m u:1234:rwx,g:77:r dir/deep; setfacl -d -m u:1234:rx dir/deep; touch dir/deep/inherits
    touch -d '1960-01-01 00:00:00.123456789' before; touch -d '2500-06-07 08:09:10.987654321' after
    # Without extref so many names of one directory are refused at some point.
    for i in $(seq 200); do ln small "links/$(printf 'n%.0s' $(seq 200))$i" 2> /dev/null || break; done
    for i in $(seq 400); do echo $i > many/$i; done; for i in $(seq 1 3 400); do unlink many/$i; done
    : > "$(printf 'odd \t\\ n\303\244me \377')"
    btrfs -q subvolume create sub; seq 1 3000 > sub/file; mkdir sub/d; echo in > sub/d/inline
    btrfs -q subvolume snapshot -r sub shot
    for i in $(seq 8); do seq $((i * 1000)) > for-vlinder/$i; done
}

full() {
    base
    noise noise 1M
    # Compressible and not, until nothing fits any more.
    ( while cat noise text >> filler; do :; done ) 2> /dev/null
    sync -f . || true
    perl -e 'for (1 .. 20000) { open(my $f, ">", "tiny-$_") or last; print $f "x" x 900 or last; close $f or last }'
}

aged() {
    base
    perl -e '
        use strict; srand($ARGV[0]);
        mkdir "aged"; mkdir "aged/$_" for 0 .. 7;
        for my $round (1 .. 6) {
            for (1 .. 700) {
                my $path = "aged/" . int(rand 8) . "/" . int(rand 300);
                my $what = rand;
                if ($what < 0.25) { unlink $path }
                elsif ($what < 0.35) { rename $path, "aged/" . int(rand 8) . "/" . int(rand 300) }
                elsif ($what < 0.42) { truncate $path, int(rand 40000) }
                elsif (open(my $f, -e $path ? "+<" : ">", $path)) {
                    seek $f, int(rand 60000), 0;
                    print $f chr(65 + int(rand 26)) x int(rand 20000);
                }
            }
            system("sync", "-f", ".");
            system("btrfs -q subvolume snapshot . aged-$round") if $round % 2;
            system("btrfs -q subvolume delete aged-1 > /dev/null") if $round == 4;
        }' "$1"
    xfs_io -c 'fpunch 4k 8k' -c 'fpunch 40k 4k' text > /dev/null
}

snapshots() {
    base
    btrfs -q subvolume snapshot sub copy; echo more >> copy/file; unlink sub/d/inline; write sub/file 4k 4k 6
    btrfs -q subvolume snapshot copy copy2; btrfs -q subvolume snapshot -r copy2 copy3
    clone copy/file sub/clone 0 0 8192; write copy2/file 0 4k 9
    for i in $(seq 300); do echo $i > copy2/n$i; done
    btrfs -q subvolume snapshot copy2 copy4; for i in $(seq 1 2 300); do unlink copy4/n$i; done
    btrfs -q subvolume create other; btrfs -q subvolume create other/nested; echo deep > other/nested/file
    btrfs -q subvolume snapshot other other2; btrfs -q subvolume delete copy3 > /dev/null
    mkdir received; sync -f .
    btrfs -q send shot 2> /dev/null | btrfs -q receive received
    btrfs subvolume set-default "$(btrfs inspect-internal rootid sub)" . && btrfs subvolume set-default 5 .
}

orphans() {
    base
    for i in $(seq 20); do noise orphan-$i ${i}0000; done
    exec 10< orphan-1 11< orphan-2 12<> orphan-20
    rm -f orphan-*
    perl -e '
        use Fcntl; my @held;
        for (1 .. 50) { sysopen(my $f, ".", 020200000 | O_RDWR) or die "O_TMPFILE: $!"; syswrite $f, "t" x 9000; push @held, $f }
        system("sync", "-f", "."); $| = 1; print "READY\n"; <STDIN>'
}

dirty-log() {
    # A chunk that is made meanwhile would make fsync commit, and the kernel makes one for the first extent of each class
    # of sizes (up to 128 KiB, up to 8 MiB, above).
    for size in 64k 1m 9m; do write .filler$size 0 $size; sync -f .; done
    base; sync -f .
    write new 0 300k; fsync new
    echo appended >> text; fsync text
    ln small dir/another; fsync small
    mv many/2 many/renamed; setfattr -n user.log -v logged many/renamed; fsync many/renamed
    unlink many/3; mkdir made; echo in > made/file; fsync made/file made many
    xfs_io -c 'fpunch 8k 8k' -c fsync holes > /dev/null; xfs_io -c 'falloc -k 2m 64k' -c fsync prealloc > /dev/null
    truncate -s 5000 sub/file; fsync sub/file
    held
}

# The names, all of one hash, stand in the file that the argument names, separated by zeros.
collisions() {
    base; mkdir same
    while IFS= read -r -d '' name; do echo "$name" > "same/$name"; done < "$1"
    first=$(head -z -n 1 "$1" | tr -d '\0'); unlink "same/$first"; ln small "same/$first"
    # Attributes share items by the same hash.
    while IFS= read -r -d '' name; do setfattr -n "user.$name" -v "$name" small || break; done < "$1"
}

links() {
    base; echo linked > linked
    # So few in each directory that all their names fit into one reference item of the smallest nodes.
    perl -e 'for my $d (0 .. 363) { mkdir "l$d"; for (1 .. 180) { link "linked", "l$d/$_" or exit 0 } }'
}

inline() {
    base; mkdir inline packed; chattr +c packed || true
    for size in 0 1 2 15 16 100 1000 2000 2047 2048 2049 3000 3800 3900 3970 4000 4085 4086 4095 4096 4097 5000 8192; do
        for directory in inline packed; do
            head -c $size text > $directory/text-$size; noise $directory/noise-$size $size
            head -c $size text > $directory/grown-$size; head -c $size text > $directory/cut-$size
        done
    done
    sync -f .
    for directory in inline packed; do
        for file in $directory/grown-*; do echo more >> "$file"; done
        for file in $directory/cut-*; do truncate -s 60 "$file"; truncate -s 9000 "$file"; done
        cp --reflink=always $directory/text-1000 $directory/cloned || true
    done
}

preallocated() {
    base
    xfs_io -f -c 'pwrite 0 5000' -c 'falloc -k 0 1m' past > /dev/null
    xfs_io -f -c 'falloc -k 0 256k' empty > /dev/null
    xfs_io -f -c 'falloc 0 512k' -c 'pwrite -S 3 100k 50k' -c fsync -c 'pwrite -S 4 300k 4k' middle > /dev/null
    xfs_io -f -c 'falloc -k 64k 64k' -c 'truncate 70000' -c 'pwrite -S 5 66k 100' across > /dev/null
    xfs_io -f -c 'falloc 0 1m' -c 'fpunch 100k 200k' -c 'fzero 500k 100k' punched > /dev/null
    xfs_io -f -c 'falloc 0 300k' shared > /dev/null; cp --reflink=always shared shared2; write shared 8k 40k 6
    btrfs -q subvolume snapshot . kept; write middle 0 300k 9
}

reflinks() {
    base; btrfs -q subvolume create one; btrfs -q subvolume create two; noise one/noise 700k
    cp --reflink=always one/noise two/noise; cp --reflink=always one/noise top
    clone one/noise two/part 65536 0 131072; clone one/noise two/part 0 262144 131072
    clone two/part one/self 0 0 131072; clone one/self one/self 0 131072 131072
    write one/noise 100k 20k 1; write two/noise 300k 8k 2; truncate -s 200k top
    btrfs -q subvolume snapshot one three; clone three/noise three/noise2 0 0 409600; write three/noise2 0 64k 4
    unlink one/noise; cp --reflink=always text two/text; sync -f .
    xfs_io -c 'dedupe one/self 0 131072 65536' one/self > /dev/null 2>&1 || true
}

# Deleted, and unmounted before all of it is freed.
half-dropped() {
    base; btrfs -q subvolume create gone; noise gone/noise 3M
    perl -e 'for (1 .. 20000) { open(my $f, ">", "gone/" . ("n" x 60) . $_); print $f $_ x 20 }'
    cp --reflink=always gone/noise kept; sync -f .
    btrfs -q subvolume delete -c gone > /dev/null
}

state=$1; shift
case $state in
    fresh) ;;
    degraded) base ;;
    *) $state "$@" ;;
esac
