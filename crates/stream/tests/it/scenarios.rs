//! What happens to a subvolume between two snapshots, beyond the first list of `kernel_receives`.

/// Its name, what is done first, what is done then. Both run in a subvolume, in bash. `w FILE BYTE FROM
/// LENGTH` writes, `c FILE FROM TO LENGTH [SOURCE]` clones.
pub type Scenario = (&'static str, &'static str, &'static str);

/// Names and attributes.
pub const NAMES: &[Scenario] = &[
    (
        "attributes of what moved twice",
        "mkdir -p a/b/c/d a/b/e; echo 1 > a/b/c/d/f; chmod 777 a/b/c/d",
        "echo 2 >> a/b/c/d/f; mv a/b/c/d/f a/b/c/d/g; mv a/b/e a/e2; mv a/b/c/d a/e2/d2; mv a/b a/b2; \
         mv a/b2/c a/b2/c2; chmod 700 a/e2/d2; chown 7:8 a/b2/c2; touch -d 2001-01-01 a/e2",
    ),
    (
        "a new directory takes the name of the one that moves into it",
        "mkdir -p m/up/old/sub k/mid/low/sub t/u",
        "mkdir old; mv m/up/old old/inner; mv old m/up; mkdir low; mv t/u low/x; mv t low/x/y; \
         mv k/mid/low low/x/y/z; mv low k/mid",
    ),
    (
        "names handed on before their owners move",
        "mkdir a b c d e g; touch a/f e/f",
        "mv c x; mv a x/y; mv b a; mv g g2; mv e g2/e2; mv d e",
    ),
    (
        "subtrees are turned over",
        "mkdir -p D/n1/n2/p1/p2 D/n4 D/p1/p2",
        "mv D/p1/p2 D; mv D/n1/n2/p1/p2 D/p1; mv D/p2 D/n1/n2/p1; mv D/n1/n2 D/p1; mv D/p1 D/n4; mv D/n4/p1/n2/p1 D",
    ),
    (
        "a directory waits for its neighbour",
        "mkdir a t gone; mv t gone; mkdir a/c gone/x",
        "mv a/c .; mv gone/x a; mv gone/t c; rmdir gone",
    ),
    ("one name at several depths", "mkdir -p c/d/p c/p", "mv c/d c/p; mv c/p/d/p c/p2; mv c/p c/p2/dd"),
    ("a number used again by a file", "mkdir d; touch d/1 d/2 d/3", "rm -r d; REMOUNT; touch new"),
    (
        "an old name is taken and linked",
        "echo 1 > 1; echo 2 > 2; echo 3 > 3",
        "mv 3 4; ln 2 5; mv 2 3; mv 1 2",
    ),
    (
        "a link into a directory whose name a file took",
        "mkdir a b; touch c; mkdir a/s",
        "mv a b/; mv c a; ln a b/a/h; mv b/a/s b/s2",
    ),
    (
        "a link changes places with a directory",
        "touch a b; mkdir t; mv a t/a",
        "mv t/a a2; touch t/a; mv b b2; ln a2 b; mv t t2; mv a2 t",
    ),
    (
        "a link over a directory that moved",
        "touch 1 2 3; mkdir A; ln 3 A/h",
        "mv 1 A/1; mv A/h kept; mv 2 A/h; mv A B; ln B/h A",
    ),
    (
        "thousands of links go with their directories",
        "mkdir a b; touch a/f; for i in $(seq 1000); do ln a/f a/f.$i; ln a/f b/f.$i; done",
        "rm -r a b",
    ),
    (
        "extended attributes near the limit",
        "touch f g; mkdir d; v=$(head -c 16000 /dev/zero | tr '\\0' v); python3 -c \"import os; \
         os.setxattr('f', 'user.large', b'x' * 16000); os.setxattr('d', 'user.' + 'n' * 250, b'y' * 15000); \
         os.setxattr('g', 'user.kept', b'k' * 16000)\"; setfacl -d -m u:5:rwx d",
        "python3 -c \"import os; os.setxattr('f', 'user.large', b'z' * 16000); os.setxattr('f', 'user.more', b''); \
         os.removexattr('d', 'user.' + 'n' * 250); os.setxattr('d', 'user.binary', bytes(range(256)) * 60)\"; \
         setfacl -m u:7:r f; ln -s t l; setfattr -h -n trusted.t -v v l; touch d/x",
    ),
    (
        "times and modes at their ends",
        "touch f; mkdir d; touch -d '1960-01-01 00:00:00.123456789' f; touch -d '2106-02-07 06:28:16.999999999' d; \
         chmod 7777 d",
        "touch -a -d '1999-01-01' f; chmod 0 f; touch -d '1901-12-13 20:45:51' d",
    ),
];

/// Contents of files.
pub const CONTENTS: &[Scenario] = &[
    (
        "preallocated, punched and zeroed",
        "w f 1 0 1m; xfs_io -f -c 'falloc 0 1m' g; w g 2 64k 64k; w h 3 0 1m; xfs_io -f -c 'falloc -k 0 1m' i; \
         w j 4 0 10000; w k 5 0 300k",
        "xfs_io -c 'fpunch 64k 128k' -c 'fpunch 300k 5000' f; xfs_io -c 'fpunch 0 96k' -c 'falloc 2m 256k' g; \
         xfs_io -c 'fzero 128k 256k' -c 'fpunch 1000k 48k' h; w i 6 300k 5000; xfs_io -c 'fpunch 4k 20000' j; \
         xfs_io -c 'falloc 256k 256k' -c 'fpunch 8k 64k' k",
    ),
    (
        "bookends and overlapping extents",
        "w f 1 0 1m; sync; w f 2 256k 256k; sync; w f 3 384k 300k; sync; w f 4 4k 4k; w g 5 0 128k; sync; \
         w g 6 4k 4k; w g 7 64k 60k; sync; cp --reflink=always f f2; w f2 8 512k 4k",
        "w f 9 0 8k; c g 0 256k 64k f; c f 8k 512k 128k g; w g 1 260k 4k; cp --reflink=always g h; w h 2 0 4k",
    ),
    (
        "clones that end within a sector, and a source that is cut",
        "w f 1 0 100001; cp --reflink=always f g; w h 2 0 50000; w k 3 0 70003; w b 4 0 1m",
        "cp --reflink=always f a; c h 0 102400 49152; cp --reflink=always k l; truncate -s 40000 k; \
         truncate -s 30001 f; c k 0 1m 40000 b; truncate -s 65000 h; cp --reflink=always f m; echo more >> g",
    ),
    (
        "clones laid over one another",
        "w f 171 0 128k; w f 205 128k 128k; w f 239 256k 256k; w f 26 512k 512k",
        "c f 64k 1m 960k; c f 0 512k 256k; c f 512k 128k 256k; w f 115 384k 640k",
    ),
    (
        "equal blocks made one",
        "xfs_io -f -s -c 'pwrite -q -b 64k -S 184 0 512k' f; w f 184 512k 512k; w g 184 0 1m",
        "xfs_io -c 'dedupe g 0 0 512k' f >/dev/null; xfs_io -c 'dedupe f 0 512k 512k' f >/dev/null",
    ),
    (
        "one extent shown many times",
        "w f 1 0 64k; for i in $(seq 1 20); do c f 0 $((i * 64))k 64k; done; for i in $(seq 20); do \
         cp --reflink=always f f$i; done",
        "w f 2 64k 4k; for i in $(seq 20 30); do cp --reflink=always f f$i; w f$i 3 0 4k; done",
    ),
    (
        "compressed extents, whole and in parts",
        "for k in zlib lzo zstd; do touch $k; btrfs property set $k compression $k; yes $k | head -c 400000 > $k; \
         seq 200 > $k.in; btrfs property set $k.in compression $k; seq 300 | head -c 1000 > $k.in; done; sync; \
         w zstd 1 4k 4k; w lzo 2 128k 100000; sync; cp --reflink=always zlib copy",
        "w zstd 3 200k 4k; truncate -s 99999 lzo; c zlib 0 256k 100k zstd; truncate -s 70000 zlib; \
         seq 5000 >> zlib.in; truncate -s 500 lzo.in; yes x | head -c 300000 >> copy",
    ),
    (
        "without copy-on-write beside with",
        "mkdir n; chattr +C n; w n/f 1 0 300k; w f 2 0 300k; w n/g 3 0 5000; cp -r n m; cp --reflink=always n/f n/h",
        "w n/f 4 100k 4097; mv n/g g; w g 5 2000 10; w n/h 6 0 64k; c n/f 64k 0 64k n/h; cp n/f f",
    ),
    (
        "small becomes large and back",
        "echo a > a; head -c 2047 /dev/urandom > b; seq 1 3000 > c; : > d; echo e > e; head -c 4096 /dev/urandom > g",
        "truncate -s 5000 a; truncate -s 7 c; head -c 3900 /dev/urandom > d; truncate -s 1T e; \
         cat b >> g; truncate -s 100 g; echo x | dd of=b bs=1 seek=9000 conv=notrunc status=none",
    ),
];

/// Not for Linux as a sender: in version 1 it writes the zeros of a whole hole of which a part was none
/// before, here those of a terabyte.
pub const TERABYTES: Scenario = (
    "terabyte holes",
    "truncate -s 3T a; w a 1 1T 64k; truncate -s 8T b; w c 1 0 4k; w d 7 0 64k; w d 8 1088k 64k",
    "w a 2 2T 10000; xfs_io -c 'fpunch 1T 4k' a; truncate -s 100 b; w b 3 5T 3; truncate -s 2T c; w d 9 512k 5",
);
